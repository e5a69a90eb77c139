"""Stores: read, list and write the objects of one bucket or server.

obstore reads S3, Google Cloud Storage, Azure and HTTP; fsspec lists HTTP servers and
reads all other schemes. obstore reads HTTP 1.6 times as fast as fsspec (benchmarks in
docs/remote.md). Errors of both become an OSError that names the redacted URL, or a
`TransientError`, which `fastrec.storage.remote.fetch` retries. Texts of these libraries
contain credentials, so errors quote only what `_reason` takes from them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from fastrec.errors import Error
from fastrec.options import MissingExtraError, extra
from fastrec.storage.urls import is_http, redacted, scrubbed

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "SCHEMES",
    "Entry",
    "FsspecStore",
    "ObstoreStore",
    "StorageOptions",
    "Store",
    "TransientError",
    "make_store",
]

StorageOptions: TypeAlias = Mapping[str, Any]

_T = TypeVar("_T")

_OBSTORE_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)
# The common schemes, which errors list. fsspec knows more.
SCHEMES = ("s3", "gs", "az", "abfss", "http", "https", "hf", "ftp", "sftp", "memory")

# Limits of one request of obstore. A request without a byte for `read_timeout` failed.
_CLIENT_OPTIONS = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10m"}
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 520, 522, 524})
_TRANSIENT_ERRNO = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EIO, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN),
    }
)


class TransientError(Exception):
    """A request failed for a reason that may pass; the text is the reason."""


class Entry(NamedTuple):
    """An object: its key, size in bytes, and the tag of its version."""

    key: str
    size: int  # -1 if a listing does not contain size and tag
    tag: str  # the ETag or the modification time; "" if the server sends neither


class Store:
    """One bucket or server. Methods block, and may be called by several threads."""

    # Whether `get` returns the tag of the object that it read.
    tags_ranges = True

    def __init__(self, root: str, options: StorageOptions) -> None:
        self._root, self._options = root, options

    def head(self, key: str) -> Entry:
        """Return the entry of an object, or raise a FileNotFoundError."""
        raise NotImplementedError

    def get(self, key: str, begin: int, end: int) -> tuple[Buffer, int, str]:
        """Return bytes ``[begin, end)``, and the size and the tag of the object.

        A size of -1 is unknown.
        """
        raise NotImplementedError

    def list(
        self, prefix: str, *, is_recursive: bool
    ) -> Iterable[tuple[Entry | None, str]]:
        """Yield the objects below `prefix`, and, unless recursive, its directories.

        `prefix` is empty or ends with a slash. A pair is an entry and its key, or None
        and the prefix of a directory.
        """
        raise NotImplementedError

    def call(self, url: str, request: Callable[[], _T]) -> _T:
        """Return ``request()``; translate the library's errors for the redacted `url`."""
        try:
            return request()
        except (TransientError, MissingExtraError, Error):
            raise
        except Exception as error:  # noqa: BLE001 (libraries raise any type)
            failure = self._translated(error, url)
        # Raised here, so that it does not refer to the original, which may contain
        # credentials.
        raise failure

    def _translated(self, error: Exception, url: str) -> Exception:
        raise NotImplementedError

    def _first_line(self, error: Exception) -> str:
        """Return the type and the first line of an error, without credentials."""
        lines = str(error).splitlines() or [""]
        secrets = [dict(self._options), *_userinfo(self._root)]
        return f"{type(error).__name__}: {scrubbed(lines[0], secrets)}"


def make_store(root: str, options: StorageOptions) -> Store:
    """Return the store of `root`, such as ``s3://bucket``, with its credentials."""
    scheme = root.partition("://")[0].lower()
    return (ObstoreStore if scheme in _OBSTORE_SCHEMES else FsspecStore)(root, options)


