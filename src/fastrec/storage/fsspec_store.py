"""FsspecStore: every scheme that fsspec knows."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrec.options import MissingExtraError, extra
from fastrec.printable import printable
from fastrec.storage.stores import (
    Entry,
    Listing,
    StorageOptions,
    Store,
    TransientError,
    UnreachedError,
    denied,
    of_status,
    opaque,
)
from fastrec.storage.urls import is_http

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

# The common schemes, which errors list. fsspec knows more.
SCHEMES = ("s3", "gs", "az", "abfss", "http", "https", "hf", "ftp", "sftp", "memory")
_SEPARATOR = "\0"  # in no key
_SELF = (".", "..")
_TRANSIENT_ERRNO = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EIO, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN),
    }
)


class FsspecStore(Store):
    """A store that fsspec reads."""

    tags_ranges = False

    def __init__(self, root: str, options: StorageOptions) -> None:
        super().__init__(root, options)
        scheme, _, rest = root.partition("://")
        with extra("remote", f"reading {scheme}:// URLs", "fsspec"):
            import fsspec
        if scheme not in fsspec.available_protocols():
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise ValueError(f"unknown scheme; known schemes are {known}")
        try:
            cls = fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            msg = f"cannot read {scheme}:// URLs: {printable(error)}"  # has the package
            raise MissingExtraError(msg, name=error.name) from None
        own = cls._get_kwargs_from_urls(root) if rest else {}
        self._make: Callable[[], Any] = partial(cls, **{**own, **options})
        self._strip = cls._strip_protocol

    def _path(self, key: str) -> str:
        base, query = self._root, ""
        if is_http(self._root):
            base, mark, query = self._root.partition("?")
            query = mark + query
        if base.endswith("://"):
            return base + key
        return f"{base.rstrip('/')}/{key}{query}"

    def _fs(self) -> Any:
        return self._make()  # fsspec caches instances, by process and thread

    def head(self, key: str) -> Entry:  # noqa: D102
        fs = self._fs()
        fs.invalidate_cache()
        info = fs.info(self._path(key))
        if info.get("type") == "directory":
            raise FileNotFoundError
        return _fsspec_entry(info, key)

    def get(  # noqa: D102
        self, key: str, begin: int, end: int
    ) -> tuple[Buffer, Entry]:
        data = self._fs().cat_file(self._path(key), begin, end)
        return data, Entry(key, -1, "")

    def list(  # noqa: D102
        self, prefix: str, *, is_recursive: bool, after: str
    ) -> Listing:
        from urllib.parse import unquote  # slow to import

        # A page is a directory. `find` of fsspec would leave out those that fail.
        directory, *more = (after or prefix).split(_SEPARATOR)
        fs = self._fs()
        fs.invalidate_cache()
        top = str(self._strip(self._path(""))).rstrip("/")
        try:
            found = fs.ls(self._path(directory), detail=True)
        except FileNotFoundError:
            if not after:
                raise
            found = []  # a link that leads nowhere
        page: list[tuple[Entry | None, str]] = []
        for info in found:
            key = str(info["name"])[len(top) :].lstrip("/")
            if is_http(self._root):
                key = unquote(key.partition("?")[0])
            if info.get("type") == "directory" or key.endswith("/"):
                key = key.rstrip("/")
                is_inner = (
                    key.startswith(directory) and key.rpartition("/")[2] not in _SELF
                )
                if is_inner and is_recursive:
                    more.append(f"{key}/")
                elif is_inner:
                    page.append((None, f"{key}/"))
            elif key.startswith(directory):
                # `ls` and `info` return different forms of times, and HTML pages none.
                page.append((Entry(key, -1, ""), key))
        return page, _SEPARATOR.join(more)

    def put(  # noqa: D102
        self, key: str, file: Path, *, overwrite: bool, check: Callable[[], None]
    ) -> None:
        check()
        fs, path = self._fs(), self._path(key)
        if not overwrite and fs.exists(path):
            raise FileExistsError
        fs.makedirs(fs._parent(path), exist_ok=True)
        fs.put_file(str(file), path)

    def delete(self, key: str) -> None:  # noqa: D102
        self._fs().rm_file(self._path(key))

    def _translated(self, error: BaseException, url: str) -> BaseException:
        return translated(self, error, url)


def translated(store: Store, error: BaseException, url: str) -> BaseException:
    """Return what to raise for an error of fsspec."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "No such object", url)
    if isinstance(error, FileExistsError):
        return FileExistsError(errno.EEXIST, "The object exists", url)
    if isinstance(error, PermissionError):
        return denied(url)
    response = getattr(error, "response", None)
    for owner in (error, response):
        for name in ("status", "status_code", "code"):
            status = getattr(owner, name, None)
            if isinstance(status, int) and 300 <= status < 600:
                return of_status(status, url)
    if isinstance(error, ConnectionRefusedError) or type(error).__name__.startswith(
        "ClientConnector"  # of aiohttp
    ):
        return UnreachedError("cannot connect")
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return TransientError("the request timed out")
    module = type(error).__module__.partition(".")[0]
    is_network = module in ("aiohttp", "requests", "httpx", "urllib3", "botocore")
    if (
        is_network
        or isinstance(error, (ConnectionError, EOFError))
        or getattr(error, "errno", None) in _TRANSIENT_ERRNO
    ):
        return TransientError("the connection failed")
    return OSError(errno.EIO, store._first_line(error), url)


# The names under which filesystems of fsspec return the version of an object.
_FSSPEC_TAGS = ("ETag", "etag", "blob_id", "md5Hash", "sha256", "checksum")
_FSSPEC_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated")


def _fsspec_entry(info: Mapping[str, Any], key: str) -> Entry:
    tag = next((str(info[name]) for name in _FSSPEC_TAGS if info.get(name)), "")
    if not tag:
        times = (str(info[name]) for name in _FSSPEC_TIMES if info.get(name))
        # A file system in memory has nothing but the time of its creation.
        tag = next((f"modified {t}" for t in times), str(info.get("created", "")))
    size = info.get("size")
    return Entry(key, -1 if size is None else int(size), opaque(tag), not tag)
