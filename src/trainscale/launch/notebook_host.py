"""Runs Jupyter until standard input closes. The controller sends this file as text to any Python from 3.9.

Jupyter's token is in files of a folder that only its user can enter. Jupyter's kernels end with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

MARK = "@trainscale-notebook "
# The programs, the best first, and where their pages of a file are.
_PROGRAMS = (("jupyter-lab", "lab/tree/"), ("jupyter-notebook", "notebooks/"))
_START_SECONDS, _END_SECONDS, _POLL_SECONDS = 120.0, 10.0, 0.1
_LOG_LINES = 12


@dataclass(frozen=True)
class NotebookRequest:
    """What notebooks.py sends."""

    notebook: str
    text: str | None = None  # to write if there is no notebook; None: there must be one
    jupyter: str = ""  # empty to search
    token: str = ""
    folder: str = ""  # for the socket, the token and the log; made here, with mode 0700
    port: int = 0  # of 127.0.0.1; 0 to listen on a socket in the folder


class NotebookHostError(Exception):
    """Jupyter cannot run here; the message is for the person."""


def serve_notebook() -> None:
    """Read a request, start Jupyter, answer with a line, and wait for the end."""
    request = NotebookRequest(**json.loads(sys.stdin.buffer.readline()))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    folder = Path(request.folder)
    folder.mkdir(mode=0o700)  # an existing one could be another user's
    server: subprocess.Popen[bytes] | None = None
    try:
        path = Path(request.notebook).expanduser().absolute()
        if not path.exists():
            if request.text is None:
                raise NotebookHostError(f"{path}: there is no such file here; both machines must see it")
            path.write_text(request.text, encoding="utf-8")
        # A Jupyter with pages for people, beside the named one or this Python.
        jupyter = request.jupyter
        beside, user_folder = Path(sys.executable).parent, Path("~/.local/bin").expanduser()
        own = [str(beside), *os.get_exec_path(), str(user_folder)]
        folders = [str(Path(jupyter).expanduser().parent)] if jupyter else own
        found = [(shutil.which(name, path=os.pathsep.join(folders)), page) for name, page in _PROGRAMS]
        program, page = next((pair for pair in found if pair[0]), (None, ""))
        if program is None:
            place = f"in {folders[0]}" if jupyter else f"beside {sys.executable}, and none on the PATH"
            raise NotebookHostError(
                f"there is no jupyter-lab or jupyter-notebook {place}; pip install jupyterlab (or notebook) into an"
                " environment that has trainscale, or name one by --jupyter /path/to/bin/jupyter"
            )
        # A configuration of its own: a user's could open ports, or set another password.
        address: dict[str, object] = {"ip": "127.0.0.1", "port": request.port, "port_retries": 0}
        if not request.port:
            address = {"sock": str(folder / "socket"), "sock_mode": "0600"}
        options = {"open_browser": False, "root_dir": str(path.parent), "allow_root": os.geteuid() == 0}
        settings = {"ServerApp": {**address, **options}, "IdentityProvider": {"token": request.token}}
        config, log = folder / "config.json", folder / "log"
        config.write_text(json.dumps(settings), encoding="utf-8")
        # Jupyter writes the token to its runtime folder too.
        environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
        environment.pop("JUPYTER_TOKEN", None)
        with log.open("wb") as output:
            server = subprocess.Popen(
                [program, f"--config={config}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        while not can_connect(request.port, str(folder / "socket")):
            if server.poll() is not None or time.monotonic() > end:
                text = log.read_text(encoding="utf-8", errors="replace").replace(request.token, "TOKEN")
                lines = ["Jupyter did not start:", *text.splitlines()[-_LOG_LINES:]]
                raise NotebookHostError("\n  ".join(lines))
            time.sleep(_POLL_SECONDS)
        node = os.environ.get("SLURMD_NODENAME", "")
        answer = {"page": page + quote(path.name), "notebook": str(path), "node": node}
        print(MARK + json.dumps(answer), flush=True)
        threading.Thread(target=_end, args=(server, True), daemon=True).start()
        server.wait()
    except NotebookHostError as error:
        print(MARK + json.dumps({"error": str(error)}), flush=True)
    finally:
        if server:
            _end(server)
        shutil.rmtree(folder, ignore_errors=True)


def can_connect(port: int, path: str = "") -> bool:
    family, address = (socket.AF_INET, ("127.0.0.1", port)) if port else (socket.AF_UNIX, path)
    with socket.socket(family) as connection:
        return connection.connect_ex(address) == 0


def _end(server: subprocess.Popen[bytes], waits_for_input: bool = False) -> None:
    """End Jupyter, which ends its kernels. A kernel whose Jupyter was killed ends by itself."""
    if waits_for_input:
        sys.stdin.buffer.read()
    server.terminate()
    try:
        server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    serve_notebook()
