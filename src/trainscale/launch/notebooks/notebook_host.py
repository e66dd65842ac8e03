"""Runs Jupyter on a host, and ends it with everything it started. It is sent there as text, behind multiplexer.py.

Jupyter listens on a socket in a folder that only its user can enter, not on a port. The token is in a file there. When
standard input closes, because the controller is done or dead or the connection is lost, everything ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

from .multiplexer import Multiplexer

MARK = "@trainscale-notebook "
# The programs, the best first, and where their pages of a file are.
_PROGRAMS = (("jupyter-lab", "lab/tree/"), ("jupyter-notebook", "notebooks/"))
_START_SECONDS, _END_SECONDS, _POLL_SECONDS = 120.0, 10.0, 0.1
_LOG_LINES = 12
_PDEATHSIG, _SUBREAPER = 1, 36  # of prctl


class JupyterRequest(TypedDict):
    """What session.py sends. ``text`` is for a notebook that is missing here; ``jupyter`` is empty to search."""

    notebook: str
    text: str | None
    jupyter: str
    token: str


class NotebookHostError(Exception):
    """Jupyter cannot run here; the message is for the person."""


def serve_notebook() -> None:
    """Read a request, answer it with a line, and carry connections to Jupyter until standard input closes."""
    request: JupyterRequest = json.loads(sys.stdin.buffer.readline())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # processes that lose their parent become children of this one
    folder = Path(tempfile.mkdtemp(prefix="trainscale-notebook-"))  # only this user may enter it
    server: subprocess.Popen[bytes] | None = None
    ending = threading.Lock()
    try:
        path = _prepare_notebook(request)
        program, page = find_program(request["jupyter"])
        server = _start(program, path, folder, request["token"])
        _wait_until_ready(server, folder, request["token"])
        threading.Thread(target=_end_with, args=(server, folder, ending), daemon=True).start()
        _answer({"page": page + quote(path.name), "notebook": str(path)})
        Multiplexer(sys.stdin.buffer, sys.stdout.buffer, lambda: _connect(folder)).run()
    except NotebookHostError as error:
        _answer({"error": str(error)})
    finally:
        with ending:
            _end(server, folder)


def find_program(jupyter: str) -> tuple[str, str]:
    """Return a Jupyter with pages for people, and where it shows a file: beside ``jupyter`` if that is named."""
    own = [str(Path(sys.executable).parent), *os.get_exec_path(), str(Path("~/.local/bin").expanduser())]
    folders = [str(Path(jupyter).expanduser().parent)] if jupyter else own
    for name, page in _PROGRAMS:
        program = shutil.which(name, path=os.pathsep.join(folders))
        if program:
            return program, page
    place = f"in {folders[0]}" if jupyter else f"beside {sys.executable}, and none on the PATH"
    raise NotebookHostError(
        f"there is no jupyter-lab or jupyter-notebook {place}; pip install jupyterlab (or notebook) into an environment"
        " that has trainscale, or name one by --jupyter /path/to/bin/jupyter"
    )


def _prepare_notebook(request: JupyterRequest) -> Path:
    """Return the path of the notebook. Write it if it is not there and the request has its text."""
    path = Path(request["notebook"]).expanduser().absolute()
    if not path.exists():
        if request["text"] is None:
            raise NotebookHostError(f"{path}: there is no such file here; both machines must see it")
        path.write_text(request["text"], encoding="utf-8")
    return path


def _start(program: str, path: Path, folder: Path, token: str) -> subprocess.Popen[bytes]:
    """Start Jupyter with a configuration of its own: a user's could open ports, or set another password."""
    settings = {
        "ServerApp": {
            "sock": str(folder / "socket"),
            "sock_mode": "0600",
            "open_browser": False,
            "root_dir": str(path.parent),
            "allow_root": os.geteuid() == 0,
        },
        "IdentityProvider": {"token": token},
    }
    config = _create_private(folder / "config.json")
    config.write_text(json.dumps(settings), encoding="utf-8")
    # Jupyter writes the token to its runtime folder too.
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    environment.pop("JUPYTER_TOKEN", None)
    with _create_private(folder / "log").open("wb") as log:
        return subprocess.Popen(
            [program, f"--config={config}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _create_private(path: Path) -> Path:
    path.touch(0o600, exist_ok=False)
    return path


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path, token: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            _connect(folder).close()
            return
        except OSError:
            time.sleep(_POLL_SECONDS)
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    lines = text.replace(token, "TOKEN").splitlines()[-_LOG_LINES:]
    raise NotebookHostError("Jupyter did not start:" + "".join("\n  " + line for line in lines))


def _connect(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(folder / "socket"))
    except OSError:
        connection.close()
        raise
    return connection


def _end_with(server: subprocess.Popen[bytes], folder: Path, ending: threading.Lock) -> None:
    """End this program when Jupyter ends by itself, because somebody shut it down in the browser."""
    server.wait()
    with ending:
        _end(server, folder)
        os._exit(0)


def _end(server: subprocess.Popen[bytes] | None, folder: Path) -> None:
    """End Jupyter in order, then whatever is left, and remove the folder."""
    if server and server.poll() is None:
        server.terminate()
        try:
            server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    children = _list_children()
    while children:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        children = _list_children()  # those of the ended ones
    shutil.rmtree(folder, ignore_errors=True)


def _list_children() -> list[int]:
    """Return the processes whose parent this one is. Only Linux lists them."""
    children = []
    for folder in Path("/proc").iterdir() if sys.platform == "linux" else ():
        try:
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # not a process, or one that has ended
        if parent == os.getpid():
            children.append(int(folder.name))
    return children


def _answer(values: dict[str, str]) -> None:
    sys.stdout.buffer.write((MARK + json.dumps(values) + "\n").encode())
    sys.stdout.buffer.flush()
