"""Packages that are optional: imported when they are needed, with an error that helps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["MissingExtraError", "extra"]

# What an extra installs, by the name that is imported; an extra is mostly called so.
_PACKAGES = {"arrow": "pyarrow", "image": "PIL", "tf": "tensorflow"}
_CALLED = {"PIL": "Pillow", "tensorflow": "TensorFlow"}


class MissingExtraError(ModuleNotFoundError):
    """An extra is not installed; the text says how to install it."""


@contextlib.contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Surround the import of what needs the extra `name`.

    Raises
    ------
    MissingExtraError
        If its package is not installed; says what for it is needed, and how to get it.
    """
    package = _PACKAGES.get(name, name)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        msg = (
            f"{purpose} needs {_CALLED.get(package, package)}, which is not installed: "
            f'pip install "fastrec-io[{name}]"'
        )
        raise MissingExtraError(msg, name=error.name) from None
