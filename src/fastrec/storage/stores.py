"""Store for reading, listing and writing the objects of one bucket or server.

obstore reads S3, Google Cloud Storage, Azure, HTTP and the Hugging Face Hub. fsspec
reads all other schemes. It also lists the Hub, and the links in HTML pages of HTTP
servers. Errors of both libraries become an OSError that names the redacted URL, or a
`TransientError`, after which `fastrec.storage.remote.ask` retries. Library messages may
contain credentials, so errors quote at most the first line, without URLs and options.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from fastrec import _core
from fastrec.errors import Error
from fastrec.options import MissingExtraError, extra
from fastrec.printable import printable
from fastrec.storage.urls import (
    hub_url,
    is_http,
    redacted,
    scrubbed,
    without_userinfo,
)
from fastrec.tasks import CancelledError

if TYPE_CHECKING:
    from typing_extensions import Buffer

StorageOptions: TypeAlias = Mapping[str, Any]

# The size of a file, and its modification time (ns) or the hash of its ETag.
Version: TypeAlias = tuple[int, int]

_T = TypeVar("_T")

_log = logging.getLogger("fastrec")

_OBSTORE_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https", "hf"}
)
# The common schemes, which errors list. fsspec supports more schemes.
_SCHEMES = ("s3", "gs", "az", "abfss", "http", "https", "hf", "ftp", "sftp", "memory")

# Limits of an obstore request. It fails if no byte arrives for `read_timeout`.
_CLIENT_OPTIONS = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10m"}
# A request also fails if less than `_SLOW_BYTES` arrive in `_SLOW_SECONDS`.
_SLOW_SECONDS = 30.0
_SLOW_BYTES = 30 << 10

_PAGE_KEYS = 1000  # the page size of S3 and Google Cloud Storage
_TIME_SECONDS = 2  # Last-Modified has whole seconds and may hide a later change
_LAST_CHARACTER = "\U0010fffd"
_SEPARATOR = "\0"  # no key contains it
# Names under which fsspec file systems return the version of an object. The memory file
# system returns only the creation time.
_FSSPEC_TAGS = (
    *("ETag", "etag", "blob_id", "md5Hash", "sha256", "checksum"),
    *("LastModified", "last_modified", "mtime", "modified", "updated", "created"),
)

# Recycled memory of bodies. Fresh memory costs more than receiving bytes into it.
_BODIES = _core.BlockPool(64 << 20)

_CHUNK_BYTES = 256 << 10  # of an object that is read without ranges
_PART_BYTES = 8 << 20  # of an upload
_MAX_PARTS = 9_000  # S3 allows 10,000


class TransientError(Exception):
    """A request failed for a temporary reason, which the message states."""


class Entry(NamedTuple):
    """An object: its key, size in bytes, and the tag of its version."""

    key: str
    size: int = -1  # -1 if a listing does not contain size and tag
    tag: str = ""  # the ETag or the modification time; "" if the server sends neither
    is_weak: bool = False  # whether another version may have the same tag
    encoding: str = ""  # Content-Encoding, such as "gzip"
    has_ranges: bool | None = None  # whether parts can be read; None if unknown

    @property
    def version(self) -> Version:
        """The size, and the hash of the tag (0 if the tag is empty)."""
        import hashlib  # slow to import

        # Remove the marks that only some listings and servers add.
        tag = self.tag.removeprefix("W/").strip('"').encode(errors="replace")
        digest = hashlib.blake2b(tag, digest_size=8).digest()
        return self.size, int.from_bytes(digest, "big") >> 1 if tag else 0


# A page of entries, and the `after` value of the next page, or "".
Listing: TypeAlias = tuple[list[Entry], str]


class Store:
    """One bucket or server. Methods block, and are thread-safe."""

    has_answered = False  # whether a request succeeded
    has_ranges = False  # whether a request for a range succeeded
    # The process with obstore's threads, which do not exist in forked children.
    _process: int | None = None

    def __init__(self, root: str, options: StorageOptions) -> None:
        """Open the store at the URL `root`, which may contain credentials."""
        scheme = self._scheme = root.partition("://")[0]
        if scheme == "hf":  # neither the Hub nor fsspec accepts this part
            root = root.replace("//models/", "//", 1)
        self._root, self._options = root, options
        self.has_secrets = redacted(root) != root
        if scheme in ("file", "local"):
            raise ValueError(
                f"a {scheme}:// URL must name a local file, such as file:///a.tfrecord"
            )
        self._is_http = is_http(root)
        # S3 copies larger objects only in parts.
        self.max_copy_bytes = 5 << 30 if scheme in ("s3", "s3a") else None
        # obstore's store, without retries, because `ask` counts and cancels retries.
        self._reading: Any = None
        self._writing: Any = None  # None if fsspec lists and writes
        self._fs: Callable[[], Any]  # returns fsspec's file system
        if scheme in _OBSTORE_SCHEMES:
            self._open_obstore(root)
        else:
            self._fs = _file_system(scheme, root, options)

    def _open_obstore(self, root: str) -> None:
        scheme = self._scheme
        with extra("remote", f"reading {scheme}:// URLs", "obstore"):
            from obstore.store import from_url
        named = _named_like_obstore(self._options, scheme)
        client = {**_CLIENT_OPTIONS, **named.pop("client_options")}
        # A caller that sets this time-out also determines how slow a body may be.
        self._is_paced = client["read_timeout"] == _CLIENT_OPTIONS["read_timeout"]
        authorization: dict[str, str] = {}
        if scheme == "hf":
            hub = _hub_options(named)
            self._fs = lambda: _file_system("hf", "", hub)()
            root = hub_url(root, hub["endpoint"])
            if hub["token"]:
                authorization = {"authorization": f"Bearer {hub['token']}"}
        elif self._is_http:
            # obstore ignores the user and password in a URL.
            root, authorization = without_userinfo(root)
        endpoint = os.environ.get(_ENDPOINT_VARIABLES.get(scheme[0], ""))
        endpoints = [root, *named.values(), endpoint]
        if any(str(value).startswith("http://") for value in endpoints):
            client.setdefault("allow_http", True)
        # Directory buckets of S3 and file systems of Azure list keys in other orders.
        is_directory_bucket = root.rstrip("/").endswith("--x-s3")
        self._is_ordered = scheme in ("s3", "s3a", "gs") and not is_directory_bucket
        if is_http(root):
            if wrong := named.keys() - {"retry_config"}:
                raise ValueError(
                    f"{scheme}:// URLs have no storage option {min(wrong)!r}; pass "
                    "options of obstore's client: timeout, proxy_url, default_headers, ..."
                )
            client["default_headers"] = {
                "accept-encoding": "identity",
                **authorization,
                **client.get("default_headers", {}),
            }
        if self._is_http:
            self._fs = partial(_file_system_of_pages, root, client["default_headers"])
        once = {"retry_config": {"max_retries": 0}, **named}
        try:
            self._reading = from_url(root, client_options=client, **once)
            if not is_http(root):
                self._writing = from_url(root, client_options=client, **named)
            # The consumer determines how long a whole object takes.
            unlimited = {**client, "timeout": "365days"}
            self._streaming = from_url(root, client_options=unlimited, **once)
        except BaseException as error:  # obstore raises several types
            if not _is_of_library(error):
                raise
            reason = self._first_line(error) + (f"; {_NAMES}" if self._options else "")
        else:
            return
        raise ValueError(reason)

    def _path(self, key: str) -> str:
        """Return the path of an object in fsspec's file system."""
        root = self._root
        if self._is_http:
            root = without_userinfo(root)[0].partition("?")[0]
        return root + key if root.endswith("/") else f"{root}/{key}"

    def beginning(self, key: str, n_bytes: int) -> tuple[Buffer, Entry]:
        """Return an object's entry, and its first bytes if that costs no request.

        Raises a FileNotFoundError if the object does not exist.
        """
        if self._reading is None:
            return b"", self._info(key)
        from obstore import exceptions as kinds

        # Only a GET proves that an object is empty. HTTP servers may refuse HEAD, which
        # signed URLs do not allow, or may report a different length.
        try:
            return self.get(key, 0, n_bytes)
        except (kinds.GenericError, kinds.NotSupportedError) as error:
            if _status_of(error) not in (0, 416) or "kind: " in str(error):
                raise
            entry = _obstore_entry(self._reading.get(key).meta)
            if entry.size and (self.has_ranges or not re.search(_WHOLE, str(error))):
                raise
            return b"", entry._replace(has_ranges=not entry.size)

    def stream(self, key: str) -> tuple[Iterator[memoryview], Entry]:
        """Return the pieces of a whole object, and its entry."""
        result = self._streaming.get(key)
        chunks = result.stream(min_chunk_size=_CHUNK_BYTES)
        return map(memoryview, chunks), _obstore_entry(result.meta)

    def _info(self, key: str) -> Entry:
        """Return the entry of an object in fsspec's file system."""
        fs = self._fs()
        fs.invalidate_cache()
        info = fs.info(self._path(key))
        if info.get("type") == "directory":
            raise FileNotFoundError
        tag = next((str(info[name]) for name in _FSSPEC_TAGS if info.get(name)), "")
        size = info.get("size")
        return Entry(key, -1 if size is None else int(size), tag, not tag, "", True)

    def get(self, key: str, begin: int, end: int) -> tuple[Buffer, Entry]:
        """Return the bytes ``[begin, end)`` of an object, and its entry."""
        if self._reading is None:
            data = self._fs().cat_file(self._path(key), begin, end)
            return data, self._info(key)  # fsspec returns no version with a range
        result = self._reading.get(key, options={"range": (begin, end)})
        self.has_ranges = True
        entry = _obstore_entry(result.meta)
        encoding = result.attributes.get("Content-Encoding", "")
        seconds = _SLOW_SECONDS if self._is_paced else math.inf
        body = _body(result, end - begin, seconds)
        return body, entry._replace(encoding=encoding, has_ranges=True)

    def list(self, prefix: str, *, is_recursive: bool, after: str) -> Listing:
        """Return one page of the objects in `prefix`, and below it if `is_recursive`.

        `prefix` is empty or ends with a slash. `after` is empty for the first page,
        otherwise the value that came with the previous page.
        """
        if self._writing is None:
            return self._directory(prefix, is_recursive, after)
        from obstore import exceptions as kinds

        if self._is_ordered:
            try:
                return self._page(prefix, is_recursive, after)
            except kinds.InvalidPathError:
                if is_recursive:
                    raise
                # The invalid key may be in a subdirectory.
        if is_recursive:
            pages = self._reading.list(prefix or None, chunk_size=_PAGE_KEYS)
            return [_obstore_entry(meta) for page in pages for meta in page], ""
        found = self._reading.list_with_delimiter(prefix or None)
        return [*map(_obstore_entry, found["objects"])], ""

    def _page(self, prefix: str, is_recursive: bool, after: str) -> Listing:
        """Return the page that follows key `after`, for stores that list keys in order.

        The request names a key instead of a token. So no key is lost if a page is cut
        off or a request is repeated, and one request can skip a large subdirectory.
        """
        page = {"offset": after or None, "chunk_size": _PAGE_KEYS}
        pages = self._reading.list(prefix or None, **page)
        entries = [_obstore_entry(meta) for meta in next(iter(pages), [])]
        more = ""
        if len(entries) >= _PAGE_KEYS:
            # The key of the empty object "a/" lacks its slash, so it is out of order.
            keys = [entry.key for entry in entries if entry.size]
            more = max(entry.key for entry in entries)
            if more <= after or keys != sorted(keys):
                reason = "the server does not list keys in order after a given key"
                raise OSError(errno.ENOTSUP, reason)
        if not is_recursive:
            directory, slash, _ = more[len(prefix) :].partition("/")
            if slash:
                more = max(more, f"{prefix}{directory}/{_LAST_CHARACTER}")
            entries = [each for each in entries if "/" not in each.key[len(prefix) :]]
        return entries, more

    def _directory(self, prefix: str, is_recursive: bool, after: str) -> Listing:
        """Return the entries of one directory, or the links of one HTML page.

        fsspec's `find` is not used, because it skips directories that it cannot list.
        """
        from urllib.parse import unquote  # slow to import

        directory, *more = (after or prefix).split(_SEPARATOR)
        fs = self._fs()
        fs.invalidate_cache()
        top = str(fs._strip_protocol(self._path(""))).rstrip("/")
        try:
            found = fs.ls(self._path(directory), detail=True)
        except FileNotFoundError:
            if not after:
                raise
            found = []  # a broken link
        page = set()
        for info in found:
            key = str(info["name"])[len(top) :].lstrip("/")
            if self._is_http:
                key = unquote(key.partition("?")[0])
            is_directory = info.get("type") == "directory" or key.endswith("/")
            key = key.rstrip("/") + "/" * is_directory
            if not key.startswith(directory) or key == directory:
                continue
            if key.endswith(("/./", "/../")):
                continue
            if self._is_http and not _is_valid(key.rstrip("/")):
                _log.warning("skipping a link that cannot be read: %s", printable(key))
            elif is_directory:
                more += [key] * is_recursive
            else:
                # `ls` and `info` format times differently, and HTML pages have none.
                page.add(Entry(key))
        return [*page], _SEPARATOR.join(more)

    def put(
        self, key: str, file: str, *, overwrite: bool, check: Callable[[], None]
    ) -> Entry | None:
        """Upload a local file; the object appears only when it is complete.

        Returns the entry if the response contains the version.

        Calls `check` repeatedly; an exception from `check` aborts the upload. Without
        `overwrite`, an existing object is an error, if the store supports that.
        """
        if self._writing is None:
            check()
            fs, path = self._fs(), self._path(key)
            if not overwrite and fs.exists(path):
                raise FileExistsError
            fs.makedirs(fs._parent(path), exist_ok=True)
            fs.put_file(file, path)
            return None
        from obstore import exceptions

        size = os.stat(file).st_size
        if size <= _PART_BYTES:
            mode = "overwrite" if overwrite else "create"
            with open(file, "rb") as whole:
                data = whole.read()
            try:
                done = self._writing.put(key, data, use_multipart=False, mode=mode)
            except exceptions.AlreadyExistsError:
                # The response to the first attempt may have been lost.
                if bytes(self._writing.get(key).bytes()) != data:
                    raise
                return None
            return _uploaded(key, size, done["e_tag"])
        part_bytes = max(_PART_BYTES, size // _MAX_PARTS)

        def parts() -> Iterator[bytes]:
            with open(file, "rb") as data:
                while part := data.read(part_bytes):
                    check()  # an error aborts the upload
                    yield part

        done = self._writing.put(
            key, parts(), use_multipart=True, chunk_size=part_bytes
        )
        return _uploaded(key, size, done["e_tag"])

    def copy(self, key: str, target: str) -> None:
        """Copy an object within the store, without reading it."""
        if self._writing is None:
            self._fs().cp_file(self._path(key), self._path(target))
        else:
            self._writing.copy(key, target)

    def delete(self, key: str) -> None:
        """Delete an object."""
        if self._writing is None:
            self._fs().rm_file(self._path(key))
        else:
            self._writing.delete(key)

    def call(self, url: str, request: Callable[[], _T]) -> _T:
        """Return ``request()``; translate exceptions of obstore and fsspec."""
        if self._reading is not None:
            Store._process = Store._process or os.getpid()
        if self._reading is not None and Store._process != os.getpid():
            raise RuntimeError(
                f"cannot read {self._scheme}:// URLs in a forked process whose parent "
                "read them: obstore does not support forks; start processes with "
                '"spawn" or "forkserver", such as multiprocessing_context="spawn" of '
                "a DataLoader"
            )
        try:
            result = request()
        except (TransientError, MissingExtraError, CancelledError, Error):
            raise
        except BaseException as error:  # libraries raise any type
            if not _is_of_library(error):
                raise
            failure = self._translated(error, url)
        else:
            self.has_answered = True
            return result
        # Raise outside of `except`, so that the error does not refer to the original
        # error, which may contain credentials.
        raise failure

    def _translated(self, error: BaseException, url: str) -> Exception:
        """Translate an error of obstore or fsspec to an OSError or a TransientError."""
        if isinstance(error, OSError) and error.errno == errno.ENOTSUP:
            return OSError(error.errno, error.strerror, url)
        status = _status_of(error)
        names = [kind.__name__ for kind in type(error).__mro__]
        text = f"{' '.join(names)} HTTP {status}: {error}"
        failure = next(_FAILURES[key] for key in _FAILURES if re.search(key, text))
        number, _, reason = failure.partition(": ")
        if number == "ENOTSUP" and self.has_ranges:
            number = "RETRY"  # a proxy may have sent the whole object
        cause = f"HTTP status {status}" if status else "missing or wrong credentials"
        reason = reason.format(self._first_line(error), status=cause)
        if number == "RETRY":
            return TransientError(reason)
        return OSError(getattr(errno, number), reason, url)

    def _first_line(self, error: BaseException) -> str:
        """Return the type and the first line of an error, without credentials."""
        lines = str(error).splitlines() or [""]
        secrets: list[object] = [dict(self._options)]
        if self.has_secrets:
            parts = re.split(r"[:@/?&=]", self._root)
            secrets += [part for part in parts if len(part) > 2]
        return f"{type(error).__name__}: {printable(scrubbed(lines[0], secrets))}"


def _file_system(scheme: str, root: str, options: StorageOptions) -> Callable[[], Any]:
    """Return a function that returns fsspec's file system for the calling thread."""
    with extra("remote", f"reading {scheme}:// URLs", "fsspec"):
        import fsspec
    if scheme not in fsspec.available_protocols():
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise ValueError(f"unknown scheme; known schemes are {known}")
    try:
        cls = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        msg = f"cannot read {scheme}:// URLs: {printable(error)}"  # names the package
        raise MissingExtraError(msg, name=error.name) from None
    own = cls._get_kwargs_from_urls(root) if root.partition("://")[2] else {}
    return partial(cls, **{**own, **options})


def _hub_options(named: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the Hugging Face Hub from `named`, and return all of them."""
    endpoint, token = named.pop("endpoint", None), named.pop("token", None)
    if token is None or token is True:
        token = os.environ.get("HF_TOKEN")
        try:  # this also reads the file of a login, or requests a token
            from huggingface_hub import get_token

            token = get_token()
        except Exception as error:  # noqa: BLE001 (of any type)
            _log.info("cannot get a token of the Hub: %s", type(error).__name__)
    default = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return {"endpoint": endpoint or default, "token": token}


def _file_system_of_pages(root: str, headers: Mapping[str, Any]) -> Any:
    """Return fsspec's HTTP file system, which lists links in HTML pages as files."""
    from urllib.parse import parse_qsl  # slow to import

    with extra("remote", "listing HTTP servers", "aiohttp"):
        import aiohttp  # noqa: F401
    # fsspec logs URLs, so credentials are passed as options.
    scheme, _, rest = root.partition("://")
    params = parse_qsl(rest.partition("?")[2], keep_blank_values=True)
    return _file_system(scheme, "", {"headers": headers, "params": params})()


# Errors.

CANNOT_CONNECT = "cannot connect"
_DENIED = (
    "EACCES: access was denied ({status}); set the credentials in the environment, or pass "
    "storage_options="
)
_STATUS = "the server returned {status}"
_WHOLE = "Range request not supported|non-partial response"  # of HTTP and S3

# Patterns for the types, HTTP status and text of an error, with the errno (or RETRY for
# a transient error) and the reason. The first match counts.
_FAILURES = {
    r"\b(FileNotFoundError|HTTP 404|HTTP 410)\b": "ENOENT: No such object",
    r"\b(FileExistsError|AlreadyExistsError)\b": "EEXIST: The object exists",
    r"\b(PermissionError|PermissionDeniedError|UnauthenticatedError)\b": _DENIED,
    "HTTP (401|403):": _DENIED,
    "HTTP (408|425|429|500|502|503|504|509|520|522|524):": f"RETRY: {_STATUS}",
    "HTTP 3..:": f"EIO: {_STATUS}, a redirect that cannot be followed; pass the URL that "
    "it leads to, or the region in storage_options=",
    "HTTP [1-9]..:": f"EIO: {_STATUS}",
    "InvalidPathError": "EIO: obstore cannot list a page if a key has an empty part, "
    '".", ".." or a control character; rename the object, or list another directory: {}',
    "169.254.169.254|metadata.google|Credential": _DENIED,
    _WHOLE: "ENOTSUP: the server does not support range requests; download the file",
    "UnexpectedRange": "RETRY: the server or a proxy sent another range than "
    "requested; download the file",
    "UnexpectedEof": "RETRY: the body was truncated",
    "builder error|scheme is not allowed": "EPROTONOSUPPORT: the server redirects to "
    "another scheme, which is not followed, or the endpoint has one; pass the URL that it "
    "leads to, or allow_http=True in storage_options=",
    "kind: Redirect": "ELOOP: the server redirects in a loop; check the URL",
    r"kind: Connect\b|\b(ClientConnectorError|ConnectionRefusedError)\b": "RETRY: "
    + CANNOT_CONNECT,
    r"kind: Timeout|Timeout(Error)?\b.* HTTP": "RETRY: the request timed out",
    "kind: Interrupted": "RETRY: the body was cut off",
    r"kind: (Request|Decode)|\b(ConnectionError|EOFError|InterruptedError|ClientError|"
    r"RequestException|HTTPError|HTTPClientError|TransportError)\b|"
    rf"\[Errno ({errno.EIO}|{errno.EAGAIN}|{errno.EHOSTUNREACH}|{errno.ENETUNREACH}|"
    rf"{errno.ENETDOWN})]": "RETRY: the connection failed",
    "": "EIO: {}",
}


def _is_of_library(error: BaseException) -> bool:
    """Return whether a library may have raised `error`: Exception or Rust panic."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _status_of(error: BaseException) -> int:
    """Return the HTTP status of an error of obstore or fsspec, or 0."""
    if found := re.search(r"status(?: code)?: (\d{3})", str(error)):
        return int(found[1])
    for owner in (error, getattr(error, "response", None)):
        for name in ("status", "status_code", "code"):
            status = getattr(owner, name, None)
            if isinstance(status, int) and 300 <= status < 600:
                return status
    return 302 if "redirect without LOCATION" in str(error) else 0


# Options.

_ENDPOINT_VARIABLES = {  # by the first letter of the scheme
    "s": "AWS_ENDPOINT_URL",
    "a": "AZURE_STORAGE_ENDPOINT",
    "g": "GOOGLE_BASE_URL",
}
_NAMES = (
    "storage_options are named as in obstore, such as access_key_id, "
    "secret_access_key, token, endpoint, region, skip_signature, timeout and proxy_url"
)
# The options of obstore's HTTP client, which it accepts only in `client_options`.
_CLIENT_NAMES = re.compile(
    r"(allow|http1|http2|pool|proxy)_\w+|default_(content_type|headers)|user_agent|"
    r"((connect|read)_)?timeout|randomize_addresses|root_certificate"
)
# Option names of s3fs, with obstore's names.
_S3FS_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
}


def _named_like_obstore(options: StorageOptions, scheme: str) -> dict[str, Any]:
    """Rename options to obstore's names, and drop options that are None."""
    given = {**options, **(options.get("client_kwargs") or {}), "client_kwargs": None}
    client: dict[str, Any] = dict(given.pop("client_options", None) or {})
    named: dict[str, Any] = {"client_options": client}
    renamed = _S3FS_NAMES if scheme in ("s3", "s3a") else {"anon": "skip_signature"}
    for name, value in given.items():
        own = renamed.get(name, name)
        if value is None:
            continue
        if own != name and given.get(own) is not None:
            raise ValueError(f"storage_options must not have both {name!r} and {own!r}")
        (client if _CLIENT_NAMES.fullmatch(own) else named)[own] = value
    for name, value in client.items():
        if name.endswith("timeout") and isinstance(value, (int, float)):
            client[name] = timedelta(seconds=value)
    return named


# Responses.


def _body(result: Any, n_bytes: int, seconds: float) -> Buffer:
    """Return at most `n_bytes` bytes of the body of a response.

    Raises a TransientError if less than `_SLOW_BYTES` arrive in a period of `seconds`.
    """
    body = memoryview(cast("Buffer", _BODIES.take(n_bytes)))
    n_read = n_before = 0
    begin = time.monotonic()
    for chunk in result.stream(min_chunk_size=1):
        piece = memoryview(chunk)[: n_bytes - n_read]
        body[n_read : n_read + len(piece)] = piece
        n_read += len(piece)
        if time.monotonic() - begin > seconds:
            if n_read - n_before < _SLOW_BYTES and n_read < n_bytes:
                raise TransientError(
                    f"less than {_SLOW_BYTES:,} bytes arrived in {seconds:g} s"
                )
            n_before, begin = n_read, time.monotonic()
    return body[:n_read]


def _is_valid(key: str) -> bool:
    """Return whether obstore can read an object with this key."""
    is_plain = not any(part in ("", ".", "..") for part in key.split("/"))
    return is_plain and not re.search(r"[\0-\x1f\x7f]", key)


def _uploaded(key: str, size: int, tag: str | None) -> Entry | None:
    return Entry(key, size, tag, tag.startswith("W/")) if tag else None


def _obstore_entry(meta: Mapping[str, Any]) -> Entry:
    tag = meta["e_tag"] or ""
    is_weak = tag.startswith("W/")
    if not tag:
        seconds = meta["last_modified"].timestamp()
        tag = f"modified {seconds}" if seconds else ""
        is_weak = time.time() - seconds < _TIME_SECONDS or not tag
    return Entry(meta["path"], meta["size"], tag, is_weak)
