"""File sets, how they are read, and views that select their records."""
