"""Files on disk: paths, locks, compression, indexes and caches."""
