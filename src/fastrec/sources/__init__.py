"""Sets of files, and views that select records of them."""
