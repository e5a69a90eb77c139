"""Shuffle, reshard, split, recompress and check whole files."""
