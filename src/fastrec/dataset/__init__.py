"""Datasets: opening, mixing, filtering and access by index."""
