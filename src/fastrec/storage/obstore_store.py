"""ObstoreStore: S3, Google Cloud Storage, Azure and HTTP, through obstore.

HTTP servers are listed by fsspec, which reads the links of HTML pages.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fastrec.options import extra
from fastrec.storage.fsspec_store import FsspecStore
from fastrec.storage.stores import (
    Entry,
    StorageOptions,
    Store,
    TransientError,
    denied,
    of_status,
    opaque,
)
from fastrec.storage.urls import is_http, without_userinfo

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

__all__ = ["make_store"]

_OBSTORE_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)
# Limits of one request of obstore. A request without a byte for `read_timeout` failed.
_CLIENT_OPTIONS = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10m"}

_PART_BYTES = 8 << 20  # of an upload
_MAX_PARTS = 9_000  # S3 allows 10,000


def make_store(root: str, options: StorageOptions) -> Store:
    """Return the store of `root`, such as ``s3://bucket``, with its credentials."""
    scheme = root.partition("://")[0].lower()
    if scheme in ("file", "local"):
        msg = f"a {scheme}:// URL is of this machine, such as file:///a.tfrecord"
        raise ValueError(msg)
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
        self._scheme = scheme
        if is_http(root):  # obstore ignores the user and password in a URL
            base, authorization = without_userinfo(root)
            headers = {**authorization, **client.get("default_headers", {})}
            root, client["default_headers"] = base, headers
        try:
            once = {"retry_config": {"max_retries": 0}, **named}  # `waited` retries
            self._store = from_url(root, client_options=client, **once)
            self._writing = from_url(root, client_options=client, **named)
        except Exception as error:  # noqa: BLE001 (obstore raises several types)
            reason = self._first_line(error)
        else:
            return
        raise ValueError(reason)

    def _checked(self, store: Any = None) -> Any:  # noqa: ANN401 (obstore may be missing)
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
        return self._store if store is None else store

    def head(self, key: str) -> Entry:
        return _obstore_entry(self._checked().head(key))

    def get(self, key: str, begin: int, end: int) -> tuple[Buffer, int, str]:
        result = self._checked().get(key, options={"range": (begin, end)})
        entry = _obstore_entry(result.meta)
        return result.bytes(), entry.size, entry.tag

    def list(
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

    def put(
        self, key: str, file: Path, *, overwrite: bool, check: Callable[[], None]
    ) -> None:
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
        self._checked(self._writing).delete(key)

    def _translated(self, error: Exception, url: str) -> Exception:
        from obstore import exceptions as kinds

        text = str(error)
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "No such object", url)
        if isinstance(error, (kinds.UnauthenticatedError, kinds.PermissionDeniedError)):
            return denied(url)
        if isinstance(error, kinds.AlreadyExistsError):
            return FileExistsError(errno.EEXIST, "The object exists", url)
        if isinstance(error, RuntimeError):
            return error
        status = re.search(r"status(?: code)?: (\d{3})", text)
        if status is not None:
            return of_status(int(status[1]), url)
        if (
            "169.254.169.254" in text
            or "metadata.google" in text
            or "Credential" in text
        ):
            return denied(url, "no credentials were found")
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


def _obstore_entry(meta: Mapping[str, Any]) -> Entry:
    tag = meta["e_tag"]
    if not tag:
        seconds = meta["last_modified"].timestamp()
        tag = f"modified {seconds}" if seconds else ""
    return Entry(meta["path"], meta["size"], opaque(tag))
