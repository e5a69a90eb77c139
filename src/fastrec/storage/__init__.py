"""File storage: paths, locks, compression, indexes, caches and remote stores."""
