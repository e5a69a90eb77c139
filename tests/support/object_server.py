"""An HTTP server of objects in memory, with ranges, faults, latency and a rate limit.

Directories are HTML pages of links, which fsspec lists. A *fault* is one of `FAULTS`; the
server injects the one that `inject` returns for a request of an object.
"""

from __future__ import annotations

import hashlib
import html
import http.server
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

# Faults that a reader retries. "cut", "few" and "reset" concern the body and connection.
TRANSIENT = ("500", "503", "429", "reset", "cut", "few", "shifted", "stall")
# Faults that end in an error: a flipped bit, and another version.
FAULTS = (*TRANSIENT, "altered", "changed")

# The status, headers and body of a response.
Response: TypeAlias = tuple[int, Mapping[str, str], bytes]

_OF_BODIES = ("cut", "few", "shifted", "altered")


@dataclass(frozen=True)
class Request:
    """A request for an object: bytes ``[begin, end)``, or None for all."""

    method: str
    key: str
    span: tuple[int, int] | None


class ObjectServer(http.server.ThreadingHTTPServer):
    """Serves `objects`, by key, at `url`.

    Attributes
    ----------
    objects : dict of str to bytes
        May be changed while the server runs. The query of a URL is ignored unless it is
        part of a key.
    latency : float
        Seconds between a request and its response.
    bandwidth : float or None
        Bytes per second of each connection, sent in pieces of `paced_bytes`.
    stall_seconds : float
        How long the fault "stall" delays a response.
    has_etags, has_ranges, has_times : bool
        Whether responses have an ETag or a modification time, and ranges are supported.
    has_weak_etags : bool
        Whether the ETags are weak.
    time : str
        The modification time.
    head_length : int or None
        The length in responses to HEAD, if it is not that of the object.
    headers : dict of str to str
        Headers of all responses.
    listing : callable or None
        ``listing(query)`` returns the response to the listing of an S3 bucket.
    respond : callable or None
        ``respond(method, path, headers, body)`` returns a response, or None for that of
        an object. Without it, the server is read-only.
    requests : list of Request
        The requests so far, without those of directories.
    injected : Counter
        How often each fault was injected.
    wave_seconds : float
        Requests are answered together, in waves: a wave ends when no request has
        arrived for this time. Without it, requests are answered at once.
    waves : list of list of str
        The paths in each wave. A client that waits for one response before it sends the
        next request needs a wave for each of them.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        objects: Mapping[str, bytes] = {},
        *,
        inject: Callable[[Request], str | None] = lambda _request: None,
        latency: float = 0,
        bandwidth: float | None = None,
        stall_seconds: float = 30,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = dict(objects)
        self.inject = inject
        self.latency, self.bandwidth = latency, bandwidth
        self.paced_bytes = 16 << 10
        self.stall_seconds = stall_seconds
        self.has_etags = self.has_ranges = True
        self.has_times = self.has_weak_etags = False
        self.time = "Mon, 01 Jan 2024 00:00:00 GMT"
        self.head_length: int | None = None
        self.headers: dict[str, str] = {}
        self.listing: Callable[[Mapping[str, str]], bytes] | None = None
        self.status: Callable[[str, Mapping[str, str]], int | None] | None = None
        self.respond: Callable[..., Response | None] | None = None
        self.requests: list[Request] = []
        self.injected: Counter[str] = Counter()
        self.wave_seconds = 0.0
        self.waves: list[list[str]] = [[]]
        self._wave_changed = threading.Condition()
        self.is_ending = threading.Event()
        self._etags: dict[int, tuple[bytes, str]] = {}

    @property
    def url(self) -> str:
        """The root, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def etag(self, data: bytes) -> str:
        """Return the ETag of an object."""
        known = self._etags.get(id(data))
        if known is None or known[0] is not data:
            known = data, f'"{hashlib.md5(data).hexdigest()}"'
            self._etags[id(data)] = known
        return known[1]

    def join_wave(self, path: str) -> None:
        """Wait for the end of the wave to which a request belongs."""
        with self._wave_changed:
            wave = self.waves[-1]
            wave.append(path)
            n_requests = 0
            while self.waves[-1] is wave and n_requests < len(wave):
                n_requests = len(wave)
                self._wave_changed.wait(self.wave_seconds)
            if self.waves[-1] is wave:
                self.waves.append([])
                self._wave_changed.notify_all()

    def handle_error(self, *_: object) -> None:
        """Ignore clients that close the connection."""


