"""Text for a person: names of files and features, which may hold any characters."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: object) -> str:
    """Return ``str(text)`` with escapes for what is not shown as it is.

    Those are control characters, line breaks, sequences that a terminal would obey, and
    bytes of file names that are not text.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
