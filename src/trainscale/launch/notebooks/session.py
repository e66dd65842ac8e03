"""The controller's side of a Jupyter: it starts the host's side, listens on a port here, and ends both together."""

from __future__ import annotations

import contextlib
import html
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, TrainscaleError
from .multiplexer import Multiplexer
from .notebook_host import MARK

_LOOPBACK = "127.0.0.1"
_END_SECONDS = 20.0
_REDIRECT = """\
<!doctype html><meta charset="utf-8"><title>Jupyter</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Jupyter</a>
"""


@dataclass(frozen=True)
class NotebookRequest:
    """``text`` is written where there is no such notebook; None if it must be there. ``jupyter``: empty to search."""

    notebook: str
    text: str | None = None
    jupyter: str = ""


def make_host_program() -> str:
    """Return the program of the host's side: two modules as one text."""
    folder = Path(__file__).parent
    lines = (folder / "notebook_host.py").read_text().splitlines()
    own = [line for line in lines if not line.startswith(("from __future__", "from .multiplexer"))]
    return "\n".join([(folder / "multiplexer.py").read_text(), *own, "serve_notebook()\n"])


class NotebookSession:
    """Use it in a with block. Entering it waits until Jupyter answers. Leaving it ends Jupyter and its kernels.

    The token is sent over the pipe, and is in a file that only this user can read. Neither a command line nor an
    environment has it.
    """

    def __init__(self, argv: list[str], request: NotebookRequest, port: int, explain: Callable[[str], str]) -> None:
        """``argv`` runs the first line of its input as Python; ``explain`` says why it failed, by what it printed."""
        self._argv, self._request, self._port, self._explain = argv, request, port, explain
        self._token = secrets.token_hex(24)

    def __enter__(self) -> NotebookSession:
        with contextlib.ExitStack() as stack:
            self._listener = stack.enter_context(_listen(self._port))
            self._folder = Path(tempfile.mkdtemp(prefix="trainscale-notebook-"))  # only this user may enter it
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            # In a session of its own, so that Ctrl-C reaches this process alone, which ends the others in order.
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
            stack.callback(self._end)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The page of the notebook, without the token."""
        return f"http://{_LOOPBACK}:{self._listener.getsockname()[1]}/{self.page}"

    @property
    def redirect(self) -> Path:
        """A page that opens the notebook with its token."""
        return self._folder / "open.html"

    def wait(self) -> None:
        """Return when Jupyter has ended, which this process did not cause."""
        self._carrier.join()

    def _start(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        values = {"notebook": self._request.notebook, "text": self._request.text, "jupyter": self._request.jupyter}
        lines = [repr(make_host_program()), json.dumps({**values, "token": self._token}), ""]
        with contextlib.suppress(BrokenPipeError):  # it has ended; its messages say why
            self._process.stdin.write("\n".join(lines).encode())
            self._process.stdin.flush()
        answer = self._read_answer()
        self.page, self.notebook = answer["page"], answer["notebook"]
        self._multiplexer = Multiplexer(self._process.stdout, self._process.stdin)
        self._carrier = threading.Thread(target=self._multiplexer.run, daemon=True)
        self._carrier.start()
        threading.Thread(target=self._accept, daemon=True).start()
        url = html.escape(f"{self.url}?token={self._token}", quote=True)
        self.redirect.touch(0o600)
        self.redirect.write_text(_REDIRECT.format(url=url))

    def _read_answer(self) -> dict[str, str]:
        """Return the answer. What else a login prints before it is left out."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _, mark, text = line.decode(errors="replace").partition(MARK)
            if mark:
                answer: dict[str, str] = json.loads(text)
                if "error" in answer:
                    raise TrainscaleError(answer["error"])
                return answer
        self._process.wait()
        self._errors.seek(0)
        raise TrainscaleError(self._explain(self._errors.read().decode(errors="replace")))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the listener is closed
            self._multiplexer.begin(connection)

    def _end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise InputError(f"--port {port}: {error.strerror}") from None
    listener.listen()
    return listener
