"""The lab: a controller and N hosts on one machine, which start in about a second and leave nothing behind.

All its processes, except those that a test runs at the controller, are one process tree under the switch, which ends
when this process ends. So nothing keeps running or stays mounted even when the tests are killed. Only a folder remains,
and the next lab removes it.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .links import Link, lay_network, microseconds
from .namespaces import SEARCH, LabError, Namespaces, members
from .slurm import Slurm

# As a careful administrator would configure it: keys, no passwords, no variables from the client. This key exchange is
# a cheap one: the default takes a tenth of a second of CPU at each end.
_SSHD_CONFIG = """\
Port 22
HostKey /run/lab/host_key
AuthorizedKeysFile /run/lab/authorized_keys
PidFile none
UsePAM no
UseDNS no
KexAlgorithms curve25519-sha256
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
MaxSessions 100
Subsystem sftp internal-sftp
"""

_SSH_CONFIG = """\
Host {patterns}
  User root
  IdentityFile {folder}/keys/client
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/keys/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
"""


def write_access(folder: Path, hosts: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Write keys, known hosts and names of ``hosts`` (name → address); ``others`` have a name but no sshd."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]
    running = [subprocess.Popen([*keygen, str(keys / name)]) for name in ("client", *hosts)]
    failed = [process.args for process in running if process.wait()]
    assert not failed, failed
    known_hosts = [
        f"{name},{address} {' '.join((keys / f'{name}.pub').read_text().split()[:2])}\n"
        for name, address in hosts.items()
    ]
    (keys / "known_hosts").write_text("".join(known_hosts))
    names = [f"{address} {name}\n" for name, address in {**others, **hosts}.items()]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    patterns = " ".join([*hosts, *hosts.values()])
    (folder / "ssh_config").write_text(_SSH_CONFIG.format(patterns=patterns, folder=folder))
    (folder / "sshd_config").write_text(_SSHD_CONFIG)


CONTROLLER = "controller"
_PREFIX = "trainscale-lab-"
_SCRIPTS = Path(__file__).parent
# Linux remembers at most 1,024 hardware addresses in all network namespaces together, and then says "no route to host".
# Addresses that are set by hand do not count, but with them it takes longer to notice a host that has lost power.
_MOST_NEIGHBOURS = 900
# Services of the lab itself; a test did not leave them behind.
_SERVICES = ("sshd", "munged", "slurmctld", "slurmd", "slurmscriptd")
_numbers = itertools.count()


class Lab:
    """A controller and ``count`` hosts. ``rate`` and ``delay`` (one way between two hosts) apply to every link.
    ``cores`` has a set of the machine's cores for each host; what starts by ssh stays on those.

    A host sees the machine's files, except /tmp, /run and /dev/shm, which are empty. What it writes stays on its own
    disk, also after a power-off. ``shared`` is one folder with the same path everywhere, in place of NFS.
    """

    def __init__(
        self,
        count: int,
        rate: str | None = None,
        delay: str | None = None,
        cores: Sequence[Sequence[int]] = (),
    ) -> None:
        remove_leftovers()
        # Labs have separate networks, so the addresses could be the same. Different ones make their logs easier to tell
        # apart.
        subnet = f"10.77.{(os.getpid() + next(_numbers)) % 254 + 1}"
        self.hosts = [f"node{number}" for number in range(1, count + 1)]
        self.controller_address = f"{subnet}.250"
        self._addresses = {name: f"{subnet}.{number}" for number, name in enumerate(self.hosts, start=1)}
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.shared = self.folder / "shared"
        self.ssh_config = self.folder / "ssh_config"
        self.controller = [str(self.folder / "at_controller")]
        self._mounts = _mounts(self.shared)
        self._cores = dict(zip(self.hosts, cores, strict=True)) if cores else {}
        self._switch: Namespaces | None = None
        self._spaces: dict[str, Namespaces] = {}
        self._links: dict[str, Link] = {}
        self._slurm: Slurm | None = None
        self._networks = 0  # besides the first
        try:
            self._bring_up(rate, microseconds(delay) // 2 if delay else 0)  # two links in a row
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
        """Call ``subprocess.run`` at the controller. A string is a shell command. Output is captured as text and the
        input is empty, unless the options say otherwise.
        """
        return subprocess.run([*self.controller, *_argv(command)], **_defaults(options))

    def popen(self, command: str | Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Call ``subprocess.Popen`` at the controller. Its process id is that of the command."""
        return subprocess.Popen([*self.controller, *_argv(command)], **options)

    def on(self, name: str, command: str | Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Like ``run``, but on a host, without ssh."""
        return subprocess.run([*self.inside(name), *_argv(command)], **_defaults(options))

    def inside(self, name: str) -> list[str]:
        """Return the argv prefix that runs a command on a host. A signal to that process does not reach the command."""
        return self._space(name).enter("mount", "uts", "ipc", "net", "pid")

    def administer(self, name: str, command: Sequence[str]) -> None:
        """Run a command that must succeed, on a host or at the controller. What it leaves behind ends with the lab."""
        if name == CONTROLLER:
            assert self._switch is not None
            # First enter the controller's name, network and files, then the lab's process tree.
            prefix = [*self._space(name).enter("mount", "uts", "net"), *self._switch.enter("pid")]
        else:
            prefix = self.inside(name)
        done = subprocess.run([*prefix, *command], **_defaults({"env": {**os.environ, "PATH": SEARCH}}))
        if done.returncode:
            raise LabError(f"{' '.join(command)} on {name}: {done.stdout}{done.stderr}")

    def file(self, name: str, path: str | Path) -> Path:
        """Return the path by which the machine can read a file of a host."""
        return Path(f"/proc/{self._space(name).pid}/root") / str(path).lstrip("/")

    def has_power(self, name: str) -> bool:
        return name in self._spaces

    def processes(self, name: str) -> list[str]:
        """Return the command lines of what runs on a host, without its first process and the lab's services. For the
        controller, return those of what runs in its network.
        """
        return [line for _, line in self._running(name).values() if not line.startswith("nsenter ")]

    def signal(self, name: str, programs: Sequence[str], number: signal.Signals = signal.SIGKILL) -> None:
        """Signal every process of a host, or of the lab at the controller, that runs one of these programs."""
        space = self._switch if name == CONTROLLER else self._space(name)
        assert space is not None
        for pid, (program, _) in members("pid", space.pid).items():
            if program in programs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill_matching(self, name: str, text: str) -> int:
        """Kill every process of a host whose command line contains this text; return how many there were."""
        pids = [pid for pid, (_, line) in self._running(name).items() if text in line]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    # Faults

    def kill(self, name: str, silent: bool = True) -> None:
        """Cut a host's power. If ``silent``, as with a real power-off, its peers get not even a reset; otherwise its
        kernel lives long enough to close its connections.
        """
        space = self._space(name)
        if silent:
            self._links[name].unplug()
        del self._spaces[name]
        space.end()
        self._links[name].unplug()

    def boot(self, name: str) -> None:
        """Power a host on again, with the same disk and link."""
        if name in self._spaces:
            raise LabError(f"{name} has power already")
        self._power_on([name])

    def link(self, name: str, up: bool) -> None:
        """Cut or restore a host's link."""
        self._links[name].set_up(up)

    def shape(self, name: str, rate: str | None = None) -> None:
        """Limit the rate of a host's link, or end the limit."""
        self._links[name].limit(rate)

    def add_network(self) -> dict[str, str]:
        """Connect all hosts with power to one more network; return its addresses by host. A power-off removes it."""
        assert self._switch is not None
        self._networks += 1
        subnet = f"10.{77 + self._networks}.{self.controller_address.split('.')[2]}"
        numbers = {name: number for number, name in enumerate(self.hosts, start=1) if self.has_power(name)}
        addresses = {name: f"{subnet}.{number}" for name, number in numbers.items()}
        lay_network(self._switch, {name: self._space(name) for name in numbers}, addresses, self._networks)
        return addresses

    # Slurm

    def slurm(self, gpus: int = 0) -> Slurm:
        """Return Slurm on all hosts, each with this many simulated GPUs. The first call starts it."""
        if self._slurm is None:
            self._slurm = Slurm(self, gpus)
        if self._slurm.gpus != gpus:
            raise LabError(f"this lab's Slurm has {self._slurm.gpus} GPUs a host, not {gpus}")
        return self._slurm

    # Up and down

    def close(self) -> None:
        """End the lab and what tests left running at the controller; return when everything is gone."""
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

    def _bring_up(self, rate: str | None, delay_microseconds: int) -> None:
        self.shared.mkdir()
        write_access(self.folder, self._addresses, {CONTROLLER: self.controller_address})
        self._switch = Namespaces(
            ["net", "mount", "pid"],
            [_SCRIPTS / "switch.sh", self.folder, *self.hosts],
            self.folder / "switch.log",
            held_by_us=True,
        )
        self._links[CONTROLLER] = Link(self._switch, CONTROLLER, self.folder)
        for name in self.hosts:
            self._links[name] = Link(self._switch, name, self.folder, rate, delay_microseconds)
        self._power_on([CONTROLLER, *self.hosts])
        pid = self._spaces[CONTROLLER].pid
        program = Path(self.controller[0])
        # A script, because entering other mounts would lose the current directory.
        enter = f"nsenter --target={pid} --mount --uts --net"
        program.write_text(f'#!/bin/sh\nexec {enter} -- env --chdir="$PWD" -- "$@"\n')
        program.chmod(0o755)

    def _power_on(self, names: Sequence[str]) -> None:
        for name in names:  # start all at once, then connect one after the other
            kinds = ["net", "mount", "uts"] if name == CONTROLLER else ["net", "mount", "uts", "ipc", "pid"]
            script = "controller.sh" if name == CONTROLLER else "host.sh"
            mounts = [] if name == CONTROLLER else self._mounts
            program: list[str | Path] = [_SCRIPTS / script, name, self.folder, *mounts]
            log, cores = self.folder / f"{name}.log", self._cores.get(name, ())
            self._spaces[name] = Namespaces(kinds, program, log, within=self._switch, cores=cores)
        is_large = len(self.hosts) ** 2 > _MOST_NEIGHBOURS
        known = [self.controller_address, *self._addresses.values()] if is_large else []
        for name in names:
            self._links[name].plug(self._spaces[name], self.address(name), known)
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

    def _space(self, name: str) -> Namespaces:
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
    """Remove the folders of labs whose process is dead. Everything else of them ended with it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _mounts(shared: Path) -> list[str]:
    """Return what a host mounts besides /: overlays of other file systems that hold Python, this project or the user's
    files, and the folder that it shares with the machine.
    """
    needed = [path.resolve() for path in (_SCRIPTS.parents[1], Path(sys.prefix), Path(sys.base_prefix), Path.home())]
    others = {_mount_point(path) for path in needed} - {Path("/")}
    others |= {path for path in needed if path.is_relative_to("/tmp")}  # a host's own /tmp would hide them
    overlays = [argument for path in sorted(others) for argument in ("overlay", str(path))]
    return [*overlays, "bind", str(shared)]


def _mount_point(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_mount())


def _argv(command: str | Sequence[str]) -> list[str]:
    return ["sh", "-c", command] if isinstance(command, str) else [str(argument) for argument in command]


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    if not options.keys() & {"stdout", "stderr", "capture_output"}:
        options["capture_output"] = True
    if not options.keys() & {"stdin", "input"}:
        options["stdin"] = subprocess.DEVNULL
    if not options.keys() & {"encoding", "universal_newlines"}:
        options.setdefault("text", True)
    options.setdefault("check", False)
    return options
