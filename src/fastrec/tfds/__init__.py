"""Directories that tensorflow-datasets writes: splits, slices and features."""
