"""Jupyter here, on a host over ssh, or in a Slurm job, and the way of the browser to it: ``ssh -L``."""

from __future__ import annotations

import contextlib
import html
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..cluster.hosts import HostAccess
from ..errors import InputError, TrainscaleError
from ..spec.devices import Host
from . import notebook_host
from .launchers.settings import SlurmSettings, SshSettings
from .launchers.ssh import make_shell_command, make_ssh_command
from .ssh_errors import explain_ssh_error
from .worker_archive import RUN_FIRST_LINE

_LOOPBACK = "127.0.0.1"
_END_SECONDS = 20.0
_POLL_SECONDS = 0.1
_TAIL = 5  # lines of what srun printed
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


@dataclass(frozen=True)
class JupyterTarget:
    """Where Jupyter runs. ``host`` is None here and in a Slurm job."""

    host: Host | None
    ssh: SshSettings
    slurm: SlurmSettings | None

    @property
    def name(self) -> str:
        if self.host:
            return f" on {self.host.name}"
        return " in a Slurm job" if self.slurm else ""

    def make_command(self, forwarding: str) -> list[str]:
        """Return the command that runs the first line of its input as Python; over ssh, it also forwards a port."""
        python = [sys.executable, "-c", RUN_FIRST_LINE]
        if self.host:
            line = make_shell_command(["python3", "-c", RUN_FIRST_LINE], ())
            return [*self.make_tunnel_command(self.host, forwarding), "--", self.host.name, line]
        if self.slurm is None:
            return python
        values = {name: getattr(self.slurm, name) for name in ("partition", "account", "gres", "time")}
        flags = [f"--{name}={value}" for name, value in values.items() if value]
        return [
            "srun",
            "--nodes=1",
            "--ntasks=1",
            "--job-name=trainscale-notebook",
            "--mpi=none",
            *flags,
            "--",
            *python,
        ]

    def make_tunnel_command(self, host: Host, forwarding: str) -> list[str]:
        """Return ssh with a forwarded port, which ends with this connection: a shared one could outlive it."""
        program, *options = make_ssh_command(HostAccess(), self.ssh, host)
        return [program, "-o", "ClearAllForwardings=no", "-o", "ControlPath=none", "-L", forwarding, *options]


class NotebookSession:
    """Use it in a with block. Entering it waits until Jupyter answers. Leaving it ends Jupyter and its kernels.

    The token is sent through standard input, and is in a file that only this user can read. Neither a command line nor
    an environment has it.
    """

    def __init__(self, target: JupyterTarget, request: NotebookRequest, port: int) -> None:
        """``port`` is one of this machine; 0 for a free one."""
        self._target, self._request = target, request
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_LOOPBACK, port))
            except OSError as error:
                raise InputError(f"--port {port}: {error.strerror}") from None
            self._port = int(probe.getsockname()[1])
        self._token = secrets.token_hex(24)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> NotebookSession:
        with contextlib.ExitStack() as stack:
            self._folder = Path(tempfile.mkdtemp(prefix="trainscale-notebook-"))  # only this user may enter it
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            stack.callback(self._end)
            is_here = not (self._target.host or self._target.slurm)
            # ssh must know the path of the socket before there is one; the path must be short.
            folder = self._folder / "server" if is_here else Path(f"/tmp/trainscale-notebook-{secrets.token_hex(8)}")
            forwarding = f"{_LOOPBACK}:{self._port}:{folder}/socket"
            server = self._start(self._target.make_command(forwarding))
            answer = self._send_request(server, str(folder), self._port if is_here else 0)
            host = self._target.host
            if self._target.slurm:
                host = Host(answer["node"])
                self._start([*self._target.make_tunnel_command(host, forwarding), "-N", "--", host.name])
            while not self._can_connect():  # until ssh forwards the port; it ends if it cannot log in
                if any(process.poll() is not None for process in self._processes):
                    raise self._make_error(host)
                time.sleep(_POLL_SECONDS)
            self.notebook = answer["notebook"]
            self.url = f"http://{_LOOPBACK}:{self._port}/{answer['page']}"  # without the token
            self.redirect = self._folder / "open.html"  # opens the notebook with its token
            self.redirect.touch(0o600)
            url = html.escape(f"{self.url}?token={self._token}", quote=True)
            self.redirect.write_text(_REDIRECT.format(url=url))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> None:
        """Return when Jupyter or the connection to it has ended, which this process did not cause."""
        while all(process.poll() is None for process in self._processes):
            time.sleep(_POLL_SECONDS)

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        # In a session of its own, so that Ctrl-C reaches this process alone, which ends the others in order.
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        self._processes.append(process)
        return process

    def _make_error(self, host: Host | None) -> TrainscaleError:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        if host:
            error = explain_ssh_error(text, host.name)
            return TrainscaleError(f"{host.name}: {error.reason}" + (f"\n  {error.remedy}" if error.remedy else ""))
        lines = text.strip().splitlines()[-_TAIL:]
        return TrainscaleError(f"Jupyter could not be started{self._target.name}:" + "".join(f"\n  {x}" for x in lines))

    def _send_request(self, server: subprocess.Popen[bytes], folder: str, port: int) -> dict[str, str]:
        """Send the program and the request, and return the answer. What a login prints before it is skipped."""
        assert server.stdin is not None
        assert server.stdout is not None
        request = {**vars(self._request), "token": self._token, "folder": folder, "port": port}  # a JupyterRequest
        program = Path(notebook_host.__file__).read_text()
        with contextlib.suppress(BrokenPipeError):  # it has ended; its messages say why
            server.stdin.write(f"{program!r}\n{json.dumps(request)}\n".encode())
            server.stdin.flush()
        for line in server.stdout:
            _, mark, text = line.decode(errors="replace").partition(notebook_host.MARK)
            if mark:
                answer: dict[str, str] = json.loads(text)
                if "error" in answer:
                    raise TrainscaleError(answer["error"])
                return answer
        server.wait()
        raise self._make_error(self._target.host)

    def _can_connect(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((_LOOPBACK, self._port)):
            return True
        return False

    def _end(self) -> None:
        """Close the pipes, at which all ends, and wait. The tunnel has no input that it reads: it is terminated."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in self._processes[1:]:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
