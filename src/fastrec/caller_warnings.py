"""Warnings that point to the line of user code that called fastrec."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep


def is_of_fastrec(frame: FrameType) -> bool:
    """Return whether a frame runs code of fastrec."""
    # A constructor that `dataclass` generates has no file.
    name = str(frame.f_globals.get("__name__"))
    return name.startswith("fastrec.") or (
        frame.f_code.co_filename.startswith(_PACKAGE)
    )


def calling_frame() -> tuple[FrameType, int]:
    """Return the nearest frame outside of fastrec, and how many frames away it is."""
    frame, level = sys._getframe(1), 0
    while frame.f_back is not None and is_of_fastrec(frame):
        frame = frame.f_back
        level += 1
    return frame, level


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line of user code that called fastrec."""
    # Replace by skip_file_prefixes= when Python 3.12 is the oldest supported version.
    warnings.warn(message, category, stacklevel=1 + calling_frame()[1])
