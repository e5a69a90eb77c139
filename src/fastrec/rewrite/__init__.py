"""Rewriting: shuffle, reshard, split and recompress whole files; check them."""
