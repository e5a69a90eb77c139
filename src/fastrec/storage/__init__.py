"""Paths, locks, compression, indexes, caches and remote stores of files."""
