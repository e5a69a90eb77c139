"""Escape file and feature names for printing."""

from __future__ import annotations


def printable(text: object) -> str:
    """Return ``str(text)`` with unprintable characters escaped.

    These are control characters, line breaks, terminal escape sequences, and bytes of
    file names that are not UTF-8.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
