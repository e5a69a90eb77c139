"""Transforms of batches, and the locations of a batch's rows."""
