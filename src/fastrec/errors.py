"""The exceptions that fastrec raises.

::

    Exception
    +-- fastrec.Error
        +-- fastrec.CorruptionError   the file is damaged             (also ValueError)
        +-- fastrec.DecodeError       a record breaks the wire format (also ValueError)
        +-- fastrec.SchemaError       a bad spec, or a record that
        |                             does not fit its spec           (also ValueError)
        +-- fastrec.LimitError        a record is larger than allowed (also ValueError)

What the operating system refuses is the builtin :class:`OSError` (and so
:class:`FileNotFoundError` and friends) with ``errno`` and ``filename``; a wrong
argument is :class:`ValueError` or :class:`TypeError`. Nothing else is raised on purpose.
"""

from __future__ import annotations

import logging
import shlex

from fastrec.printable import printable

__all__ = [
    "CorruptionError",
    "DecodeError",
    "Error",
    "LimitError",
    "SchemaError",
    "add_note",
    "cure_of_damage",
    "cure_of_damage_by_number",
]


_log = logging.getLogger("fastrec")


class Error(Exception):
    """Base class of every error that fastrec defines.

    Attributes
    ----------
    reason : str
        What is wrong, without the place.
    path : str or None
        The file it was found in; None for records that were given as bytes.
    record : int or None
        Index of the record in `path`, or among those given, counted from 0.
    offset : int or None
        Byte of `path` at which the trouble was noticed, or of the record where there is
        no file.
    feature : str or None
        Key of the feature concerned.
    cure : str
        What can be done about it; "" where that is not known.
    """

    cure = ""

    def __init__(
        self,
        reason: str,
        path: str | None = None,
        record: int | None = None,
        offset: int | None = None,
        feature: str | None = None,
    ) -> None:
        # All of them go to the base class, which is what makes errors picklable:
        # loaders run inside worker processes.
        super().__init__(reason, path, record, offset, feature)
        self.reason = reason
        self.path = path
        self.record = record
        self.offset = offset
        self.feature = feature

    def __str__(self) -> str:
        place = [] if self.path is None else [printable(self.path)]
        if self.record is not None:
            place.append(f"record {self.record}")
        if self.offset is not None:
            place.append(f"byte {self.offset}")
        # A reason may name features, and may have several lines.
        reason = "\n".join(map(printable, self.reason.split("\n")))
        text = f"{reason} - at {', '.join(place)}" if place else reason
        return f"{text}. {self.cure}" if self.cure else text


class CorruptionError(Error, ValueError):
    """A file is cut short, its bytes do not match its checksums, or it is no TFRecord."""


class DecodeError(Error, ValueError):
    """A record is not a message that a protobuf parser could read."""


class SchemaError(Error, ValueError):
    """A spec makes no sense, or a record does not fit its spec."""


class LimitError(Error, ValueError):
    """A record is larger than fastrec is willing to read."""


def add_note(error: BaseException, note: str) -> None:
    """Add a line to the traceback of an exception.

    Python 3.10 has ``__notes__`` but prints none of them, so the line is logged there.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
        return
    error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]
    _log.error("%s: %s", type(error).__name__, note)


def cure_of_damage(path: str) -> str:
    """Return what to do about a file that is damaged."""
    return f'Use on_error="skip" or run: fastrec doctor {_argument(path)}'


def cure_of_damage_by_number(path: str) -> str:
    """Return it where `on_error` was chosen, and says nothing about how it is read."""
    return (
        "on_error= passes over no record that is asked for by number: read with "
        "ds.loader(...), fr.torch.IterableDataset or the like, or run: "
        f"fastrec doctor {_argument(path)} --repair OUT"
    )


def _argument(path: str) -> str:
    return printable(shlex.quote(path))


for _class in (Error, CorruptionError, DecodeError, SchemaError, LimitError):
    _class.__module__ = "fastrec"  # where users import it from
