"""Processes that hold namespaces open: what a lab's switch, controller and hosts are made of.

Nothing here has a name that the kernel would remember: when the process is gone, its namespaces are, with all that runs
and all that is mounted in them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


class LabError(Exception):
    """The lab could not do what a test asked for."""


class Space:
    """A process begun by ``unshare`` with namespaces of its own of these kinds (net, mount, uts, ipc, pid).

    Its program first prints its process id, as the machine counts, and by that says that it is ready.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        program: Sequence[str | Path],
        log: Path,
        within: Space | None = None,
        held_by_us: bool = False,
        cores: Sequence[int] = (),
    ) -> None:
        self._log = log
        self._pid: int | None = None
        # Inside the switch's process tree a space ends when the switch does. That tree's mounts hold the hosts' disks.
        outside = within.enter("mount", "pid") if within else []
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        flags = [f"--{kind}" for kind in kinds]
        if "pid" in kinds:  # holds for children only
            flags += ["--fork", "--kill-child"]
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [*outside, *pinned, "unshare", *flags, "--propagation", "slave", *program],
                # With held_by_us the program ends when this pipe closes: also when we are killed and can do nothing.
                stdin=subprocess.PIPE if held_by_us else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C is for the tests
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
        """The words that run a command in these of its namespaces."""
        return ["nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in kinds), "--"]

    def run(self, kinds: Sequence[str], command: Sequence[str], text: str | None = None) -> None:
        """Something that the lab itself does in there, and that must not fail."""
        done = subprocess.run([*self.enter(*kinds), *command], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}")

    def end(self) -> None:
        """Kill it; returns when all that ran in its process tree is dead."""
        if self._popen.poll() is None:
            if self._pid is None:
                self._popen.kill()  # and its child with it
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """For the end of a space within another that has ended: its process id may be someone else's by now."""
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                stream.close()
        self._popen.wait()


def members(kind: str, pid: int) -> dict[int, tuple[str, str]]:
    """Living processes in the namespace of this kind that ``pid`` is in: their ids, names and command lines."""
    found = {}
    wanted = Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "ns" / kind).stat().st_ino != wanted:
                continue
            line = (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue  # it ended while we looked
        if line:  # a zombie has none
            found[int(entry.name)] = (name, line)
    return found
