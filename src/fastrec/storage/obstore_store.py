"""ObstoreStore: S3, Google Cloud Storage, Azure and HTTP, through obstore.

HTTP servers are listed by fsspec, which reads the links of HTML pages.
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
from typing import TYPE_CHECKING, Any

from fastrec.options import extra
from fastrec.printable import printable
from fastrec.storage.fsspec_store import FsspecStore, translated
from fastrec.storage.stores import (
    Entry,
    Listing,
    StorageOptions,
    Store,
    TransientError,
    UnreachedError,
    denied,
    is_of_library,
    of_status,
    opaque,
)
from fastrec.storage.urls import is_http, without_userinfo

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

_log = logging.getLogger("fastrec")

_OBSTORE_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)
# Limits of one request of obstore. A request without a byte for `read_timeout` failed.
_CLIENT_OPTIONS = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10m"}
# A body that brings less than these bytes in these seconds failed, too.
_SLOW_SECONDS = 30.0
_SLOW_BYTES = 30 << 10

_PAGE_KEYS = 1000  # S3 and Google Cloud Storage list as many at a time
_TIME_SECONDS = 2  # Last-Modified has whole seconds, so a later change may not show
_LAST_CHARACTER = "\U0010fffd"

_PART_BYTES = 8 << 20  # of an upload
_MAX_PARTS = 9_000  # S3 allows 10,000


def make_store(root: str, options: StorageOptions) -> Store:
    """Return the store of `root`, such as ``s3://bucket``, with its credentials."""
    scheme = root.partition("://")[0].lower()
    if scheme in ("file", "local"):
        raise ValueError(
            f"a {scheme}:// URL is of this machine, such as file:///a.tfrecord"
        )
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
        named = _named_like_obstore(options, scheme)
        client = {**_CLIENT_OPTIONS, **named.pop("client_options")}
        # A caller that sets this time-out decides how slow a body may be.
        self._is_paced = client["read_timeout"] == _CLIENT_OPTIONS["read_timeout"]
        endpoints = [value for name, value in named.items() if "endpoint" in name]
        endpoints += [root, os.environ.get("AWS_ENDPOINT_URL", "")]
        if any(str(value).startswith("http://") for value in endpoints):
            client.setdefault("allow_http", True)
        self._scheme = scheme
        # The directory buckets of S3 and file systems of Azure have other orders.
        is_directory_bucket = root.rstrip("/").endswith("--x-s3")
        self._is_ordered = scheme in ("s3", "s3a", "gs") and not is_directory_bucket
        self._headers: dict[str, Any] = {}
        if is_http(root):
            if wrong := named.keys() - {"retry_config"}:
                raise ValueError(
                    f"HTTP servers have no storage option {min(wrong)!r}; pass those of "
                    "obstore's client, such as timeout, proxy_url and default_headers"
                )
            # obstore ignores the user and password in a URL.
            base, authorization = without_userinfo(root)
            self._headers = {**authorization, **client.get("default_headers", {})}
            root, client["default_headers"] = base, self._headers
        try:
            once = {"retry_config": {"max_retries": 0}, **named}  # `waited` retries
            self._store = from_url(root, client_options=client, **once)
            self._writing = from_url(root, client_options=client, **named)
        except BaseException as error:  # obstore raises several types
            if not is_of_library(error):
                raise
            reason = self._first_line(error) + (f"; {_NAMES}" if options else "")
        else:
            return
        raise ValueError(reason)

    def _checked(self, store: Any = None) -> Any:
        process = os.getpid()
        if ObstoreStore._process is None:
            ObstoreStore._process = process
        if ObstoreStore._process != process:
            raise RuntimeError(
                f"cannot read {self._scheme}:// URLs in a forked process whose parent "
                "read them: obstore does not support it; start processes with "
                '"spawn" or "forkserver", such as multiprocessing_context="spawn" of '
                "a DataLoader"
            )
        return self._store if store is None else store

    def head(self, key: str) -> Entry:
        """Return the entry of an object; see `Store`."""
        from obstore import exceptions as kinds

        store = self._checked()
        if not is_http(self._root):
            entry = _obstore_entry(store.head(key))
            if entry.size:
                return entry
        # Only a GET proves that an object is empty. HTTP servers may refuse HEAD, which
        # a signed URL does not allow, or answer it with another length.
        try:
            return _obstore_entry(store.get(key, options={"range": (0, 1)}).meta)
        except (kinds.GenericError, kinds.NotSupportedError):
            entry = _obstore_entry(store.get(key).meta)
            if entry.size:
                raise
            return entry

    def get(self, key: str, begin: int, end: int) -> tuple[Buffer, Entry]:
        """Return a range of an object and its entry."""
        result = self._checked().get(key, options={"range": (begin, end)})
        entry = _obstore_entry(result.meta)
        encoding = result.attributes.get("Content-Encoding", "")
        seconds = _SLOW_SECONDS if self._is_paced else math.inf
        body = _body(result, end - begin, seconds)
        return body, entry._replace(encoding=encoding)

    def list(self, prefix: str, *, is_recursive: bool, after: str) -> Listing:
        """Return a page of a listing, and the key after which it continues."""
        from obstore import exceptions as kinds

        store = self._checked()
        if is_http(self._root):
            return self._linked(prefix, is_recursive, after)
        if self._is_ordered:
            try:
                return self._page(prefix, is_recursive, after)
            except kinds.InvalidPathError:
                if is_recursive:
                    raise
                # The invalid key may be in a subdirectory.
        if is_recursive:
            pages = store.list(prefix or None, chunk_size=_PAGE_KEYS)
            entries = [_obstore_entry(meta) for page in pages for meta in page]
            return [(entry, entry.key) for entry in entries], ""
        found = store.list_with_delimiter(prefix or None)
        entries = [_obstore_entry(meta) for meta in found["objects"]]
        directories = [f"{name}/" for name in found["common_prefixes"]]
        return [
            *((entry, entry.key) for entry in entries),
            *((None, name) for name in directories),
        ], ""

    def _page(self, prefix: str, is_recursive: bool, after: str) -> Listing:
        """Return the next page of a store that lists its keys in order.

        The request for the next page names a key, not a token. So a page that is cut
        off without a token loses nothing, a request can be repeated, and one for each
        large subdirectory skips its keys.
        """
        pages = self._checked().list(
            prefix or None, offset=after or None, chunk_size=_PAGE_KEYS
        )
        entries = [_obstore_entry(meta) for meta in next(iter(pages), [])]
        if len(entries) < _PAGE_KEYS:
            more = ""
        else:
            # The key of the empty object "a/" lacks its slash, so it is out of order.
            keys = [entry.key for entry in entries if entry.size]
            more = max(entry.key for entry in entries)
            if more <= after or keys != sorted(keys):
                reason = "the server does not list keys in order, from a given key on"
                raise OSError(errno.ENOTSUP, reason)
        if is_recursive:
            return [(entry, entry.key) for entry in entries], more
        page: dict[str, Entry | None] = {}
        for entry in entries:
            name, slash, _ = entry.key[len(prefix) :].partition("/")
            page[f"{prefix}{name}{slash}"] = None if slash else entry
        directory, slash, _ = more[len(prefix) :].partition("/")
        if slash:
            more = max(more, f"{prefix}{directory}/{_LAST_CHARACTER}")
        return [(entry, key) for key, entry in page.items()], more

    def _linked(self, prefix: str, is_recursive: bool, after: str) -> Listing:
        """Return the links of an HTML page, which fsspec reads."""
        from urllib.parse import parse_qsl  # slow to import

        with extra("remote", "listing HTTP servers", "aiohttp"):
            import aiohttp  # noqa: F401
        # fsspec logs URLs, so their credentials are passed by options.
        root, _, query = without_userinfo(self._root)[0].partition("?")
        parameters = parse_qsl(query, keep_blank_values=True)
        options = {"headers": self._headers, "params": parameters}
        links, more = FsspecStore(root, options).list(
            prefix, is_recursive=is_recursive, after=after
        )
        page = [(entry, key) for entry, key in links if _is_valid(key.rstrip("/"))]
        for _, key in set(links).difference(page):
            _log.warning("skipping a link that cannot be read: %s", printable(key))
        return page, more

    def put(
        self, key: str, file: Path, *, overwrite: bool, check: Callable[[], None]
    ) -> None:
        """Upload a file."""
        from obstore import exceptions

        store = self._checked(self._writing)
        size = file.stat().st_size
        if size <= _PART_BYTES:
            mode = "overwrite" if overwrite else "create"
            data = file.read_bytes()
            try:
                store.put(key, data, use_multipart=False, mode=mode)
            except exceptions.AlreadyExistsError:
                # Perhaps the response to the first attempt was lost.
                if bytes(store.get(key).bytes()) != data:
                    raise
            return
        part_bytes = max(_PART_BYTES, size // _MAX_PARTS)

        def parts() -> Iterator[bytes]:
            with file.open("rb") as data:
                while part := data.read(part_bytes):
                    check()  # an error aborts the upload
                    yield part

        store.put(key, parts(), use_multipart=True, chunk_size=part_bytes)

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._checked(self._writing).delete(key)

    def _translated(self, error: BaseException, url: str) -> BaseException:
        from obstore import exceptions as kinds

        text = str(error)
        if type(error).__module__.startswith("aiohttp"):
            return translated(self, error, url)
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "No such object", url)
        if isinstance(error, (kinds.UnauthenticatedError, kinds.PermissionDeniedError)):
            return denied(url)
        if isinstance(error, kinds.AlreadyExistsError):
            return FileExistsError(errno.EEXIST, "The object exists", url)
        if isinstance(error, kinds.InvalidPathError):
            reason = (
                'obstore lists no page that has a key with an empty part, ".", ".." or a '
                "control character; rename the object, or list another directory: "
                f"{self._first_line(error)}"
            )
            return OSError(errno.EINVAL, reason, url)
        if isinstance(error, OSError) and error.errno == errno.ENOTSUP:
            return OSError(errno.ENOTSUP, error.strerror, url)
        if isinstance(error, RuntimeError):
            return error
        status = re.search(r"status(?: code)?: (\d{3})", text)
        if status is not None:
            return of_status(int(status[1]), url)
        if "redirect without LOCATION" in text:
            return of_status(302, url)
        if (
            "169.254.169.254" in text
            or "metadata.google" in text
            or "Credential" in text
        ):
            return denied(url, "no credentials were found")
        if "Range request not supported" in text:
            reason = "the server does not support range requests; download the file"
            return OSError(errno.ENOTSUP, reason, url)
        if "UnexpectedRange" in text:
            reason = "the server or a proxy sent another range than the requested one"
            return TransientError(f"{reason}; download the file")
        if "UnexpectedEof" in text:
            return TransientError("the body was short")
        if "kind: Redirect" in text:
            reason = "the server redirects in a loop; check the URL"
            return OSError(errno.ELOOP, reason, url)
        if kind := re.search(
            r"kind: (Timeout|Connect|Interrupted|Request|Decode)", text
        ):
            is_unreached = kind[1] == "Connect"
            reason = _KINDS.get(kind[1], "the connection failed")
            return (UnreachedError if is_unreached else TransientError)(reason)
        return OSError(errno.EIO, self._first_line(error), url)


