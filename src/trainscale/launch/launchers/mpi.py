"""The MPI launcher: for each trial, an mpirun of Open MPI or MPICH starts the keepers, which call back.

Training does not use MPI. mpirun reaches the hosts by the user's ssh, as the ssh launcher does.
"""

import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

from ...cluster.allocation import is_inside_mpi, is_inside_slurm
from ...errors import InputError
from ...spec.devices import Host
from ...worker.inspection.host import list_addresses
from ...worker.keeper.program import MPI_PREFIXES
from ..connection import KeeperConnection
from ..hosts import choose_network
from .callback import (
    CALLBACK_VARIABLE,
    CallbackEndpoint,
    CallbackLauncher,
    CommandReport,
    find_outward_address,
    make_callback_program,
)
from .ssh import UsesSsh, make_shell_command, make_ssh_command

_PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE|PRRTE)\) v?(\d+)")
# A program elsewhere is called by its full path: Open MPI then changes the search paths on the hosts.
_SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")
_RENAMED = {
    "plm_rsh_agent": "plm_ssh_agent",
    "plm_rsh_no_tree_spawn": "plm_ssh_no_tree_spawn",
    "orte_leave_session_attached": "prte_leave_session_attached",
    "oob_tcp_if_include": "prte_if_include",
}

# What the wrappers of ssh and of the keeper print, and mpirun when it loses a host or ends.
_ENDED = "ended with exit code"
_END = re.compile(rf"(?P<program>ssh|the keeper) {_ENDED} (?P<code>\d+)")
_LOST_DAEMON = re.compile(r"Remote daemon: .* on node (?P<host>\S+)$")
_ORPHANED = re.compile(r"HYD_pmcd_pmip_control_cmd_cb .*assert \(!closed\) failed")
_SSH_WRAPPER = """\
#!/bin/bash
# mpirun calls this in place of ssh. It puts the host's name before every line that is printed there or by ssh.
# MPICH's mpirun may end before it has relayed these lines. So they go to where its own messages go, if possible.
messages=/proc/$PPID/fd/2
{{ true >>$messages; }} 2>/dev/null || messages=/dev/stderr
# It closes mpirun's own connections: some versions leave them open in what they start.
for number in {{3..255}}; do eval "exec $number>&-"; done
for word in "$@"; do case $word in -*) ;; *) host=$word; break ;; esac; done
case $host in
{cases}
esac
exec 3>&1
{{
    "${{ssh[@]}}" "$@" 2>&1 >&3 3>&-
    code=$?
    [ $code = 0 ] || echo "ssh {ended} $code"
    exit $code
}} | sed "s/^/$host: /" >>$messages
exit "${{PIPESTATUS[0]}}"
"""


# ---- the command lines of Open MPI and MPICH: one unbound process on each host

Keeper = tuple[str, tuple[str, ...]]  # a host and its command


class MpiImplementation(ABC):
    rank_variable: str
    tag: re.Pattern[str]  # before a line of a process, with its number
    unreachable_codes: Collection[int] = range(1, 256)  # of an ssh whose host cannot be used

    def __init__(self, program: str) -> None:
        self.program = program

    def make_command(
        self, keepers: Sequence[Keeper], address: str, ssh_wrapper: str | None = None, network: str = ""
    ) -> list[str]:
        """Process n is on the n-th host. mpirun itself uses ``address`` and ``network``, an interface or a range."""
        hosts = [host for host, _ in keepers]
        argv = [self.program, *self.list_options(hosts, address, ssh_wrapper, network)]
        for number, (command, group) in enumerate(groupby(keepers, lambda keeper: keeper[1])):
            argv += [":"] if number else []
            argv += [*self.list_part_options([host for host, _ in group]), *command]
        return argv

    @abstractmethod
    def list_options(self, hosts: list[str], address: str, ssh_wrapper: str | None, network: str) -> list[str]: ...

    @abstractmethod
    def list_part_options(self, hosts: list[str]) -> list[str]:
        """Return the options of hosts that run the same command."""


