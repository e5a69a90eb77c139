"""Open, mix, filter and index datasets."""
