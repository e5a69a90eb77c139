"""Packages that are optional: imported when they are needed, with an error that helps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["extra"]

_PACKAGES = {"arrow": "pyarrow", "image": "PIL"}
_CALLED = {"pyarrow": "pyarrow", "PIL": "Pillow"}


@contextlib.contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Surround the import of what needs the extra `name`.

    Raises
    ------
    ModuleNotFoundError
        If its package is not installed; says what for it is needed, and how to get it.
    """
    package = _PACKAGES[name]
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        msg = (
            f"{purpose} needs {_CALLED[package]}, which is not installed: "
            f'pip install "fastrec-io[{name}]"'
        )
        raise ModuleNotFoundError(msg, name=error.name) from None
