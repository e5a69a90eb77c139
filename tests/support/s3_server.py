"""moto's S3 server in this process, and the listings of servers that are not like it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any
from xml.sax.saxutils import escape

BUCKET = "bucket"


class S3:
    """A running server with one bucket."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.options: dict[str, Any] = {
            "endpoint": endpoint,
            "access_key_id": "AKIATESTKEYTESTKEY00",
            "secret_access_key": "hunter2/hunter2/hunter2",
            "region": "us-east-1",
        }

    def environment(self) -> dict[str, str]:
        """Return the variables that another process needs instead of `options`."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret_access_key"],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def url(self, key: str) -> str:
        """Return the URL of a key, prefix or glob."""
        return f"s3://{BUCKET}/{key}"

    def clear(self) -> None:
        """Empty the bucket, and forget uploads."""
        _backend().reset()
        _backend().create_bucket(BUCKET, "us-east-1")

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        _backend().put_object(BUCKET, key, data)

    def get(self, key: str) -> bytes:
        """Return the content of an object."""
        value: bytes = _backend().get_object(BUCKET, key).value
        return value

    def remove(self, key: str) -> None:
        """Remove an object."""
        _backend().delete_object(BUCKET, key)

    def names(self) -> list[str]:
        """Return the names of all objects."""
        return sorted(name for name, _ in _backend().get_bucket(BUCKET).keys.items())

    def n_uploads(self) -> int:
        """Return the number of multipart uploads that were neither completed nor aborted."""
        return len(_backend().get_bucket(BUCKET).multiparts)


def _backend() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends["123456789012"]["aws"]


@contextmanager
def s3_server() -> Iterator[S3]:
    """Run moto's S3 server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        s3 = S3(f"http://{host}:{port}")
        s3.clear()
        yield s3
    finally:
        server.stop()


def listing(
    keys: Iterable[str],
    query: Mapping[str, str],
    *,
    page_keys: int = 1000,
    sizes: Mapping[str, int] = {},
    has_tokens: bool = True,
    has_offsets: bool = True,
) -> bytes:
    """Return a page of a listing of sorted keys, like ``ObjectServer.listing``.

    Without tokens, a page that is not the last one is "truncated" but has no token.
    Without offsets, "start-after" is ignored.
    """
    after = query.get("continuation-token", "")
    if has_offsets and not after:
        after = query.get("start-after", "")
    prefix = query.get("prefix", "")
    rest = (key for key in keys if key.startswith(prefix) and key > after)
    page = list(islice(rest, page_keys))
    is_truncated = next(rest, None) is not None
    truncated = "true" if is_truncated else "false"
    lines = [f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>"]
    if is_truncated and has_tokens:
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        lines.append(token)
    lines += [
        f"<Contents><Key>{escape(key)}</Key><Size>{sizes.get(key, 1)}</Size>"
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        '<ETag>"tag"</ETag></Contents>'
        for key in page
    ]
    return "\n".join([*lines, "</ListBucketResult>"]).encode()