class OpenMpi(MpiImplementation):
    rank_variable = "OMPI_COMM_WORLD_RANK"
    tag = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:err|out)>:")
    # Not executable there, not found there, no connection. Other codes follow from another host.
    unreachable_codes = (126, 127, 255)

    def __init__(self, program: str, major: int) -> None:
        super().__init__(program)
        self.major = major

    def list_options(self, hosts: list[str], address: str, ssh_wrapper: str | None, network: str) -> list[str]:
        options = []
        if ssh_wrapper:
            # Its parts on the hosts look for this program too; any will do: true.
            options += self._make_runtime_option("plm_rsh_agent", f"{ssh_wrapper} : true")
            # Hosts need not reach each other by ssh; their output and end are known here.
            options += self._make_runtime_option("plm_rsh_no_tree_spawn", "1")
            options += self._make_runtime_option("orte_leave_session_attached", "1")
        if network:
            options += self._make_runtime_option("oob_tcp_if_include", network)
            options += ["--mca", "btl_tcp_if_include", network]
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        tag_output = ["--tag-output"] if self.major < 5 else ["--output", "tag"]
        # The worker binds each rank to its own cores.
        return [*as_root, *options, "--bind-to", "none", "--map-by", "node", *tag_output]

    def list_part_options(self, hosts: list[str]) -> list[str]:
        places = ",".join(f"{host}:1" for host in hosts)
        return ["-np", str(len(hosts)), "--host", places, "-x", CALLBACK_VARIABLE, "--wdir", "/"]

    def _make_runtime_option(self, name: str, value: str) -> list[str]:
        """Set an option of the process starter, which is a program of its own since version 5."""
        return ["--mca", name, value] if self.major < 5 else ["--prtemca", _RENAMED[name], value]


class Mpich(MpiImplementation):
    rank_variable = "PMI_RANK"
    tag = re.compile(r"\[(\d+)\] ?")

    def list_options(self, hosts: list[str], address: str, ssh_wrapper: str | None, network: str) -> list[str]:
        launcher = ["-launcher", "ssh", "-launcher-exec", ssh_wrapper] if ssh_wrapper else []
        # Hosts may not know this machine's name, and need not know its environment.
        own = ["-localhost", address, "-bind-to", "none", "-prepend-rank", "-genvlist", CALLBACK_VARIABLE]
        return [*launcher, *own, "-hosts", ",".join(hosts), "-ppn", "1"]

    def list_part_options(self, hosts: list[str]) -> list[str]:
        # By default it enters the current folder, which a host may lack.
        return ["-n", str(len(hosts)), "-wdir", "/"]


# ---- the launcher


