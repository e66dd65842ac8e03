"""A web server on this machine that can misbehave in the ways that a test asks for."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The files of the server, how it misbehaves, and the requests that it got."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True  # whether it supports requests for a part of a file
    wrong_part: bool = False  # whether it sends another part than the request names
    cuts: list[int] = field(default_factory=list)  # bytes of each next response before the connection breaks
    statuses: list[int] = field(default_factory=list)  # statuses of the next responses
    holds: threading.Event | None = None  # the second half of a file waits for this event
    requests: list[tuple[str, str]] = field(default_factory=list)  # path and Range of every request
    address: str = ""

    def requested_ranges(self) -> list[str]:
        return [requested for _, requested in self.requests]


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
    requested = handler.headers.get("Range", "")
    site.requests.append((handler.path, requested))
    content = site.files.get(handler.path.rpartition("/")[2])
    status = site.statuses.pop(0) if site.statuses else 200 if content is not None else 404
    if status != 200 or content is None:
        handler.send_error(status)
        return
    first = int(match[1]) if site.ranges and (match := re.fullmatch(r"bytes=(\d+)-", requested)) else 0
    if first >= len(content) > 0 and first:
        handler.send_error(416)
        return
    if first:
        start = first + 1 if site.wrong_part else first
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    else:
        handler.send_response(200)
    body = content[first:]
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if site.holds:
        handler.wfile.write(body[: len(body) // 2])
        site.holds.wait(60)
        return
    handler.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
    handler.close_connection = True