@contextmanager
def served(objects: Mapping[str, bytes] = {}, **options: Any) -> Iterator[ObjectServer]:
    """Run a server in threads of this process."""
    server = ObjectServer(objects, **options)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.is_ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def random_faults(
    seed: int, rate: float, faults: tuple[str, ...] = TRANSIENT, *, in_a_row: int = 3
) -> Callable[[Request], str | None]:
    """Return an `inject` that is random, but spares every `in_a_row` + 1st try."""
    rng = random.Random(seed)
    tries: Counter[Request] = Counter()
    lock = threading.Lock()

    def inject(request: Request) -> str | None:
        with lock:
            if rng.random() >= rate or tries[request] >= in_a_row:
                tries[request] = 0
                return None
            tries[request] += 1
            return rng.choice(faults)

    return inject


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ObjectServer
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self, *, has_body: bool) -> None:
        server = self.server
        key = unquote(self.path.partition("?")[0]).lstrip("/")
        if self.path.lstrip("/") in server.objects:  # a key with a query
            key = self.path.lstrip("/")
        if server.latency:
            time.sleep(server.latency)
        if server.wave_seconds:
            server.join_wave(f"{self.path} {self.headers.get('Range', '')}".rstrip())
        if server.status is not None:
            status = server.status(self.path, dict(self.headers.items()))
            if status is not None:
                self._send(status)
                return
        if server.respond is not None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = dict(self.headers.items())
            response = server.respond(self.command, self.path, given, body)
            if response is not None:
                status, headers, body = response
                self._send(status, body, headers)
                return
        query = dict(parse_qsl(self.path.partition("?")[2]))
        if server.listing is not None and "list-type" in query:
            self._send(200, server.listing(query))
            return
        data = server.objects.get(key)
        if data is None:
            page = None if server.listing else self._page(key)
            self._send(404 if page is None else 200, page or b"", has_body=has_body)
            return
        span = None
        if server.has_ranges and (
            found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        ):
            last = min(len(data), int(found[2]) + 1 if found[2] else len(data))
            span = int(found[1]), last
        request = Request(self.command, key, span)
        server.requests.append(request)
        fault = server.inject(request)
        if self.command == "HEAD" and fault in _OF_BODIES:
            fault = None
        if fault is not None:
            server.injected[fault] += 1
        if fault == "whole":  # as a proxy sends it
            span = None
        if span is not None and span[0] >= span[1]:
            self._send(416)
        elif not self._broke(fault):
            self._send_object(data, span, fault, has_body=has_body)

    def _broke(self, fault: str | None) -> bool:
        """Inject a fault that replaces the response, and return whether it did."""
        if fault in ("500", "503", "429"):
            headers = {} if fault == "500" else {"Retry-After": "1"}
            self._send(int(fault), b"secret=hunter2", headers)
            return True
        if fault == "reset":
            self._reset()
            return True
        if fault == "stall":
            self.server.is_ending.wait(self.server.stall_seconds)
            self._reset()
            return True
        return False

    def _send_object(
        self,
        data: bytes,
        span: tuple[int, int] | None,
        fault: str | None,
        *,
        has_body: bool,
    ) -> None:
        server = self.server
        headers = {"Accept-Ranges": "bytes" if server.has_ranges else "none"}
        if server.has_etags:
            etag = '"changed"' if fault == "changed" else server.etag(data)
            headers["ETag"] = f"W/{etag}" if server.has_weak_etags else etag
        if server.has_times:
            headers["Last-Modified"] = server.time
        begin, end = span or (0, len(data))
        if fault == "few":
            end = max(begin + 1, (begin + end) // 2)  # no header describes 0 bytes
        body = memoryview(data)[begin:end]
        if fault == "altered" and body:
            body = memoryview(bytearray(body))
            body[len(body) // 2] ^= 0x10
        if span is not None:
            shift = 1 if fault == "shifted" and begin else 0
            headers["Content-Range"] = (
                f"bytes {begin - shift}-{end - shift - 1}/{len(data)}"
            )
        n_sent = len(body) // 2 if fault == "cut" else len(body)
        self._send(
            200 if span is None else 206,
            body,
            headers,
            n_sent=n_sent,
            has_body=has_body,
        )
        if fault == "cut":
            self._reset()

    def _send(
        self,
        status: int,
        body: bytes | memoryview = b"",
        headers: Mapping[str, str] = {},
        *,
        n_sent: int | None = None,
        has_body: bool = True,
    ) -> None:
        lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
        headers = {**headers, **self.server.headers}
        lines += [f"{name}: {value}" for name, value in headers.items()]
        length = len(body)
        if self.command == "HEAD" and self.server.head_length is not None:
            length = self.server.head_length
        lines += [f"Content-Length: {length}", "", ""]
        head = "\r\n".join(lines).encode()
        self.connection.sendall(head)
        if not has_body or self.command == "HEAD":
            return
        rest = memoryview(body)[:n_sent]
        rate = self.server.bandwidth
        begin, n_done = time.monotonic(), 0
        while rest and rate:
            piece = rest[: self.server.paced_bytes]
            self.connection.sendall(piece)
            n_done += len(piece)
            rest = rest[len(piece) :]
            time.sleep(max(0, begin + n_done / rate - time.monotonic()))
        if rest:
            self.connection.sendall(rest)

    def _reset(self) -> None:
        """Close the connection with a reset instead of an orderly end."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def _page(self, prefix: str) -> bytes | None:
        """Return the page of a directory, or None if it is empty."""
        prefix = prefix.rstrip("/") + "/" if prefix else ""
        names = {
            re.match("[^/]*/?", key[len(prefix) :])[0]  # type: ignore[index]
            for key in list(self.server.objects)
            if key.startswith(prefix)
        }
        if not names:
            return None
        links = (
            f'<a href="/{quote(prefix + name)}">{html.escape(name)}</a>'
            for name in sorted(names)
        )
        return "\n".join(links).encode()