class ObstoreStore(Store):
    """A store that obstore reads."""

    # The process whose threads obstore uses; they do not exist in its forked children.
    _process: int | None = None

    def __init__(self, root: str, options: StorageOptions) -> None:
        super().__init__(root, options)
        scheme = root.partition("://")[0]
        with extra("remote", f"reading {scheme}:// URLs", "obstore"):
            from obstore.store import from_url
        named = dict(options)
        client = {**_CLIENT_OPTIONS, **named.pop("client_options", {})}
        endpoints = [value for name, value in named.items() if "endpoint" in name]
        endpoints += [root, os.environ.get("AWS_ENDPOINT_URL", "")]
        if any(str(value).startswith("http://") for value in endpoints):
            client.setdefault("allow_http", True)
        named.setdefault("retry_config", {"max_retries": 0})  # `fetch` retries
        self._scheme = scheme
        make = partial(from_url, root, client_options=client, **named)
        self._store = self.call(redacted(root), make)

    def _checked(self) -> Any:  # noqa: ANN401 (obstore may be missing)
        process = os.getpid()
        if ObstoreStore._process is None:
            ObstoreStore._process = process
        if ObstoreStore._process != process:
            msg = (
                f"cannot read {self._scheme}:// URLs in a forked process whose parent "
                "read them: obstore does not support it; start processes with "
                '"spawn" or "forkserver", such as multiprocessing_context="spawn" of '
                "a DataLoader"
            )
            raise RuntimeError(msg)
        return self._store

    def head(self, key: str) -> Entry:  # noqa: D102 (as in Store)
        return _obstore_entry(self._checked().head(key))

    def get(  # noqa: D102
        self, key: str, begin: int, end: int
    ) -> tuple[Buffer, int, str]:
        result = self._checked().get(key, options={"range": (begin, end)})
        entry = _obstore_entry(result.meta)
        return result.bytes(), entry.size, entry.tag

    def list(  # noqa: D102
        self, prefix: str, *, is_recursive: bool
    ) -> Iterable[tuple[Entry | None, str]]:
        if is_http(self._root):  # HTTP has no listing; fsspec reads HTML pages
            listing = FsspecStore(self._root, {})
            yield from listing.list(prefix, is_recursive=is_recursive)
            return
        store = self._checked()
        if is_recursive:
            for some in store.list(prefix or None, chunk_size=1000):
                yield from ((entry := _obstore_entry(meta), entry.key) for meta in some)
            return
        found = store.list_with_delimiter(prefix or None)
        yield from (
            (entry := _obstore_entry(meta), entry.key) for meta in found["objects"]
        )
        yield from ((None, f"{name}/") for name in found["common_prefixes"])

    def _translated(self, error: Exception, url: str) -> Exception:
        from obstore import exceptions as kinds

        text = str(error)
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "No such object", url)
        if isinstance(error, (kinds.UnauthenticatedError, kinds.PermissionDeniedError)):
            return _denied(url)
        if isinstance(error, RuntimeError):
            return error
        status = re.search(r"status(?: code)?: (\d{3})", text)
        if status is not None:
            return _of_status(int(status[1]), url)
        if (
            "169.254.169.254" in text
            or "metadata.google" in text
            or "Credential" in text
        ):
            return _denied(url, "no credentials were found")
        if "Range request not supported" in text:
            reason = "the server does not support range requests; download the file"
            return OSError(errno.ENOTSUP, reason, url)
        if "UnexpectedRange" in text or "UnexpectedEof" in text:
            return TransientError("the body was short")
        if kind := re.search(
            r"kind: (Timeout|Connect|Interrupted|Request|Decode)", text
        ):
            return TransientError(_KINDS.get(kind[1], "the connection failed"))
        return OSError(errno.EIO, self._first_line(error), url)


