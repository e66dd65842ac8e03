"""Where the runs of the campaign happen: a lab of two hosts, and the command line for each launcher.

``targets`` finds the processes of a role. ``repair`` brings the lab back to what it was before a fault.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray_environment
from packages import write_installed_package

from lab import CONTROLLER as AT_CONTROLLER
from lab import Lab, missing_requirement

from . import sleepy_framework
from .faults import KEEPER, LOCAL, MPI, RANK, RAY, SERVER, SLURM, SSH

_HOSTS = ("node1", "node2")
_MPIRUN = "mpirun.openmpi"
EXIT_CODE = "exit-code"  # a file; salloc does not return the code of a command that was killed
_NOTE_EXIT_CODE = f'"$0" "$@"; echo $? > {EXIT_CODE}'
_SERVER_RANK = 2  # behind two workers
_PROGRAMS = {"ssh": ("ssh",), "mpirun": ("mpirun", "mpirun.openmpi", "orterun"), "srun": ("srun",),
             "slurmstepd": ("slurmstepd",), "actor": ("ray::HostActor.",)}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A process that a fault may hit: its id as the machine counts, its host, and its rank if that is known."""

    pid: int
    host: str
    rank: int | None = None


def unavailable(launcher: str) -> str | None:
    """Return why the campaign cannot use this launcher here, or None."""
    reason = missing_requirement(slurm=launcher == SLURM)
    if reason:
        return reason
    if launcher == MPI and shutil.which(_MPIRUN) is None:
        return f"needs {_MPIRUN} (tests/needs.sh installs it on Debian)"
    if launcher == RAY and ray_environment.python() is None:
        return "there is no Ray for the tests: make environments makes it"
    return None


