"""Google Cloud Storage, Azure and the Hugging Face Hub, as far as obstore asks them.

Each is an `ObjectServer` with the objects of one bucket, container or repository. Pages
of listings have few keys. A multipart upload appears when it is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from object_server import ObjectServer, Response, served

PAGE_KEYS = 3


class Bucket:
    """The objects of a server below `root`, with the requests that ObjectServer lacks."""

    root = "bucket/"

    def __init__(self, server: ObjectServer) -> None:
        self.server = server
        self._uploads: dict[str, dict[str, bytes]] = {}
        self._numbers = count()
        self.n_listings = 0
        server.respond, server.has_times = self._respond, True

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self.server.objects[self.root + key] = data

    def objects(self) -> dict[str, bytes]:
        """Return all objects, by key."""
        return {k.removeprefix(self.root): v for k, v in self.server.objects.items()}

    def n_uploads(self) -> int:
        """Return the number of multipart uploads that were neither completed nor aborted."""
        return len(self._uploads)

    def _respond(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Response | None:
        parts = urlsplit(path)
        key = unquote(parts.path).lstrip("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in headers.items()}
        return self.respond(method, key, query, headers, body)

    def respond(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Response | None:
        """Return the response to a request, or None for the bytes of an object."""
        raise NotImplementedError

    def _stored(self, key: str, data: bytes, *, creates: bool = False) -> Response:
        if creates and key in self.server.objects:
            return 412, {}, b""
        self.server.objects[key] = data
        return 201, {"ETag": self.server.etag(data)}, b""

    def _page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """Return the keys of a page, and whether another page follows."""
        self.n_listings += 1
        keys = sorted(k for k in self.objects() if k.startswith(prefix) and k > after)
        return keys[:PAGE_KEYS], len(keys) > PAGE_KEYS


class GoogleBucket(Bucket):
    """A bucket of Google Cloud Storage, with its XML API."""

    @property
    def options(self) -> dict[str, Any]:
        return {"base_url": self.server.url, "bearer_token": "hunter2"}

    def url(self, key: str) -> str:
        return f"gs://bucket/{key}"

    def respond(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Response | None:
        upload = query.get("uploadId", "")
        if "list-type" in query:
            return 200, {}, self._listing(query)
        if method == "PUT" and upload:
            self._uploads[upload][query["partNumber"].zfill(5)] = body
            return 200, {"ETag": self.server.etag(body)}, b""
        if method == "PUT":
            if source := headers.get("x-goog-copy-source"):
                body = self.server.objects[unquote(source)]
            creates = headers.get("x-goog-if-generation-match") == "0"
            return self._stored(key, body, creates=creates)
        if method == "POST" and upload:
            parts = self._uploads.pop(upload)
            self._stored(key, b"".join(data for _, data in sorted(parts.items())))
            etag = self.server.etag(self.server.objects[key])
            tag = f"<ETag>{escape(etag)}</ETag>"
            return (
                200,
                {},
                (
                    f"<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>"
                ).encode(),
            )
        if method == "POST":
            upload = str(next(self._numbers))
            self._uploads[upload] = {}
            found = f"<UploadId>{upload}</UploadId>"
            return (
                200,
                {},
                (
                    "<InitiateMultipartUploadResult>"
                    f"{found}</InitiateMultipartUploadResult>"
                ).encode(),
            )
        if method == "DELETE":
            self._uploads.pop(upload, None)
            if not upload:
                del self.server.objects[key]
            return 204, {}, b""
        return None

    def _listing(self, query: Mapping[str, str]) -> bytes:
        after = query.get("continuation-token") or query.get("start-after", "")
        page, is_cut = self._page(query.get("prefix", ""), after)
        lines = [f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>"]
        if is_cut:
            token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            lines.append(token)
        for key in page:
            data = self.server.objects[self.root + key]
            lines.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                "<Generation>1700000000000000</Generation>"
                "<LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(self.server.etag(data))}</ETag></Contents>"
            )
        return f"<ListBucketResult>{''.join(lines)}</ListBucketResult>".encode()


class AzureContainer(Bucket):
    """A container of Azure Blob Storage."""

    root = "account/container/"

    @property
    def options(self) -> dict[str, Any]:
        endpoint = f"{self.server.url}/account"
        return {
            "account_name": "account",
            "endpoint": endpoint,
            "skip_signature": True,
        }

    def url(self, key: str) -> str:
        return f"az://container/{key}"

    def respond(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Response | None:
        if query.get("comp") == "list":
            return 200, {}, self._listing(query)
        if method == "PUT" and query.get("comp") == "block":
            self._uploads.setdefault(key, {})[query["blockid"]] = body
            return 201, {}, b""
        if method == "PUT":
            if query.get("comp") == "blocklist":
                blocks = self._uploads.pop(key)
                names = re.findall(r"<(?:Uncommitted|Latest)>([^<]*)<", body.decode())
                body = b"".join(blocks[name] for name in names)
            if source := headers.get("x-ms-copy-source"):
                name = unquote(urlsplit(source).path).lstrip("/")
                status, found, _ = self._stored(key, self.server.objects[name])
                return status + 1, {**found, "x-ms-copy-status": "success"}, b""
            return self._stored(key, body, creates=headers.get("if-none-match") == "*")
        if method == "DELETE":
            del self.server.objects[key]
            return 202, {}, b""
        return None

    def _listing(self, query: Mapping[str, str]) -> bytes:
        page, is_cut = self._page(query.get("prefix", ""), query.get("marker", ""))
        blobs = []
        for key in page:
            data = self.server.objects[self.root + key]
            blobs.append(
                f"<Blob><Name>{escape(key)}</Name><Properties>"
                "<Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified>"
                f"<Content-Length>{len(data)}</Content-Length>"
                "<Content-Type>application/octet-stream</Content-Type>"
                f"<Etag>{escape(self.server.etag(data))}</Etag>"
                "</Properties></Blob>"
            )
        marker = escape(page[-1]) if is_cut else ""
        return (
            f"<EnumerationResults><Blobs>{''.join(blobs)}</Blobs>"
            f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
        ).encode()


class HubRepository(Bucket):
    """A dataset of the Hugging Face Hub, which redirects reads to another host."""

    root = "cdn/"
    token = "hf_hunter2"

    def __init__(self, server: ObjectServer) -> None:
        super().__init__(server)
        self.is_open = True  # whether reading needs no token
        self.authorized: list[tuple[str, bool]] = []  # paths, and whether with a token

    @property
    def options(self) -> dict[str, Any]:
        return {"endpoint": self.server.url, "token": self.token}

    def url(self, key: str) -> str:
        return f"hf://datasets/user/name/{key}"

    def respond(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Response | None:
        del method, body  # reads only
        has_token = headers.get("authorization") == f"Bearer {self.token}"
        self.authorized.append((key, has_token))
        if key.startswith("cdn/"):
            return None
        if not (has_token or self.is_open):
            return 401, {}, b""
        if key.startswith("datasets/user/name/resolve/main/"):
            name = key.partition("/resolve/main/")[2]
            if name not in self.objects():
                return 404, {"X-Error-Code": "EntryNotFound"}, b""
            port = self.server.server_port
            return 302, {"Location": f"http://localhost:{port}/cdn/{name}"}, b""
        if "/tree/" in key:
            return self._tree(key.partition("/tree/main")[2].lstrip("/"), query)
        about = {"id": "user/name", "sha": "0" * 40, "siblings": []}
        return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()

    def _tree(self, directory: str, query: Mapping[str, str]) -> Response:
        prefix = f"{directory}/" if directory else ""
        below = {k.removeprefix(prefix) for k in self.objects() if k.startswith(prefix)}
        names = sorted({name.partition("/")[0] for name in below})
        if not names:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        self.n_listings += 1
        begin = int(query.get("cursor", "0"))
        page = [
            {
                "type": "file" if name in below else "directory",
                "path": prefix + name,
                "oid": "0" * 40,
                "size": len(self.objects().get(prefix + name, b"")),
            }
            for name in names[begin : begin + PAGE_KEYS]
        ]
        headers = {"Content-Type": "application/json"}
        if (end := begin + PAGE_KEYS) < len(names):
            path = f"api/datasets/user/name/tree/main/{directory}".rstrip("/")
            url = f"{self.server.url}/{path}?recursive=false&cursor={end}"
            headers["Link"] = f'<{url}>; rel="next"'
        return 200, headers, json.dumps(page).encode()


SERVERS = {"gs": GoogleBucket, "az": AzureContainer, "hf": HubRepository}


@contextmanager
def store_server(scheme: str) -> Iterator[Any]:
    """Run the server of a scheme, with an empty bucket."""
    with served() as server:
        yield SERVERS[scheme](server)
