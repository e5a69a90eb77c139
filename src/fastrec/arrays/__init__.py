"""Array types for bytes, ragged and sparse columns, and operations on batches."""