class Place:
    """A lab with two hosts. Ray has a lab of its own, because its services look like what a run leaves behind.
    ``patience`` multiplies the time limits of runs: on a busy machine a process may take long to start.
    """

    def __init__(self, launcher: str, patience: int = 1) -> None:
        self.launcher, self.patience = launcher, patience
        self.lab = Lab(len(_HOSTS))
        try:
            self.plugin = install_plugin(self.lab.shared / "plugin")
            self.slurm = self.lab.slurm() if launcher == SLURM else None
            for host in _HOSTS if launcher == RAY else ():
                ray_environment.start_node(self.lab, host)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.lab.close()

    # Commands

    def prepare(self, folder: Path) -> None:
        """Fill a folder, which all hosts share, for a run."""
        (folder / "control").mkdir(parents=True)
        (folder / "nodes").write_text("".join(f"{host}\n" for host in _HOSTS))
        (folder / "tmp").mkdir()
        mpirun = folder / "bin" / "mpirun"
        mpirun.parent.mkdir()
        mpirun.write_text(f'#!/bin/sh\nexec {_MPIRUN} "$@"\n')
        mpirun.chmod(0o755)

    def command(self, strategy: str, trials: int) -> list[str]:
        # A trial for each batch: a point that hung, or failed twice, would not be tried again.
        batches = ",".join(str(number + 1) for number in range(trials))
        common = [
            sys.executable, "-m", "trainscale", "run", "--models", "nap", "-b", batches, "--frameworks", "sleepy",
            "--no-parity", "--no-witness", "--strategies", strategy, "--devices", "2", "--warmup", "2", "--steps", "60",
            "--repeats", "1", "--stall-timeout", f"{self.patience * 15}s", "--timeout", f"{self.patience * 60}s",
            "-o", "out",
        ]  # fmt: skip
        hosts = ["--hosts", "nodes", "-g", "1"]
        head = f"ray://{self.lab.address(_HOSTS[0])}:10001"
        of_ray = ["--remote-python", str(ray_environment.python()), "--ray-address", head]
        more = {
            LOCAL: ["--launcher", "local"],
            SSH: hosts,
            MPI: ["--launcher", "mpi", *hosts],
            SLURM: ["-g", "1"],
            RAY: ["--launcher", "ray", "-g", "1", *of_ray],
        }[self.launcher]
        allocation = ["salloc", "--quiet", "--nodes=2", "--exclusive", "sh", "-c", _NOTE_EXIT_CODE]
        return [*(allocation if self.launcher == SLURM else []), *common, *more]

    def start(self, folder: Path, argv: list[str], log: Path) -> subprocess.Popen[Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_"))}
        environment |= {
            "PYTHONPATH": str(self.plugin),
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "TMPDIR": str(folder / "tmp"),
            "COLUMNS": "160",
            **(self.slurm.environment if self.slurm else {}),
            **(ray_environment.VARIABLES if self.launcher == RAY else {}),
        }
        with log.open("ab") as output:
            return self.lab.popen(
                argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def controller(self, popen: subprocess.Popen[Any]) -> int:
        """Return the id of the trainscale process. Under Slurm, it is a child of a shell that salloc started."""
        pid = popen.pid
        for _ in range(2 if self.launcher == SLURM else 0):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    # Processes

    def hosts(self) -> list[str]:
        return [AT_CONTROLLER] if self.launcher == LOCAL else list(_HOSTS)

    def targets(self, *roles: str) -> list[Target]:
        """Return the processes of these roles, by one look at all processes."""
        targets = []
        for host, pid, program, line in self._processes():
            for role in roles:
                if _plays(role, program, line):
                    targets.append(Target(pid, _host_of(role, line, host), _rank(program)))
        return targets

    def _processes(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield host, id, name and command line of what runs on the hosts, or at the controller in its network."""
        powered = [name for name in self.lab.hosts if self.lab.has_power(name)]
        spaces = {_namespace(self.lab._space(name).pid, "pid"): name for name in powered}
        network = _namespace(self.lab._space(AT_CONTROLLER).pid, "net")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):  # it may have ended
                host = spaces.get(_namespace(int(entry.name), "pid"))
                if host is None and _namespace(int(entry.name), "net") == network:
                    host = AT_CONTROLLER
                if host is not None:
                    line = (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
                    yield host, int(entry.name), (entry / "comm").read_text().strip(), line

    def left(self) -> list[str]:
        """Return what still runs of a run, on all hosts with power and at the controller."""
        lines = []
        for name in (AT_CONTROLLER, *self.lab.hosts):
            if not self.lab.has_power(name):
                continue
            processes = self.lab.processes(name)
            if self.launcher == RAY and name != AT_CONTROLLER:
                marks = ("TRAINSCALE_CALL", "start.py", "HostActor")
                processes = [line for line in processes if any(mark in line for mark in marks)]
            lines += [f"{name}: {line[:150]}" for line in processes]
        return lines

    # Faults and repairs

    def cancel(self) -> None:
        assert self.slurm is not None
        environment = {**os.environ, **self.slurm.environment}
        jobs = self.lab.run("squeue --noheader --format=%i", env=environment).stdout.split()
        for job in jobs:
            self.lab.run(["scancel", job], env=environment)

    def repair(self) -> None:
        """Bring hosts and links back, and end what was left. Raises LabError if Slurm does not come back."""
        for name in self.lab.hosts:
            if not self.lab.has_power(name):
                self.lab.boot(name)
                if self.slurm:
                    self.slurm.start(name)
            self.lab.link(name, up=True)
        if self.launcher != RAY:
            for name in (AT_CONTROLLER, *self.lab.hosts):
                for pid in self.lab._running(name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        if self.slurm:
            self.cancel()
            self.slurm.wait_for(self.lab.hosts, seconds=90)


def _namespace(pid: int, kind: str) -> int:
    return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino


def _plays(role: str, program: str, line: str) -> bool:
    if role in (RANK, SERVER):
        return line.endswith(" rank") and (_rank(program) == _SERVER_RANK) == (role == SERVER)
    if role == KEEPER:
        return line.endswith(" keeper") and "ssh " not in line
    return program in _PROGRAMS[role]


def _host_of(role: str, line: str, here: str) -> str:
    """Return the host that a process serves: that of an ssh is in its command."""
    if role != "ssh":
        return here
    return next((name for name in _HOSTS if f" {name}" in line), here)


def _rank(program: str) -> int | None:
    name = sleepy_framework.PROCESS_NAME
    return int(program[len(name) :]) if program.startswith(name) else None


def install_plugin(folder: Path) -> Path:
    files = {"__init__.py": Path(sleepy_framework.__file__).read_text()}
    frameworks, models = {"sleepy": "sleepy_framework:FRAMEWORK"}, {"nap": "sleepy_framework:MODEL"}
    entry_points = {"trainscale.frameworks": frameworks, "trainscale.models": models}
    return write_installed_package(folder, "sleepy-framework", files, entry_points)
