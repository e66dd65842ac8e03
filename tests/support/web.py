"""A web server on this machine that can misbehave in the ways that a test asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The files of the server, how it misbehaves, and the requests that it got."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # bytes of each next response before the connection breaks
    holds: threading.Event | None = None  # the second half of a file waits for this event
    requests: list[str] = field(default_factory=list)  # the path of every request
    address: str = ""


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """Yield the address of a server that runs until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, site)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore clients that close the connection, as some tests do."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site.address
    finally:
        if site.holds:
            site.holds.set()
        server.shutdown()
        server.server_close()
        thread.join()


def answer(handler: BaseHTTPRequestHandler, site: Site) -> None:
    site.requests.append(handler.path)
    body = site.files.get(handler.path.rpartition("/")[2])
    if body is None:
        handler.send_error(404)
        return
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if site.holds:
        handler.wfile.write(body[: len(body) // 2])
        site.holds.wait(60)
        return
    handler.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
    handler.close_connection = True
