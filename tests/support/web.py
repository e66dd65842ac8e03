"""A web server on this machine, as well or as badly behaved as a test wants it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has, and how it behaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True  # whether it knows of parts of files
    wrong_part: bool = False  # whether it sends another part than was asked for
    cuts: list[int] = field(default_factory=list)  # how many bytes each next answer brings before the line breaks
    statuses: list[int] = field(default_factory=list)  # what the next requests are answered with instead
    holds: threading.Event | None = None  # once half of a file is sent, the rest waits for this
    asked: list[tuple[str, str]] = field(default_factory=list)  # path and Range of every request
    address: str = ""

    def parts_asked(self) -> list[str]:
        return [wanted for _, wanted in self.asked]


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """The address of a server that runs until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, site)

        def log_message(self, *_: object) -> None:
            """Not on the test's output."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that went away is what some tests are about."""

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
    wanted = handler.headers.get("Range", "")
    site.asked.append((handler.path, wanted))
    content = site.files.get(handler.path.rpartition("/")[2])
    status = site.statuses.pop(0) if site.statuses else 200 if content is not None else 404
    if status != 200 or content is None:
        handler.send_error(status)
        return
    first = int(match[1]) if site.ranges and (match := re.fullmatch(r"bytes=(\d+)-", wanted)) else 0
    if first >= len(content) > 0 and first:
        handler.send_error(416)
        return
    if first:
        told = first + 1 if site.wrong_part else first
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {told}-{len(content) - 1}/{len(content)}")
    else:
        handler.send_response(200)
    rest = content[first:]
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    if site.holds:
        handler.wfile.write(rest[: len(rest) // 2])
        site.holds.wait(60)
        return
    handler.wfile.write(rest[: site.cuts.pop(0)] if site.cuts else rest)
    handler.close_connection = True
