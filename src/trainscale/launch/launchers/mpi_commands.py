"""How Open MPI and MPICH are told the same thing: one process on each host, unbound, in the environment of the host.

``command`` is pure. Which of the two is here is found by asking ``mpirun --version``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from .callback import CALLBACK_VARIABLE

_PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")
_VERSION_SECONDS = 30
_NO_COMMAND = (126, 127, 255)  # of ssh: cannot be executed there, not found there, no connection
_RENAMED = {
    "plm_rsh_agent": "plm_ssh_agent",
    "plm_rsh_no_tree_spawn": "plm_ssh_no_tree_spawn",
    "orte_leave_session_attached": "prte_leave_session_attached",
    "oob_tcp_if_include": "prte_if_include",
}
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE|PRRTE)\) v?(\d+)")
# Where a system keeps its own programs: it finds their parts on the hosts too. By its whole path, Open MPI would change
# the search paths of what it starts there, as it has to where a module system or a user put it.
_USUAL_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")


@dataclass(frozen=True)
class HostGroup:
    """Hosts on which the same words are run."""

    hosts: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """What --interface means, where this machine is on that network: its name, empty for a range, and our address."""

    wanted: str
    name: str
    address: str


@dataclass(frozen=True)
class MpiRequest:
    """Keepers wanted. ``agent`` is the program that is called like ssh; without one mpirun knows a way itself."""

    groups: tuple[HostGroup, ...]
    address: str  # what the hosts call this machine
    agent: str | None = None
    network: Network | None = None
    root: bool = False

    @property
    def hosts(self) -> list[str]:
        return [host for group in self.groups for host in group.hosts]


class MpiImplementation(ABC):
    rank_variable: str
    tag: re.Pattern[str]  # what stands before a line that a process printed, with the process's number

    def __init__(self, program: str) -> None:
        self.program = program

    def cannot_start(self, code: int) -> bool:
        """Whether an ssh that ended with this exit code, other than 0, means that its host cannot be had."""
        return True

    @abstractmethod
    def command(self, order: MpiRequest) -> list[str]:
        """Process n is on the n-th host of the order. The call-back is passed on by its name, without its value."""


class OpenMpi(MpiImplementation):
    rank_variable = "OMPI_COMM_WORLD_RANK"
    tag = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:err|out)>:")

    def __init__(self, program: str, major: int) -> None:
        super().__init__(program)
        self.major = major

    def command(self, order: MpiRequest) -> list[str]:
        words = [self.program]
        if order.root:
            words.append("--allow-run-as-root")  # the hosts decide whom they let in; here it is the user's own machine
        if order.agent:
            # Its parts on the hosts look for the agent too, where there is none: any program that exists contents them.
            words += self._runtime("plm_rsh_agent", f"{order.agent} : true")
            # All are started from here, so that hosts need not reach each other by ssh, and stay attached to their
            # ssh, so that what they say, and their end, is known here.
            words += self._runtime("plm_rsh_no_tree_spawn", "1") + self._runtime("orte_leave_session_attached", "1")
        if order.network:
            words += self._runtime("oob_tcp_if_include", order.network.wanted)
            words += ["--mca", "btl_tcp_if_include", order.network.wanted]
        # Ranks are bound to cores by the worker, each to its own.
        words += ["--bind-to", "none", "--map-by", "node", *self._tagged]
        for number, group in enumerate(order.groups):
            words += [":"] if number else []
            words += ["-np", str(len(group.hosts)), "--host", ",".join(f"{host}:1" for host in group.hosts)]
            words += ["-x", CALLBACK_VARIABLE, "--wdir", "/", *group.words]
        return words

    def cannot_start(self, code: int) -> bool:
        """Its parts on hosts also end, with codes of their own, when it gives up because of another host."""
        return code in _NO_COMMAND

    def _runtime(self, name: str, value: str) -> list[str]:
        """A setting of the part that starts processes: with version 5 that became a program of its own."""
        if self.major < 5:
            return ["--mca", name, value]
        return ["--prtemca", _RENAMED[name], value]

    @property
    def _tagged(self) -> list[str]:
        return ["--tag-output"] if self.major < 5 else ["--output", "tag"]


class Mpich(MpiImplementation):
    rank_variable = "PMI_RANK"
    tag = re.compile(r"\[(\d+)\] ?")

    def command(self, order: MpiRequest) -> list[str]:
        words = [self.program]
        if order.agent:
            words += ["-launcher", "ssh", "-launcher-exec", order.agent]
        if order.network and order.network.name:
            words += ["-iface", order.network.name]
        else:
            # Its own idea of this machine's name need not be known to the hosts.
            words += ["-localhost", order.network.address if order.network else order.address]
        # The list is of all that is passed on; without it that would be this machine's whole environment.
        words += ["-bind-to", "none", "-prepend-rank", "-genvlist", CALLBACK_VARIABLE]
        words += ["-hosts", ",".join(order.hosts), "-ppn", "1"]
        for number, group in enumerate(order.groups):
            words += [":"] if number else []
            # It would go to a folder of this machine's, and fails where there is none of that name.
            words += ["-n", str(len(group.hosts)), "-wdir", "/", *group.words]
        return words


def find_mpi() -> MpiImplementation:
    """The first on the search path."""
    others = []
    for name in _PROGRAMS:
        path = shutil.which(name)
        if path is None:
            continue
        program = name if str(Path(path).parent) in _USUAL_FOLDERS else path
        said = _version(path)
        found = identify_mpi(program, said)
        if found is not None:
            return found
        others.append(f"{path} says {next(iter(said.split(chr(10))), '')!r}")
    seen = f"; {'; '.join(others)}" if others else ""
    raise InputError(
        "launcher mpi: no mpirun of Open MPI or MPICH on the PATH"
        f"{seen}; install one of them, load its module, or use --launcher ssh"
    )


def identify_mpi(program: str, said: str) -> MpiImplementation | None:
    """By what it says of its version."""
    version = _OPEN_MPI.search(said)
    if version:
        return OpenMpi(program, int(version[1]))
    return Mpich(program) if "HYDRA" in said else None


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode(errors="replace").strip()
