"""Web servers on this machine for tests: one with files, which can misbehave in the ways that a test asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol


class WebSite(Protocol):
    address: str

    def handle(self, handler: BaseHTTPRequestHandler) -> None: ...


@contextmanager
def serving(site: WebSite) -> Iterator[str]:
    """Serve until the block ends. Yield the address of the site, which is told to the site, too."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.handle(self)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore clients that close the connection, as some tests do."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield site.address
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Site:
    """The files of the server, how it misbehaves, and the requests that it got."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # bytes of each next response before the connection breaks
    holds: threading.Event | None = None  # the second half of a file waits for this event
    requests: list[str] = field(default_factory=list)  # the path of every request
    address: str = ""

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(handler.path)
        body = self.files.get(handler.path.rpartition("/")[2])
        if body is None:
            handler.send_error(404)
            return
        if self.holds:
            reply(handler, body, len(body) // 2)
            self.holds.wait(60)
        else:
            reply(handler, body, self.cuts.pop(0) if self.cuts else len(body))
            handler.close_connection = True


def reply(handler: BaseHTTPRequestHandler, body: bytes, sent: int | None = None, status: int = 200) -> None:
    """Send a response, of whose body only so many bytes are sent."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:sent])
