"""Rewriting whole files: copying, shuffling and resharding frames."""
