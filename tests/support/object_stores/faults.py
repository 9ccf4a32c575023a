"""A proxy before a store, which breaks requests and answers.

Each rule breaks a number of requests of one kind, as real stores fail: the store is busy, the line
is cut, or the answer to an executed request is lost. A request may also be held until the proxy
ends, so that a run is still there for a test.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from object_stores.s3_server import S3Server

Kind = Literal["part", "complete", "begin", "put", "copy", "get", "list", "delete"]
Action = Literal[
    "busy",
    "throttled",
    "broken",
    "cut",
    "lost",
    "slow",
    "held",
    "unanswered",
    "other etag",
    "unconditional",
    "no upload",
    "conflict",
    "unknown",
]
_SLOW_SECONDS = 1.5
_REFUSALS = {
    "no upload": (404, "NoSuchUpload"),
    "conflict": (409, "ConditionalRequestConflict"),
    "unknown": (501, "NotImplemented"),
}


@dataclass
class Rule:
    """Breaks requests of one kind."""

    kind: Kind
    action: Action
    times: int = 1
    key: str = ""
    """A pattern for the path."""
    skipped: int = 0
    """That many requests pass first."""
    done: int = field(default=0, init=False)


class Faults:
    """Orders of faults, and the faults that happened."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        """Begin with these rules."""
        self.rules = rules
        self.over = threading.Event()
        """Ends the wait of requests that are held."""
        self._lock = threading.Lock()

    def action(self, kind: Kind | None, path: str) -> Action | None:
        """Return what to do to a request; None is to let it pass."""
        with self._lock:
            for rule in self.rules:
                if rule.kind != kind or not re.search(rule.key, path):
                    continue
                if rule.skipped:
                    rule.skipped -= 1
                elif rule.done < rule.times:
                    rule.done += 1
                    return rule.action
        return None

    def all_done(self) -> bool:
        """Report whether each rule has broken all that it was to break."""
        return all(rule.done == rule.times for rule in self.rules)


@contextmanager
def faulty(server: S3Server, *rules: Rule) -> Iterator[tuple[S3Server, Faults]]:
    """Put a proxy before a server."""
    faults = Faults(rules)
    host, _, port = server.endpoint.removeprefix("http://").partition(":")

    class Handler(_Handler):
        upstream = (host, int(port))
        wanted = faults

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield replace(server, endpoint=f"http://127.0.0.1:{proxy.server_address[1]}"), faults
    finally:
        faults.over.set()
        proxy.shutdown()
        proxy.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: tuple[str, int]
    wanted: Faults

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        action = self.wanted.action(_kind(self), self.path)
        if action == "busy":
            return self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if action == "throttled":
            return self._answer(
                429, {"Retry-After": "1"}, b"<Error><Code>TooManyRequests</Code></Error>"
            )
        if action == "broken":
            return self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
        if action in _REFUSALS:
            status, code = _REFUSALS[action]
            return self._answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())
        if action == "held":
            self.wanted.over.wait()
        if action in ("cut", "held"):
            return self._cut()
        if action == "slow":
            time.sleep(_SLOW_SECONDS)
        if action == "unconditional":
            del self.headers["If-None-Match"]
        status, headers, answer = self._ask(body)
        if action == "unanswered":
            self.wanted.over.wait()
        if action in ("lost", "unanswered"):
            return self._cut()
        if action == "other etag":
            headers = {name: v for name, v in headers.items() if name.lower() != "etag"}
            headers["ETag"] = f'"{"0" * 32}"'
        return self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        length = headers.get("Content-Length") or headers.get("content-length") or str(len(body))
        skipped = {"connection", "transfer-encoding", "content-length", "date", "server"}
        for name, value in headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _kind(request: BaseHTTPRequestHandler) -> Kind | None:
    """Return what a request does, as far as the rules tell requests apart."""
    query = request.path.partition("?")[2]
    if request.command == "PUT":
        if "partNumber=" in query:
            return "part"
        return "copy" if "x-amz-copy-source" in request.headers else "put"
    if request.command == "POST":
        if "uploadId=" in query:
            return "complete"
        return "begin" if "uploads" in query else "delete"
    if request.command == "GET":
        return "list" if "list-type" in query else "get"
    return "delete" if request.command == "DELETE" else None
