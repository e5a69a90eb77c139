"""File sets, their features and transforms, and selections of their records."""
