"""Processes that hold namespaces open. A lab's switch, controller and hosts are such processes.

The namespaces have no names, so the kernel removes them with the process, and with them all that runs and is mounted in
them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class LabError(Exception):
    """The lab could not do what a test asked for."""


class Namespaces:
    """A process started by ``unshare`` with its own namespaces of these kinds (net, mount, uts, ipc, pid).

    Its program prints its process id, as the machine counts, when it is ready.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        program: Sequence[str | Path],
        log: Path,
        within: Namespaces | None = None,
        held_by_us: bool = False,
        cores: Sequence[int] = (),
    ) -> None:
        self._log = log
        self._pid: int | None = None
        # A process in the switch's process tree ends when the switch does. That tree's mounts hold the hosts' disks.
        outside = within.enter("mount", "pid") if within else []
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        flags = [f"--{kind}" for kind in kinds]
        if "pid" in kinds:  # the pid namespace is that of children only
            flags += ["--fork", "--kill-child"]
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [*outside, *pinned, "unshare", *flags, "--propagation", "slave", *program],
                # With held_by_us the program ends when this pipe closes, also when this process is killed.
                stdin=subprocess.PIPE if held_by_us else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C goes to the tests only
            )

    @property
    def pid(self) -> int:
        if self._pid is None:
            assert self._popen.stdout is not None
            with self._popen.stdout as stream:
                line = stream.readline()
            if not line:
                self.end()
                raise LabError(f"{self._log.stem} did not start:\n{self._log.read_text(errors='replace')}")
            self._pid = int(line)
        return self._pid

    def enter(self, *kinds: str) -> list[str]:
        """Return the argv prefix that runs a command in these of its namespaces."""
        return ["nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in kinds), "--"]

    def run(self, kinds: Sequence[str], command: Sequence[str], text: str | None = None) -> None:
        """Run a command of the lab itself, which must not fail."""
        done = subprocess.run([*self.enter(*kinds), *command], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}")

    def end(self) -> None:
        """Kill the process and wait until everything in its process tree is dead."""
        if self._popen.poll() is None:
            if self._pid is None:
                self._popen.kill()  # its child dies with it
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait for the end without a signal, because the process id may belong to another process by now."""
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                stream.close()
        self._popen.wait()


def members(kind: str, pid: int) -> dict[int, tuple[str, str]]:
    """Return name and command line, by id, of the processes in the namespace of this kind that ``pid`` is in."""
    processes = {}
    namespace = Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "ns" / kind).stat().st_ino != namespace:
                continue
            line = (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue  # it has ended meanwhile
        if line:  # a zombie has none
            processes[int(entry.name)] = (name, line)
    return processes


_PROGRAMS = ("cc", "ip", "mount", "nsenter", "pivot_root", "ssh", "ssh-keygen", "sshd", "tc", "unshare")
_SLURM_PROGRAMS = ("munged", "sbatch", "sinfo", "slurmctld", "slurmd", "srun")
_FILES = ("/dev/net/tun", "/sys/fs/cgroup", "/etc/ssh/ssh_config")
# Includes the folders of daemons, which some users' PATH lacks.
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_requirement(slurm: bool = False) -> str | None:
    """Return why no lab (with Slurm) can run here, or None if one can."""
    if sys.platform != "linux":
        return "a lab of hosts needs Linux"
    if os.geteuid() != 0:
        return "a lab of hosts needs root"
    programs = (*_PROGRAMS, *(_SLURM_PROGRAMS if slurm else ()))
    missing = [program for program in programs if shutil.which(program, path=SEARCH) is None]
    missing += [path for path in _FILES if not Path(path).exists()]
    if missing:
        return f"a lab of hosts needs {', '.join(missing)} (tests/needs.sh installs it on Debian)"
    return None