class MpiLauncher(UsesSsh, CallbackLauncher):
    name = "mpi"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @cached_property
    def mpi(self) -> MpiImplementation:
        """Return the first known mpirun on the search path."""
        others = []
        pipe, null, together = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
        for name in _PROGRAMS:
            path = shutil.which(name)
            if path is None:
                continue
            command = [path, "--version"]
            try:
                done = subprocess.run(command, stdin=null, stdout=pipe, stderr=together, timeout=30)
                version = done.stdout.decode(errors="replace").strip()
            except (OSError, subprocess.TimeoutExpired) as error:
                version = str(error)
            program = name if str(Path(path).parent) in _SYSTEM_FOLDERS else path
            if open_mpi := _OPEN_MPI.search(version):
                return OpenMpi(program, int(open_mpi[1]))
            if "HYDRA" in version:
                return Mpich(program)
            others.append(f"{path} says {version.partition(chr(10))[0]!r}")
        seen = f"; {'; '.join(others)}" if others else ""
        raise InputError(
            "launcher mpi: no mpirun of Open MPI or MPICH on the PATH"
            f"{seen}; install one of them, load its module, or use --launcher ssh"
        )

    @cached_property
    def ssh_wrapper(self) -> str | None:
        """Write what mpirun calls in place of ssh; inside a Slurm job, it calls srun."""
        if is_inside_slurm(os.environ):
            return None
        folder = tempfile.gettempdir()
        # Open MPI splits the path at spaces.
        folder = "/tmp" if " " in folder else folder
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-mpi-", dir=folder)
        names_by_command: dict[str, list[str]] = {}
        for host in self.access.hosts:
            command = shlex.join(make_ssh_command(self.access, self.settings, host))
            names_by_command.setdefault(command, []).append(shlex.quote(host.name))
        cases = [f"    {'|'.join(names)}) ssh=({command}) ;;" for command, names in names_by_command.items()]
        path = Path(self._folder.name) / "ssh-wrapper"
        path.write_text(_SSH_WRAPPER.format(cases="\n".join(cases), ended=_ENDED))
        path.chmod(0o700)
        return str(path)

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        _ = self.mpi, self.ssh_wrapper  # an error is raised before anything is started
        return super().open(hosts)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        keepers: list[Keeper] = []
        for name in hosts:
            if ":" in name:
                reason = "mpirun would take what follows a colon for a number"
                raise InputError(f"host {name}: {reason}; give it a name in the hosts file: ADDRESS NAME")
            host = self.access.find_host(name)
            keeper = self.keeper_command(host.python or self.access.python or "python3")
            line = make_shell_command(keeper, self.access.join_setup(host))
            # A shell in the home folder, as by ssh, which reports the keeper's exit code.
            script = f'cd; ({line}) || echo "the keeper {_ENDED} $?" >&2'
            keepers.append((name, ("/bin/sh", "-c", script)))
        address, network = endpoint.address, self.access.interface or ""
        if network:
            try:
                address, _ = choose_network(Host("this machine"), list_addresses(), network)
            except InputError:  # this machine is not on it: it connects the hosts only
                network = ""
        return self.mpi.make_command(keepers, address, self.ssh_wrapper, network)

    def keeper_command(self, host_python: str) -> list[str]:
        """The keeper drops all MPI variables, because ranks are not part of this job."""
        read_index = f'import os;i=os.environ["{self.mpi.rank_variable}"];'
        drop = f"[os.environ.pop(n)for n in list(os.environ)if n.startswith({MPI_PREFIXES})];"
        return [host_python, "-c", read_index + drop.replace("'", '"') + make_callback_program("i")]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Leave out the variables of an mpirun around this process."""
        environment = super().environment(endpoint)
        dropped = (CALLBACK_VARIABLE, *(MPI_PREFIXES if is_inside_mpi(environment) else ()))
        others = {name: value for name, value in environment.items() if not name.startswith(dropped)}
        # It comes first, because some MPICH (4.0) never passes on the last variable.
        return {CALLBACK_VARIABLE: environment[CALLBACK_VARIABLE], **others}

    def controller_address(self) -> str:
        """A name in the hosts file may be one that only ssh knows."""
        if self.access.controller:
            return self.access.controller
        addresses = []
        for host in self.access.hosts[:4]:
            address = host.address
            try:
                socket.getaddrinfo(address, None, socket.AF_INET)
            except (OSError, UnicodeError):
                command = [*make_ssh_command(self.access, self.settings, host), "-G", host.name]
                done = subprocess.run(command, capture_output=True, text=True)
                names = re.findall(r"(?m)^hostname (.+)$", done.stdout)
                address = names[0] if names else address
            addresses.append(address)
        return find_outward_address(addresses)

    def read_output(self, output: str, hosts: Sequence[str]) -> CommandReport:
        """Read what was printed on each host or by ssh about it, and of mpirun's own text what is certain."""
        by_host: dict[str, list[str]] = {}
        failed: dict[str, str] = {}
        orphans = set()  # hosts on which a part of mpirun ended because mpirun did
        for line in output.splitlines():
            if lost := _LOST_DAEMON.search(line):
                failed.setdefault(lost["host"], "mpirun lost the connection to it")
            host, _, text = line.partition(": ")
            tag = self.mpi.tag.match(line)
            if tag and int(tag[1]) < len(hosts):  # of a line in pieces, each has the tag
                host, text = hosts[int(tag[1])], line[tag.end() :].replace(tag[0], "")
            text = text.strip()
            if _ORPHANED.search(line):
                orphans.add(host)
            if (end := _END.fullmatch(text)) is None:
                by_host.setdefault(host, []).append(text)
            elif end["program"] != "ssh" or int(end["code"]) in self.mpi.unreachable_codes:
                failed.setdefault(host, text)
        usable = [host for host in hosts if host not in orphans]
        from_slurm = "\n".join(line for line in output.splitlines() if line.startswith("srun:"))
        messages = {**super().read_output(from_slurm, usable).by_host, **failed}
        for host in usable:
            own = "\n".join(filter(None, by_host.get(host, ())))
            messages[host] = own or messages.get(host, "")
        # The first line between mpirun's rulers of dashes, if it printed such a block.
        blocks = [block.strip() for block in re.split(r"(?m)^-{20,}$", output)[1::2]]
        return CommandReport(
            {host: messages[host] for host in usable if messages[host]},
            [host for host in failed if host in usable],
            next((block.splitlines()[0] for block in blocks if block), ""),
        )
