"""Parsing and encoding of single records in memory."""