_KINDS = {
    "Timeout": "the request timed out",
    "Connect": "cannot connect",
    "Interrupted": "the body was cut off",
}


_NAMES = (
    "storage_options are named as in obstore, such as access_key_id, "
    "secret_access_key, token, endpoint, region, skip_signature, timeout and proxy_url"
)
# The options of obstore's HTTP client, which it accepts only in `client_options`.
_CLIENT_NAMES = frozenset(
    {
        *("allow_http", "allow_invalid_certificates", "connect_timeout"),
        *("default_content_type", "default_headers", "http1_only", "http2_only"),
        *("http2_keep_alive_interval", "http2_keep_alive_timeout"),
        *("http2_keep_alive_while_idle", "pool_idle_timeout", "pool_max_idle_per_host"),
        *("proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses"),
        *("read_timeout", "root_certificate", "timeout", "user_agent"),
    }
)
# Names of s3fs.
_S3FS_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
}


def _named_like_obstore(options: StorageOptions, scheme: str) -> dict[str, Any]:
    """Return options with obstore's names, without those that are None."""
    given = {**options, **options.get("client_kwargs", {})}
    given.pop("client_kwargs", None)
    named: dict[str, Any] = {"client_options": {}}
    renamed = _S3FS_NAMES if scheme in ("s3", "s3a") else {"anon": "skip_signature"}
    for name, value in given.items():
        if value is None:
            continue
        own = renamed.get(name, name)
        if own != name and given.get(own) is not None:
            raise ValueError(
                f"storage_options must not contain both {name!r} and {own!r}"
            )
        if own == "client_options":
            named[own] |= value
        else:
            (named["client_options"] if own in _CLIENT_NAMES else named)[own] = value
    for name, value in named["client_options"].items():
        if name.endswith("timeout") and isinstance(value, (int, float)):
            named["client_options"][name] = timedelta(seconds=value)
    return named


