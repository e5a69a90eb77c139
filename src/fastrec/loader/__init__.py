"""Loaders: order, ranks, state, transforms and iteration."""
