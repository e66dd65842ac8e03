"""EC2's metadata service and CloudFormation's ear, for nodes that boot in a lab. Arguments: address, file.

It tells every node its own address, and writes what nodes report into the file, a line each.
"""

from __future__ import annotations

import http.server
import json
import sys
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/latest/api/token":
            self.answer("token")
            return
        # A signed address of S3's: it takes no content type, not even curl's usual one.
        assert self.headers["Content-Type"] is None
        with Path(sys.argv[2]).open("a") as file:
            file.write(json.dumps(json.loads(body)) + "\n")
        self.answer("")

    def do_GET(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token"] == "token"
        assert self.path == "/latest/meta-data/local-ipv4"
        self.answer(self.client_address[0])

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer((sys.argv[1], 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
