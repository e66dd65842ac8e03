"""``trainscale notebook --open``: Jupyter here, on a host over ssh, or in a Slurm job, until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import sys
import webbrowser
from argparse import Namespace
from dataclasses import dataclass

from ..cluster.hosts import Host, HostAccess
from ..errors import InputError, TrainscaleError
from ..launch.connections.ssh_errors import explain_ssh_error
from ..launch.connections.worker_archive import RUN_FIRST_LINE
from ..launch.launchers.slurm import SlurmSettings
from ..launch.launchers.ssh import SshSettings, make_shell_command, make_ssh_command
from ..launch.notebooks.session import NotebookRequest, NotebookSession
from .parser import read_experiment
from .signals import interrupt_on_signals

SLURM = "slurm"
SETTINGS = ("ssh_config", "forward_agent", "partition", "account", "gres", "time")
_HOST = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[^\]]+\]|[\w.-]+)", re.ASCII)
_TAIL = 5  # lines of what srun printed


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

    def make_command(self) -> list[str]:
        """Return the command that runs the first line of its input as Python."""
        python = [sys.executable, "-c", RUN_FIRST_LINE]
        if self.host:
            line = make_shell_command(["python3", "-c", RUN_FIRST_LINE], ())
            return [*make_ssh_command(HostAccess(), self.ssh, self.host), "--", self.host.name, line]
        return [*_make_srun_command(self.slurm), *python] if self.slurm else python

    def explain(self, text: str) -> str:
        """Say why the command failed, by what it printed."""
        if self.host:
            error = explain_ssh_error(text, self.host.name)
            return f"{self.host.name}: {error.reason}" + (f"\n  {error.remedy}" if error.remedy else "")
        lines = text.strip().splitlines()[-_TAIL:]
        return f"Jupyter could not be started{self.name}:" + "".join(f"\n  {line}" for line in lines)


def read_target(options: Namespace) -> JupyterTarget:
    """Return where Jupyter runs. An InputError says why it cannot run there."""
    experiment = read_experiment(options)
    ssh = experiment.select_settings(SshSettings)
    if options.on is None:
        return JupyterTarget(None, ssh, None)
    if options.on == SLURM:
        if not shutil.which("srun"):
            raise InputError("--on slurm: there is no srun here; it works where jobs are submitted")
        return JupyterTarget(None, ssh, experiment.select_settings(SlurmSettings))
    match = _HOST.fullmatch(options.on)
    if match is None:
        raise InputError(f"--on {options.on}: valid: a host, such as user@node1, or {SLURM}")
    if ssh.config_path and not ssh.config_path.is_file():
        raise InputError(f"ssh config {ssh.config_path}: there is no such file")
    return JupyterTarget(Host(match["host"].strip("[]"), user=match["user"] or ""), ssh, None)


def serve(target: JupyterTarget, request: NotebookRequest, port: int, open_browser: bool) -> int:
    """Run Jupyter until Ctrl-C, or until somebody shuts it down in the browser."""
    try:
        with interrupt_on_signals():
            if target.slurm:
                print("waiting for Slurm to start the job; Ctrl-C cancels it", flush=True)
            with NotebookSession(target.make_command(), request, port, target.explain) as session:
                _show(session, target, open_browser)
                session.wait()
    except KeyboardInterrupt:
        print(f"Jupyter{target.name} has ended", file=sys.stderr)
        return 130
    raise TrainscaleError(f"Jupyter{target.name} has ended by itself, or the connection to it is lost")


def _show(session: NotebookSession, target: JupyterTarget, open_browser: bool) -> None:
    print(f"Jupyter{target.name} has {session.notebook}")
    print(f"  address: {session.url}")
    print(f"  open {session.redirect} in a browser: it holds the token, and only you can read it")
    print("  Ctrl-C ends Jupyter and its kernels", flush=True)
    # A browser without a window would take over the terminal. The token is in the file, not on its command line.
    has_window = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if open_browser and (has_window or sys.platform == "darwin"):
        webbrowser.open(session.redirect.as_uri())


def _make_srun_command(settings: SlurmSettings) -> list[str]:
    options = {"partition": settings.partition, "account": settings.account, "gres": settings.gres}
    options["time"] = settings.time
    given = [f"--{name}={value}" for name, value in options.items() if value]
    return ["srun", "--nodes=1", "--ntasks=1", "--job-name=trainscale-notebook", "--mpi=none", *given, "--"]
