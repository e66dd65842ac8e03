"""Jupyter here, on a host over ssh, or in a Slurm job, and the way of the browser to it: ``ssh -L``."""

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..cluster.hosts import HostAccess
from ..errors import InputError, TrainscaleError
from ..spec.devices import Host
from ..spec.groups import SlurmSettings, SshSettings
from . import notebook_host
from .launchers.ssh import make_shell_command, make_ssh_command
from .notebook_host import NotebookRequest
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
        """Run the first line of its input as Python; ssh also forwards a port."""
        python = [sys.executable, "-c", RUN_FIRST_LINE]
        if self.host:
            line = make_shell_command(["python3", "-c", RUN_FIRST_LINE], ())
            return [*self.make_tunnel_command(self.host, forwarding), "--", self.host.name, line]
        if self.slurm is None:
            return python
        values = {name: getattr(self.slurm, name) for name in ("partition", "account", "gres", "time")}
        flags = [f"--{name}={value}" for name, value in values.items() if value]
        fixed = ["--nodes=1", "--ntasks=1", "--job-name=trainscale-notebook", "--mpi=none"]
        return ["srun", *fixed, *flags, "--", *python]

    def make_tunnel_command(self, host: Host, forwarding: str) -> list[str]:
        """The port is forwarded by a connection of its own: a shared one could outlive it."""
        program, *options = make_ssh_command(HostAccess(), self.ssh, host)
        own = ("-o", "ClearAllForwardings=no", "-o", "ControlPath=none")
        return [program, *own, "-L", forwarding, *options]


@dataclass(frozen=True)
class OpenNotebook:
    notebook: str
    url: str  # without the token
    redirect: Path  # a page that only this user can read; it opens the notebook with its token
    processes: list[subprocess.Popen[bytes]]  # Jupyter's, or the ssh to it, and a tunnel

    def wait(self) -> None:
        """Wait until Jupyter or the connection to it has ended by itself."""
        while all(process.poll() is None for process in self.processes):
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def open_notebook(target: JupyterTarget, request: NotebookRequest, port: int) -> Iterator[OpenNotebook]:
    """Wait until Jupyter answers at a port of this machine (0: a free one). Leaving the block ends it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror}") from None
        port = int(probe.getsockname()[1])
    # The token is in no command line and no environment.
    token, processes = secrets.token_hex(24), list[subprocess.Popen[bytes]]()
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="trainscale-notebook-"))  # only this user may enter it
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        errors = stack.enter_context(tempfile.TemporaryFile())
        stack.callback(_end, processes)

        def start(argv: list[str]) -> subprocess.Popen[bytes]:
            # A session of its own: Ctrl-C reaches only this process, which ends the others in order.
            pipe = subprocess.PIPE
            process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True)
            processes.append(process)
            return process

        is_here = not (target.host or target.slurm)
        # ssh must know the path of the socket before there is one; the path must be short.
        there = folder / "server"
        if not is_here:
            there = Path(f"/tmp/trainscale-notebook-{secrets.token_hex(8)}")
        forwarding, host = f"{_LOOPBACK}:{port}:{there}/socket", target.host
        request = replace(request, token=token, folder=str(there), port=port if is_here else 0)
        answer = _send(request, start(target.make_command(forwarding)))
        if answer and target.slurm:
            host = Host(answer["node"])
            start([*target.make_tunnel_command(host, forwarding), "-N", "--", host.name])
        # Until ssh forwards the port. It ends if it cannot log in.
        while not answer or not notebook_host.can_connect(port):
            if any(process.poll() is not None for process in processes):
                errors.seek(0)
                text = errors.read().decode(errors="replace")
                if host:
                    raise explain_ssh_error(text, host.name)
                last_lines = text.strip().splitlines()[-_TAIL:]
                problem = f"Jupyter could not be started{target.name}:"
                raise TrainscaleError("\n  ".join([problem, *last_lines]))
            time.sleep(_POLL_SECONDS)
        url = f"http://{_LOOPBACK}:{port}/{answer['page']}"
        redirect = folder / "open.html"
        redirect.touch(0o600)
        redirect.write_text(_REDIRECT.format(url=html.escape(f"{url}?token={token}", quote=True)))
        yield OpenNotebook(answer["notebook"], url, redirect, processes)


def _send(request: NotebookRequest, server: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return the answer, without what a login prints."""
    assert server.stdin is not None
    assert server.stdout is not None
    program = Path(notebook_host.__file__).read_text()
    with contextlib.suppress(BrokenPipeError):  # it has ended; its messages say why
        server.stdin.write(f"{program!r}\n{json.dumps(vars(request))}\n".encode())
        server.stdin.flush()
    for line in server.stdout:
        _, mark, text = line.decode(errors="replace").partition(notebook_host.MARK)
        if mark:
            answer: dict[str, str] = json.loads(text)
            if "error" in answer:
                raise TrainscaleError(answer["error"])
            return answer
    server.wait()
    return {}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close the pipes, at which all ends, and wait. The tunnel reads no input: it is terminated."""
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
    for process in processes[1:]:
        process.terminate()
    for process in processes:
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
