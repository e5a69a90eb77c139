"""Warnings that point to the caller's line."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["warn_caller"]

_PACKAGE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 (slow to import)


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the nearest line outside of fastrec."""
    # Replace by skip_file_prefixes= when Python 3.12 is the oldest supported version.
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
