"""Store: reads, lists and writes the objects of one bucket or server.

Errors of the library become an OSError that names the redacted URL, or a
`TransientError`, which `fastrec.storage.remote.waited` retries. Texts of these libraries
contain credentials, so errors quote at most their first line, without URLs and options.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from fastrec.errors import Error
from fastrec.options import MissingExtraError
from fastrec.printable import printable
from fastrec.storage.urls import is_http, redacted, scrubbed
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

StorageOptions: TypeAlias = Mapping[str, Any]

_T = TypeVar("_T")

_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 520, 522, 524})


class TransientError(Exception):
    """A request failed for a reason that may pass; the text is the reason."""


class UnreachedError(TransientError):
    """There is no connection to a server that never answered.

    Its address may be wrong, so retries end soon.
    """


class Entry(NamedTuple):
    """An object: its key, size in bytes, and the tag of its version."""

    key: str
    size: int  # -1 if a listing does not contain size and tag
    tag: str  # the ETag or the modification time; "" if the server sends neither
    is_weak: bool = False  # whether another version may have the same tag
    encoding: str = ""  # Content-Encoding, such as "gzip"


# A page: entries and their keys, or None and the prefixes of directories; and what to
# pass as `after` for the next page, or "".
Listing: TypeAlias = "tuple[list[tuple[Entry | None, str]], str]"


class Store:
    """One bucket or server. Methods block, and may be called by several threads."""

    # Whether `get` returns the tag of the object that it read.
    tags_ranges = True
    has_answered = False  # whether a request succeeded

    def __init__(self, root: str, options: StorageOptions) -> None:
        self._root, self._options = root, options

    def head(self, key: str) -> Entry:
        """Return the entry of an object, or raise a FileNotFoundError."""
        raise NotImplementedError

    def get(self, key: str, begin: int, end: int) -> tuple[Buffer, Entry]:
        """Return bytes ``[begin, end)``, and the entry of the object."""
        raise NotImplementedError

    def list(self, prefix: str, *, is_recursive: bool, after: str) -> Listing:
        """Return objects below `prefix`, and, unless recursive, its directories.

        `prefix` is empty or ends with a slash. `after` is empty, or what the previous
        page returned.
        """
        raise NotImplementedError

    def put(
        self, key: str, file: Path, *, overwrite: bool, check: Callable[[], None]
    ) -> None:
        """Upload a local file; the object appears when it is complete, or not at all.

        Calls `check` often, and stops if it raises. Without `overwrite`, a store that
        can do so raises a FileExistsError if the object exists.
        """
        raise NotImplementedError

    def delete(self, key: str) -> None:
        """Delete an object."""
        raise NotImplementedError

    def call(self, url: str, request: Callable[[], _T]) -> _T:
        """Return ``request()``; translate the library's errors for the redacted `url`."""
        try:
            result = request()
        except (TransientError, MissingExtraError, CancelledError, Error):
            raise
        except BaseException as error:  # libraries raise any type
            if not is_of_library(error):
                raise
            failure = self._translated(error, url)
            if isinstance(failure, UnreachedError) and self.has_answered:
                failure = TransientError(*failure.args)
        else:
            self.has_answered = True
            return result
        # Raised here, so that it does not refer to the original, which may contain
        # credentials.
        raise failure

    def _translated(self, error: BaseException, url: str) -> BaseException:
        raise NotImplementedError

    def _first_line(self, error: BaseException) -> str:
        """Return the type and the first line of an error, without credentials."""
        lines = str(error).splitlines() or [""]
        secrets = [dict(self._options), *_userinfo(self._root)]
        return f"{type(error).__name__}: {printable(scrubbed(lines[0], secrets))}"


def _userinfo(root: str) -> list[str]:
    """Return the texts of a root that may be credentials."""
    texts = re.split(r"[:@/?&=]", root) if redacted(root) != root else []
    return [text for text in texts if len(text) > 2]


def is_of_library(error: BaseException) -> bool:
    """Return whether a library failed. The panics of Rust are not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def opaque(tag: str) -> str:
    """Return an ETag without the marks that listings and servers add or leave out."""
    return tag.removeprefix("W/").strip('"')


def denied(url: str, reason: str = "access was denied") -> PermissionError:
    """Return the error of a store that refuses access."""
    hint = "set the credentials in the environment, or pass storage_options="
    return PermissionError(errno.EACCES, f"{reason}; {hint}", url)


def of_status(status: int, url: str) -> Exception:
    """Return the error for an HTTP status."""
    if status in _TRANSIENT_STATUS:
        return TransientError(f"the server returned HTTP status {status}")
    if status in (401, 403):
        return denied(url, f"access was denied (HTTP status {status})")
    if status in (404, 410):
        return FileNotFoundError(errno.ENOENT, "No such object", url)
    reason = f"the server returned HTTP status {status}"
    if 300 <= status < 400 and is_http(url):
        reason += ", a redirect that cannot be followed; pass the URL that it leads to"
    elif 300 <= status < 400:
        reason += '; check the region, such as storage_options={"region": ...}'
    return OSError(errno.EIO, reason, url)