def _body(result: Any, n_bytes: int, seconds: float) -> Buffer:
    """Return the body of a response.

    Raises a TransientError if less than `_SLOW_BYTES` come in `seconds`.
    """
    body = memoryview(bytearray(n_bytes))
    n_read = n_before = 0
    begin = time.monotonic()
    for chunk in result.stream(min_chunk_size=1):
        piece = memoryview(chunk)[: n_bytes - n_read]
        body[n_read : n_read + len(piece)] = piece
        n_read += len(piece)
        if time.monotonic() - begin > seconds:
            if n_read - n_before < _SLOW_BYTES and n_read < n_bytes:
                raise TransientError(
                    f"less than {_SLOW_BYTES:,} bytes came in {seconds:g} s"
                )
            n_before, begin = n_read, time.monotonic()
    return body[:n_read]


def _is_valid(key: str) -> bool:
    """Return whether obstore can read a key."""
    is_plain = not any(part in ("", ".", "..") for part in key.split("/"))
    return is_plain and not re.search(r"[\0-\x1f\x7f]", key)


def _obstore_entry(meta: Mapping[str, Any]) -> Entry:
    tag = meta["e_tag"] or ""
    is_weak = tag.startswith("W/")
    if not tag:
        seconds = meta["last_modified"].timestamp()
        tag = f"modified {seconds}" if seconds else ""
        is_weak = time.time() - seconds < _TIME_SECONDS or not tag
    return Entry(meta["path"], meta["size"], opaque(tag), is_weak)
