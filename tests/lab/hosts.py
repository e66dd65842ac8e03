"""The lab: a controller and N hosts on one machine, up in about a second, and gone without a trace.

All its processes but those that a test runs at the controller are one process tree under the switch, which ends when
this process does. So nothing is left running or mounted even when the tests are killed; only a folder is, and the next
lab removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .access import write_access
from .links import Link, Shape, halved, lay_network
from .requirements import SEARCH
from .slurm import Slurm
from .spaces import LabError, Space, members

CONTROLLER = "controller"
_PREFIX = "trainscale-lab-"
_SCRIPTS = Path(__file__).parent
# The lab's own: no test left these behind.
_SERVICES = ("sshd", "munged", "slurmctld", "slurmd", "slurmscriptd")
_numbers = itertools.count()


class Lab:
    """Brings the hosts up. ``rate`` and ``delay`` (one way between two hosts) hold for every link; ``disk`` is the size
    of each host's disk; the folders in ``bind`` are the machine's own in every host, for reading and writing. With
    ``cores``, one set of the machine's cores for each host, all that comes in by ssh stays on those.

    A host sees the machine's files read-through, except /tmp, /run and /dev/shm, which are empty; what it writes stays
    on its disk, also over a power-off. ``shared`` is one folder, at the same path everywhere, in place of NFS.
    """

    def __init__(
        self,
        count: int,
        rate: str | None = None,
        delay: str | None = None,
        disk: str = "2g",
        bind: Sequence[str | Path] = (),
        cores: Sequence[Sequence[int]] = (),
    ) -> None:
        remove_leftovers()
        # Every lab has networks of its own, so these need not differ between labs; it makes their logs easier to tell.
        subnet = f"10.77.{(os.getpid() + next(_numbers)) % 254 + 1}"
        self.hosts = [f"node{number}" for number in range(1, count + 1)]
        self.controller_address = f"{subnet}.250"
        self._addresses = {name: f"{subnet}.{number}" for number, name in enumerate(self.hosts, start=1)}
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.shared = self.folder / "shared"
        self.ssh_config = self.folder / "ssh_config"
        self.controller = [str(self.folder / "at_controller")]
        self._places = _places(bind, self.shared)
        self._disk = disk
        self._cores = dict(zip(self.hosts, cores, strict=True)) if cores else {}
        self._switch: Space | None = None
        self._spaces: dict[str, Space] = {}
        self._links: dict[str, Link] = {}
        self._slurm: Slurm | None = None
        self._networks = 0  # besides the first
        try:
            self._bring_up(Shape(rate=rate, delay=halved(delay) if delay else None))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def address(self, name: str) -> str:
        return self.controller_address if name == CONTROLLER else self._addresses[name]

    # Running things

    def run(self, command: str | Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """``subprocess.run`` at the controller; a string is a line for the shell. Output is captured, as text, and the
        input is empty, unless the options say otherwise."""
        return subprocess.run([*self.controller, *_words(command)], **_defaults(options))

    def popen(self, command: str | Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """``subprocess.Popen`` at the controller; its process id is the command's."""
        return subprocess.Popen([*self.controller, *_words(command)], **options)

    def on(self, name: str, command: str | Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Like ``run``, but directly in a host, without ssh."""
        return subprocess.run([*self.inside(name), *_words(command)], **_defaults(options))

    def inside(self, name: str) -> list[str]:
        """The words that run a command in a host. A signal to the process they begin does not reach it."""
        return self._space(name).enter("mount", "uts", "ipc", "net", "pid")

    def administer(self, name: str, command: Sequence[str]) -> None:
        """What must succeed, in a host or at the controller. What it puts into the background ends with the lab."""
        if name == CONTROLLER:
            assert self._switch is not None
            # First the controller's name, network and files, then the lab's process tree.
            prefix = [*self._space(name).enter("mount", "uts", "net"), *self._switch.enter("pid")]
        else:
            prefix = self.inside(name)
        done = subprocess.run([*prefix, *command], **_defaults({"env": {**os.environ, "PATH": SEARCH}}))
        if done.returncode:
            raise LabError(f"{' '.join(command)} on {name}: {done.stdout}{done.stderr}")

    def file(self, name: str, path: str | Path) -> Path:
        """A host's file as the machine can read it."""
        return Path(f"/proc/{self._space(name).pid}/root") / str(path).lstrip("/")

    def has_power(self, name: str) -> bool:
        return name in self._spaces

    def processes(self, name: str) -> list[str]:
        """Command lines of what runs on a host besides its first process and the lab's own services; for the
        controller, of what runs in its network."""
        return [line for _, line in self._running(name).values() if not line.startswith("nsenter ")]

    def signal(self, name: str, programs: Sequence[str], number: signal.Signals = signal.SIGKILL) -> None:
        """To every process of a host, or of the lab at the controller, that runs one of these programs."""
        space = self._switch if name == CONTROLLER else self._space(name)
        assert space is not None
        for pid, (program, _) in members("pid", space.pid).items():
            if program in programs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end_those_with(self, name: str, words: str) -> int:
        """SIGKILL to every process of a host whose command line has these words; returns how many there were."""
        pids = [pid for pid, (_, line) in self._running(name).items() if words in line]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    # Faults

    def kill(self, name: str, silent: bool = True) -> None:
        """Take a host's power. Silent as a real power-off: those who talk to it hear nothing, not even a reset; else
        its kernel lives long enough to close its connections."""
        space = self._space(name)
        if silent:
            self._links[name].unplug()
        del self._spaces[name]
        space.end()
        self._links[name].unplug()

    def boot(self, name: str) -> None:
        """Power it on again, with its disk and the shape of its link as they were."""
        if name in self._spaces:
            raise LabError(f"{name} has power already")
        self._power_on([name])

    def link(self, name: str, up: bool) -> None:
        """Pull a host's cable, or put it back."""
        self._links[name].set_up(up)

    def shape(
        self,
        name: str,
        rate: str | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: str | None = None,
    ) -> None:
        """A host's link from now on: what is not named is as on an ideal cable. Delay is added each way."""
        self._links[name].apply(Shape(rate, delay, jitter, loss))

    def add_network(self) -> dict[str, str]:
        """A second cable, to every host that has power, in a network of their own; returns its addresses by host. A
        power-off takes it away."""
        assert self._switch is not None
        self._networks += 1
        subnet = f"10.{77 + self._networks}.{self.controller_address.split('.')[2]}"
        numbers = {name: number for number, name in enumerate(self.hosts, start=1) if self.has_power(name)}
        addresses = {name: f"{subnet}.{number}" for name, number in numbers.items()}
        lay_network(self._switch, {name: self._space(name) for name in numbers}, addresses, self._networks)
        return addresses

    # Slurm

    def slurm(self, gpus: int = 0) -> Slurm:
        """Slurm over all hosts, each with this many made-up GPUs; started at the first call."""
        if self._slurm is None:
            self._slurm = Slurm(self, gpus)
        if self._slurm.gpus != gpus:
            raise LabError(f"this lab's Slurm has {self._slurm.gpus} GPUs a host, not {gpus}")
        return self._slurm

    # Up and down

    def close(self) -> None:
        """End all of it, and what tests left running at the controller; returns when it is gone."""
        with contextlib.suppress(LabError):  # it never came up
            for pid in self._running(CONTROLLER):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for link in self._links.values():
            link.unplug()
        if self._switch is not None:
            self._switch.end()
        for space in self._spaces.values():
            space.wait()
        self._spaces, self._links, self._switch = {}, {}, None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _bring_up(self, shape: Shape) -> None:
        self.shared.mkdir()
        write_access(self.folder, self._addresses, {CONTROLLER: self.controller_address})
        self._switch = Space(
            ["net", "mount", "pid"],
            [_SCRIPTS / "switch.sh", self.folder, self._disk, *self.hosts],
            self.folder / "switch.log",
            held_by_us=True,
        )
        for name in (CONTROLLER, *self.hosts):
            self._links[name] = Link(self._switch, name, self.folder, Shape() if name == CONTROLLER else shape)
        self._power_on([CONTROLLER, *self.hosts])
        pid = self._spaces[CONTROLLER].pid
        program = Path(self.controller[0])
        # A script, because entering other mounts would lose the directory one was in.
        enter = f"nsenter --target={pid} --mount --uts --net"
        program.write_text(f'#!/bin/sh\nexec {enter} -- env --chdir="$PWD" -- "$@"\n')
        program.chmod(0o755)

    def _power_on(self, names: Sequence[str]) -> None:
        for name in names:  # all at once, then one after the other
            kinds = ["net", "mount", "uts"] if name == CONTROLLER else ["net", "mount", "uts", "ipc", "pid"]
            script = "controller.sh" if name == CONTROLLER else "host.sh"
            places = [] if name == CONTROLLER else self._places
            program: list[str | Path] = [_SCRIPTS / script, name, self.folder, *places]
            log, cores = self.folder / f"{name}.log", self._cores.get(name, ())
            self._spaces[name] = Space(kinds, program, log, within=self._switch, cores=cores)
        for name in names:
            self._links[name].plug(self._spaces[name], self.address(name))
        for name in names:
            if name != CONTROLLER:
                self._wait_for_sshd(name)

    def _wait_for_sshd(self, name: str, seconds: float = 30.0) -> None:
        table = Path(f"/proc/{self._spaces[name].pid}/net/tcp")
        listening = ":0016 00000000:0000 0A"  # port 22, from anywhere, state LISTEN
        deadline = time.monotonic() + seconds
        while listening not in table.read_text():
            if time.monotonic() > deadline:
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                raise LabError(f"sshd of {name} does not listen after {seconds:.0f} s:\n{log}")
            time.sleep(0.005)

    def _space(self, name: str) -> Space:
        if name not in self._spaces:
            raise LabError(f"{name} has no power" if name in self.hosts else f"no host {name!r}: {self.hosts}")
        return self._spaces[name]

    def _running(self, name: str) -> dict[int, tuple[str, str]]:
        space = self._space(name)
        everyone = members("net" if name == CONTROLLER else "pid", space.pid)
        return {
            pid: (program, line)
            for pid, (program, line) in everyone.items()
            if pid != space.pid and not program.startswith(_SERVICES)
        }


def remove_leftovers() -> None:
    """Folders of labs whose process is dead; all else that they had died with it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _places(bind: Sequence[str | Path], shared: Path) -> list[str]:
    """What a host mounts besides /: other file systems that hold Python, this project or the user's files, read-through
    like /, and the folders that it shares with the machine."""
    needed = [path.resolve() for path in (_SCRIPTS.parents[1], Path(sys.prefix), Path(sys.base_prefix), Path.home())]
    others = {_mount_point(path) for path in needed} - {Path("/")}
    others |= {path for path in needed if path.is_relative_to("/tmp")}  # a host's own /tmp would hide them
    words = [word for path in sorted(others) for word in ("overlay", str(path))]
    return words + [word for path in (shared, *bind) for word in ("bind", str(path))]


def _mount_point(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_mount())


def _words(command: str | Sequence[str]) -> list[str]:
    return ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    if not options.keys() & {"stdout", "stderr", "capture_output"}:
        options["capture_output"] = True
    if not options.keys() & {"stdin", "input"}:
        options["stdin"] = subprocess.DEVNULL
    if not options.keys() & {"encoding", "universal_newlines"}:
        options.setdefault("text", True)
    options.setdefault("check", False)
    return options