_KINDS = {
    "Timeout": "the request timed out",
    "Connect": "cannot connect",
    "Interrupted": "the body was cut off",
}


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
            msg = f"unknown scheme; known schemes are {known}"
            raise ValueError(msg)
        try:
            cls = fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            hint = _PACKAGES.get(scheme, error.name or "its package")
            msg = f"reading {scheme}:// URLs requires {hint}: pip install {hint}"
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

    def _fs(self) -> Any:  # noqa: ANN401 (fsspec has no types)
        return self._make()  # fsspec caches instances, by process and thread

    def head(self, key: str) -> Entry:  # noqa: D102
        fs = self._fs()
        fs.invalidate_cache()
        return _fsspec_entry(fs.info(self._path(key)), key)

    def get(  # noqa: D102
        self, key: str, begin: int, end: int
    ) -> tuple[Buffer, int, str]:
        return self._fs().cat_file(self._path(key), begin, end), -1, ""

    def list(  # noqa: D102
        self, prefix: str, *, is_recursive: bool
    ) -> Iterable[tuple[Entry | None, str]]:
        from urllib.parse import unquote  # slow to import

        fs = self._fs()
        fs.invalidate_cache()
        top = str(self._strip(self._path(""))).rstrip("/")
        path = self._path(prefix)
        if is_recursive:
            found = list(fs.find(path, detail=True).values())
        else:
            found = fs.ls(path, detail=True)
        for info in found:
            key = str(info["name"])[len(top) :].lstrip("/")
            if is_http(self._root):
                key = unquote(key.partition("?")[0])
            if info.get("type") == "directory" or key.endswith("/"):
                if key.rstrip("/") != prefix.rstrip("/"):
                    yield None, f"{key.rstrip('/')}/"
            elif key.startswith(prefix):
                # `ls` and `info` return different forms of times, and HTML pages none.
                yield Entry(key, -1, ""), key

    def _translated(self, error: Exception, url: str) -> Exception:
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "No such object", url)
        if isinstance(error, PermissionError):
            return _denied(url)
        response = getattr(error, "response", None)
        for owner in (error, response):
            for name in ("status", "status_code", "code"):
                status = getattr(owner, name, None)
                if isinstance(status, int) and 300 <= status < 600:
                    return _of_status(status, url)
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
        return OSError(errno.EIO, self._first_line(error), url)


# What fsspec needs for schemes that extra `remote` does not install.
_PACKAGES = {
    "hf": "huggingface_hub",
    "gcs": "gcsfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "webhdfs": "requests",
    "hdfs": "pyarrow",
    "dropbox": "dropboxdrivefs",
    "oci": "ocifs",
    "oss": "ossfs",
}


def _obstore_entry(meta: Mapping[str, Any]) -> Entry:
    tag = meta["e_tag"]
    if not tag:
        seconds = meta["last_modified"].timestamp()
        tag = f"modified {seconds}" if seconds else ""
    return Entry(meta["path"], meta["size"], _opaque(tag))


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
    return Entry(key, -1 if size is None else int(size), _opaque(tag))


def _userinfo(root: str) -> list[str]:
    """Return the texts of a root that may be credentials."""
    return re.split(r"[:@/?&=]", root) if redacted(root) != root else []


def _opaque(tag: str) -> str:
    """Return an ETag without the marks that listings and servers add or leave out."""
    return tag.removeprefix("W/").strip('"')


def _denied(url: str, reason: str = "access was denied") -> PermissionError:
    hint = "set the credentials in the environment, or pass storage_options="
    return PermissionError(errno.EACCES, f"{reason}; {hint}", url)


def _of_status(status: int, url: str) -> Exception:
    if status in _TRANSIENT_STATUS:
        return TransientError(f"the server returned HTTP status {status}")
    if status in (401, 403):
        return _denied(url, f"access was denied (HTTP status {status})")
    if status in (404, 410):
        return FileNotFoundError(errno.ENOENT, "No such object", url)
    reason = f"the server returned HTTP status {status}"
    if 300 <= status < 400:
        reason += '; check the region, such as storage_options={"region": ...}'
    return OSError(errno.EIO, reason, url)
