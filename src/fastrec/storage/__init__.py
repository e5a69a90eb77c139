"""Paths, locks, compression, indexes and caches of local files."""
