"""The command lines of Open MPI's and MPICH's mpirun for the same request: one unbound process on each host.

``make_command`` is pure. ``mpirun --version`` shows which of the two is installed.
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
_UNREACHABLE_CODES = (126, 127, 255)  # of ssh: not executable there, not found there, no connection
_RENAMED = {
    "plm_rsh_agent": "plm_ssh_agent",
    "plm_rsh_no_tree_spawn": "plm_ssh_no_tree_spawn",
    "orte_leave_session_attached": "prte_leave_session_attached",
    "oob_tcp_if_include": "prte_if_include",
}
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE|PRRTE)\) v?(\d+)")
# The system's own folders. A program in them is called by its name, and finds its parts on the hosts too. If it is
# called by its full path, Open MPI changes the search paths of what it starts there, which it needs only where a module
# system or a user installed it.
_SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")


@dataclass(frozen=True)
class HostGroup:
    """Hosts that run the same command."""

    hosts: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True)
class MpiNetwork:
    """What --interface means on this machine: its interface, empty for a range, and its address on that network."""

    wanted: str
    name: str
    address: str


@dataclass(frozen=True)
class MpiRequest:
    """The keepers to start. ``ssh_wrapper`` is called like ssh; without it mpirun reaches the hosts by itself."""

    groups: tuple[HostGroup, ...]
    address: str  # by which the hosts reach this machine
    ssh_wrapper: str | None = None
    network: MpiNetwork | None = None
    is_root: bool = False

    @property
    def hosts(self) -> list[str]:
        return [host for group in self.groups for host in group.hosts]


class MpiImplementation(ABC):
    rank_variable: str
    tag: re.Pattern[str]  # what mpirun prints before a line of a process, with the number of the process
    # What its part on a host prints when mpirun has ended.
    orphaned: re.Pattern[str] | None = None

    def __init__(self, program: str) -> None:
        self.program = program

    def means_unreachable(self, code: int) -> bool:
        """Return whether this exit code of ssh, other than 0, means that its host cannot be used."""
        return True

    @abstractmethod
    def make_command(self, request: MpiRequest) -> list[str]:
        """Return the command. Process n is on the n-th host of the request. The callback variable is passed on by its
        name only.
        """


class OpenMpi(MpiImplementation):
    rank_variable = "OMPI_COMM_WORLD_RANK"
    tag = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:err|out)>:")

    def __init__(self, program: str, major: int) -> None:
        super().__init__(program)
        self.major = major

    def make_command(self, request: MpiRequest) -> list[str]:
        argv = [self.program]
        if request.is_root:
            argv.append("--allow-run-as-root")  # it protects this machine only, which is the user's own
        if request.ssh_wrapper:
            # Its parts on the hosts look for this program too, and are content with any that exists there: true.
            argv += self._make_runtime_option("plm_rsh_agent", f"{request.ssh_wrapper} : true")
            # This machine starts all of them, so that hosts need not reach each other by ssh. They stay attached to
            # their ssh, so that their output and their end are known here.
            argv += self._make_runtime_option("plm_rsh_no_tree_spawn", "1")
            argv += self._make_runtime_option("orte_leave_session_attached", "1")
        if request.network:
            argv += self._make_runtime_option("oob_tcp_if_include", request.network.wanted)
            argv += ["--mca", "btl_tcp_if_include", request.network.wanted]
        tag_output = ["--tag-output"] if self.major < 5 else ["--output", "tag"]
        # The worker binds each rank to its own cores.
        argv += ["--bind-to", "none", "--map-by", "node", *tag_output]
        for number, group in enumerate(request.groups):
            argv += [":"] if number else []
            argv += ["-np", str(len(group.hosts)), "--host", ",".join(f"{host}:1" for host in group.hosts)]
            argv += ["-x", CALLBACK_VARIABLE, "--wdir", "/", *group.command]
        return argv

    def means_unreachable(self, code: int) -> bool:
        """Its parts on the hosts also end, with other codes, when it gives up because of another host."""
        return code in _UNREACHABLE_CODES

    def _make_runtime_option(self, name: str, value: str) -> list[str]:
        """Return the arguments that set an option of the process starter, a program of its own since version 5."""
        return ["--mca", name, value] if self.major < 5 else ["--prtemca", _RENAMED[name], value]


class Mpich(MpiImplementation):
    rank_variable = "PMI_RANK"
    tag = re.compile(r"\[(\d+)\] ?")
    orphaned = re.compile(r"HYD_pmcd_pmip_control_cmd_cb .*assert \(!closed\) failed")

    def make_command(self, request: MpiRequest) -> list[str]:
        argv = [self.program]
        if request.ssh_wrapper:
            argv += ["-launcher", "ssh", "-launcher-exec", request.ssh_wrapper]
        if request.network and request.network.name:
            argv += ["-iface", request.network.name]
        else:
            # The hosts may not know the name that it would choose for this machine.
            argv += ["-localhost", request.network.address if request.network else request.address]
        # Without this list it would pass on the whole environment of this machine.
        argv += ["-bind-to", "none", "-prepend-rank", "-genvlist", CALLBACK_VARIABLE]
        argv += ["-hosts", ",".join(request.hosts), "-ppn", "1"]
        for number, group in enumerate(request.groups):
            argv += [":"] if number else []
            # By default it enters the folder of this machine, and fails on a host that has no such folder.
            argv += ["-n", str(len(group.hosts)), "-wdir", "/", *group.command]
        return argv


def find_mpi() -> MpiImplementation:
    """Return the first known mpirun on the search path."""
    others = []
    for name in _PROGRAMS:
        path = shutil.which(name)
        if path is None:
            continue
        version = _read_version(path)
        mpi = identify_mpi(name if str(Path(path).parent) in _SYSTEM_FOLDERS else path, version)
        if mpi is not None:
            return mpi
        others.append(f"{path} says {version.partition(chr(10))[0]!r}")
    seen = f"; {'; '.join(others)}" if others else ""
    raise InputError(
        "launcher mpi: no mpirun of Open MPI or MPICH on the PATH"
        f"{seen}; install one of them, load its module, or use --launcher ssh"
    )


def identify_mpi(program: str, version: str) -> MpiImplementation | None:
    """Return the implementation that prints this text as its version."""
    open_mpi = _OPEN_MPI.search(version)
    if open_mpi:
        return OpenMpi(program, int(open_mpi[1]))
    return Mpich(program) if "HYDRA" in version else None


def _read_version(path: str) -> str:
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
