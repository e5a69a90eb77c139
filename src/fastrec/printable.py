"""Printable strings: escaped text, and counts with nouns."""

from __future__ import annotations


def printable(text: object) -> str:
    """Return ``str(text)`` with unprintable characters escaped.

    Unprintable characters are control characters, line breaks, terminal escape
    sequences, and bytes of file names that are not UTF-8.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def counted(n: int, noun: str) -> str:
    """Return a count with its noun: ``1 record``, ``1,234 records``, ``2 batches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{n:,} {noun}{'' if n == 1 else plural}"
