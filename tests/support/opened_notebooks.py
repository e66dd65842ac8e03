"""``trainscale notebook … --open`` in the background, and requests to the Jupyter that it started."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from processes import until

Popen = Callable[..., subprocess.Popen[Any]]
_SERVER = """#!{python}
from jupyter_server.serverapp import main

main()
"""


def write_jupyter(folder: Path) -> str:
    """Write a program that Jupyter's users have, on the server that is behind all of them. JupyterLab takes 100 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "jupyter-notebook"
    program.write_text(_SERVER.format(python=sys.executable))
    program.chmod(0o755)
    return str(folder / "jupyter")


class OpenedNotebook:
    """``popen`` starts programs on the machine of the person. Use it in a with block."""

    def __init__(self, popen: Popen, folder: Path, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self._popen, self._environment = popen, environment
        self._path = folder / "output.txt"
        with self._path.open("wb") as out:
            self.process = popen(
                [sys.executable, "-m", "trainscale", "notebook", *arguments, "--open", "--no-browser"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> OpenedNotebook:
        until(lambda: "Ctrl-C ends" in self.output or self.process.poll() is not None, "Jupyter starts", 120)
        assert "Ctrl-C ends Jupyter" in self.output, self.output
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def output(self) -> str:
        return self._path.read_text()

    @property
    def redirect(self) -> Path:
        (path,) = re.findall(r"open (\S+/open\.html) in a browser", self.output)
        return Path(path)

    @property
    def token(self) -> str:
        return re.findall(r"token=([0-9a-f]+)", self.redirect.read_text())[0]

    @property
    def root(self) -> str:
        (root,) = re.findall(r"address: (http://127\.0\.0\.1:\d+/)", self.output)
        return str(root)

    def request(self, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
        """Return the status and the text of an answer. The token is in a header that curl reads from its input."""
        argv = ["curl", "-sS", "-X", method, "-w", "\n%{http_code}", "-H", "@-", self.root + path]
        curl = self._popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment)
        text, _ = curl.communicate(f"Authorization: token {token}\n".encode() if token else b"X-Nothing: 1\n", 60)
        body, _, status = text.decode().rpartition("\n")
        return int(status), body

    def start_kernel(self) -> str:
        status, body = self.request("api/kernels", self.token, "POST")
        assert status == 201, body
        return str(json.loads(body)["id"])

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def readable_places(token: str) -> list[str]:
    """Return the processes whose command line or environment has the token."""
    places = []
    for entry in Path("/proc").iterdir():
        for name in ("cmdline", "environ"):
            try:
                if entry.name.isdigit() and token.encode() in (entry / name).read_bytes():
                    places.append(f"{entry / name}")
            except OSError:
                continue
    return places
