"""Runs Jupyter until standard input closes. The controller sends this file as text to the host, on any Python from 3.9.

Jupyter's token is in files of a folder that only its user can enter. When standard input closes, because the controller
is done or dead or the connection is lost, Jupyter and its kernels end.
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
    text: str | None = None  # of the notebook, to write where there is none; None: it must be there
    jupyter: str = ""  # empty to search
    token: str = ""
    folder: str = ""  # for the socket, the token and the log; made here, with mode 0700
    port: int = 0  # of 127.0.0.1; 0 to listen on a socket in the folder


class NotebookHostError(Exception):
    """Jupyter cannot run here; the message is for the person."""


def serve_notebook() -> None:
    """Read a request, start Jupyter, answer with a line, and wait until Jupyter or standard input ends."""
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
        # A Jupyter with pages for people, beside the one that is named, or else beside this Python.
        jupyter = request.jupyter
        own = [str(Path(sys.executable).parent), *os.get_exec_path(), str(Path("~/.local/bin").expanduser())]
        folders = [str(Path(jupyter).expanduser().parent)] if jupyter else own
        found = [(shutil.which(name, path=os.pathsep.join(folders)), page) for name, page in _PROGRAMS]
        program, page = next((pair for pair in found if pair[0]), (None, ""))
        if program is None:
            place = f"in {folders[0]}" if jupyter else f"beside {sys.executable}, and none on the PATH"
            raise NotebookHostError(
                f"there is no jupyter-lab or jupyter-notebook {place}; pip install jupyterlab (or notebook) into an"
                " environment that has trainscale, or name one by --jupyter /path/to/bin/jupyter"
            )
        server = _start(program, path, folder, request)
        _wait_until_ready(server, folder, request)
        node = os.environ.get("SLURMD_NODENAME", "")
        answer = {"page": page + quote(path.name), "notebook": str(path), "node": node}
        print(MARK + json.dumps(answer), flush=True)
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
        server.wait()
    except NotebookHostError as error:
        print(MARK + json.dumps({"error": str(error)}), flush=True)
    finally:
        if server:
            _end(server)
        shutil.rmtree(folder, ignore_errors=True)


def _start(program: str, path: Path, folder: Path, request: NotebookRequest) -> subprocess.Popen[bytes]:
    """Start Jupyter with a configuration of its own: a user's could open ports, or set another password."""
    place = {"ip": "127.0.0.1", "port": request.port, "port_retries": 0}
    if not request.port:
        place = {"sock": str(folder / "socket"), "sock_mode": "0600"}
    settings = {
        "ServerApp": {
            **place,
            "open_browser": False,
            "root_dir": str(path.parent),
            "allow_root": os.geteuid() == 0,
        },
        "IdentityProvider": {"token": request.token},
    }
    config, log = folder / "config.json", folder / "log"
    for file in (config, log):
        file.touch(0o600)
    config.write_text(json.dumps(settings), encoding="utf-8")
    # Jupyter writes the token to its runtime folder too.
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    environment.pop("JUPYTER_TOKEN", None)
    with log.open("wb") as output:
        return subprocess.Popen(
            [program, f"--config={config}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path, request: NotebookRequest) -> None:
    end = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            if request.port:
                socket.create_connection(("127.0.0.1", request.port)).close()
            else:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(folder / "socket"))
            return
        except OSError:
            time.sleep(_POLL_SECONDS)
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    lines = text.replace(request.token, "TOKEN").splitlines()[-_LOG_LINES:]
    raise NotebookHostError("Jupyter did not start:" + "".join("\n  " + line for line in lines))


def _end_with_input(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()
    _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End Jupyter, which ends its kernels. A kernel whose Jupyter was killed ends by itself."""
    server.terminate()
    try:
        server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    serve_notebook()
