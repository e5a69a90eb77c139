"""Transforms: the caller's functions of batches, and where the rows of a batch come from."""
