"""The MPI launcher: for each trial one mpirun of Open MPI or MPICH starts a keeper on each host, and they call back.

Nothing here uses MPI for training: the ranks connect by the frameworks' own means. mpi_commands.py makes mpirun's
command line; mpirun reaches the hosts by the user's ssh, as the ssh launcher does.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ...cluster.allocation import is_inside_mpi, is_inside_slurm
from ...cluster.hosts import HostAccess
from ...errors import InputError
from ...spec.devices import Host
from ...spec.settings import SettingGroup
from ...worker.inspection.host import list_addresses
from ...worker.keeper.program import MPI_PREFIXES
from ..connection import KeeperConnection
from ..ssh_errors import SshError
from .callback import (
    CALLBACK_PROGRAM,
    CALLBACK_VARIABLE,
    CallbackEndpoint,
    CallbackLauncher,
    explain_no_callback,
    find_outward_address,
)
from .mpi_commands import HostGroup, MpiImplementation, MpiNetwork, MpiRequest, find_mpi
from .ssh import SshSettings, UsesSsh, make_shell_command, make_ssh_command

_ENDED = "ended with exit code"
_END = re.compile(rf"(?P<program>ssh|the keeper) {_ENDED} (?P<code>\d+)")
_NO_PROXY_CONNECTION = re.compile(r'unable to connect from "[^"]*" to "[^"]*" \((?P<reason>[^)]*)\)')
_LOST_DAEMON = re.compile(r"Remote daemon: .* on node (?P<host>\S+)$", re.MULTILINE)
_NO_DAEMON = re.compile(r"(?:orted|prted|hydra_pmi_proxy)\S*: (?:command )?(?:not found|No such file)")
_HOSTS_TO_RESOLVE = 4
_SSH_WRAPPER = """\
#!/bin/bash
# mpirun calls this in place of ssh. It puts the host's name before every line that is printed there or by ssh.
# MPICH's mpirun relays these lines, and ends when it loses a host, perhaps before it has read why. So they go directly
# to where mpirun's own messages go, if the system has that path.
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


class MpiLauncher(UsesSsh, CallbackLauncher):
    name = "mpi"

    def __init__(
        self,
        access: HostAccess | None = None,
        settings: SettingGroup | None = None,
        mpi: MpiImplementation | None = None,
        ssh_wrapper: str | None = None,
    ) -> None:
        """``mpi`` is found, and ``ssh_wrapper`` written, when they are first needed."""
        super().__init__(access, settings)
        self._mpi, self._ssh_wrapper = mpi, ssh_wrapper
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @property
    def mpi(self) -> MpiImplementation:
        if self._mpi is None:
            self._mpi = find_mpi()
        return self._mpi

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        with self._lock:
            self._mpi = self.mpi  # raises an error if there is none, before anything is written
            # Inside a Slurm job mpirun starts its own parts by srun.
            if self._ssh_wrapper is None and not is_inside_slurm(os.environ):
                self._ssh_wrapper = self._write_ssh_wrapper()
        return super().open(hosts)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        for host in hosts:
            if ":" in host:
                reason = "mpirun would take what follows a colon for a number"
                raise InputError(f"host {host}: {reason}; give it a name in the hosts file: ADDRESS NAME")
        keepers = [(host, self._make_keeper_shell(self.access.find_host(host))) for host in hosts]
        groups = groupby(keepers, lambda keeper: keeper[1])
        request = MpiRequest(
            groups=tuple(HostGroup(tuple(host for host, _ in group), command) for command, group in groups),
            address=endpoint.address,
            ssh_wrapper=self._ssh_wrapper,
            network=find_network(self.access.interface, list_addresses()),
            is_root=os.geteuid() == 0,
        )
        return self.mpi.make_command(request)

    def _make_keeper_shell(self, host: Host) -> tuple[str, ...]:
        """Return a shell in the home folder, as ssh would start. It outlives the keeper, to report its exit code."""
        command = self.keeper_command(host.python or self.access.python or "python3")
        line = make_shell_command(command, self.access.join_setup(host))
        return ("/bin/sh", "-c", f'cd; ({line}) || echo "the keeper {_ENDED} $?" >&2')

    def keeper_command(self, host_python: str) -> list[str]:
        """Return the keeper's command, which drops all MPI variables: ranks are no processes of this MPI job."""
        read_index = f'import os;i=os.environ["{self.mpi.rank_variable}"];'
        drop = f"[os.environ.pop(n)for n in list(os.environ)if n.startswith({MPI_PREFIXES})];".replace("'", '"')
        return [host_python, "-c", read_index + drop + CALLBACK_PROGRAM.replace("{index}", "i")]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the environment of mpirun, without the variables of an mpirun that started this process."""
        environment = super().environment(endpoint)
        dropped = (CALLBACK_VARIABLE, *(MPI_PREFIXES if is_inside_mpi(environment) else ()))
        others = {name: value for name, value in environment.items() if not name.startswith(dropped)}
        # It comes first, because some MPICH (4.0) never passes on the last variable.
        return {CALLBACK_VARIABLE: environment[CALLBACK_VARIABLE], **others}

    def controller_address(self) -> str:
        """Return this machine's address. A name in the hosts file may be one that only ssh knows."""
        if self.access.controller:
            return self.access.controller
        hosts = self.access.hosts[:_HOSTS_TO_RESOLVE]
        return find_outward_address(
            [host.address if _resolves(host.address) else self._find_address_by_ssh(host) for host in hosts]
        )

    def _find_address_by_ssh(self, host: Host) -> str:
        command = [*self.make_ssh_command(host), "-G", host.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        names = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("hostname ")]
        return names[0] if names else host.address

    def _write_ssh_wrapper(self) -> str:
        folder = tempfile.gettempdir()
        # Open MPI splits the path at spaces.
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-mpi-", dir="/tmp" if " " in folder else folder)
        path = Path(self._folder.name) / "ssh-wrapper"
        path.write_text(make_ssh_wrapper_script(self.access, self.settings))
        path.chmod(0o700)
        return str(path)

    # How the output of mpirun is read

    def name_hosts(self, output: str, hosts: Sequence[str]) -> str:
        """Leave out the hosts on which a part of mpirun has ended because mpirun has: their lines name no cause."""
        lines = [self._name_host(line, hosts) for line in output.splitlines()]
        orphaned = self.mpi.orphaned
        prefixes = {line.partition(": ")[0] + ": " for line in lines if orphaned and orphaned.search(line)}
        return "\n".join(line for line in lines if not line.startswith(tuple(prefixes)))

    def _name_host(self, line: str, hosts: Sequence[str]) -> str:
        tag = self.mpi.tag.match(line)
        if tag is None or int(tag[1]) >= len(hosts):
            return line
        # A line that was printed in pieces has the tag before each piece.
        return f"{hosts[int(tag[1])]}: {line[tag.end() :].replace(tag[0], '')}"

    def output_about(self, host: str, output: str) -> str:
        """Return all that was printed on the host, or by ssh about it; of mpirun's own text only what is certain."""
        prefix = f"{host}: "
        lines = [line.removeprefix(prefix).strip() for line in output.splitlines() if line.startswith(prefix)]
        messages = [line for line in lines if line and not _END.fullmatch(line)]
        if messages or any(map(self._reports_end, lines)):
            return "\n".join(messages or lines)
        if any(lost["host"] == host for lost in _LOST_DAEMON.finditer(output)):
            return "mpirun lost the connection to it"
        return super().output_about(host, "\n".join(line for line in output.splitlines() if line.startswith("srun:")))

    def explain_error(self, host: str, message: str) -> SshError:
        if _NO_DAEMON.search(message):
            remedy = "install the same MPI there, and let a shell without a terminal find it (PATH in ~/.bashrc)"
            return SshError(f"no MPI there: {message.strip().splitlines()[-1]}", remedy)
        proxy = _NO_PROXY_CONNECTION.search(message)
        if proxy:
            return explain_no_callback(proxy["reason"])
        return super().explain_error(host, message)

    def summarise(self, output: str) -> str:
        """Return the first line between mpirun's rulers of dashes, if it printed such a block."""
        blocks = [block.strip() for block in re.split(r"(?m)^-{20,}$", output)[1::2]]
        return next((block.splitlines()[0] for block in blocks if block), "")

    def failed_hosts(self, hosts: Sequence[str], output: str) -> list[str]:
        failed: dict[str, None] = {}
        for line in output.splitlines():
            host, _, message = line.partition(": ")
            lost = _LOST_DAEMON.search(line)
            if lost:
                failed[lost["host"]] = None
            elif self._reports_end(message.strip()):
                failed[host] = None
        return [host for host in failed if host in hosts]

    def _reports_end(self, line: str) -> bool:
        """Return whether the line reports that a keeper ended or cannot be reached."""
        end = _END.fullmatch(line)
        return end is not None and (end["program"] != "ssh" or self.mpi.means_unreachable(int(end["code"])))


def make_ssh_wrapper_script(access: HostAccess, settings: SshSettings) -> str:
    """Return a script that is called like ssh, with any of the hosts and a command."""
    hosts_by_command: dict[str, list[str]] = {}
    for host in access.hosts:
        hosts_by_command.setdefault(shlex.join(make_ssh_command(access, settings, host)), []).append(
            shlex.quote(host.name)
        )
    cases = [f"    {'|'.join(names)}) ssh=({command}) ;;" for command, names in hosts_by_command.items()]
    return _SSH_WRAPPER.format(cases="\n".join(cases), ended=_ENDED)


def find_network(wanted: str | None, own_addresses: Mapping[str, str]) -> MpiNetwork | None:
    """Return what --interface means on this machine; None if this machine is not on that network, which may connect
    the hosts only.
    """
    if not wanted:
        return None
    if "/" not in wanted:
        return MpiNetwork(wanted, wanted, own_addresses[wanted]) if wanted in own_addresses else None
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError as error:
        raise InputError(
            f"interface {wanted!r}: {error}; valid: a name such as eth1, a range such as 10.0.0.0/16"
        ) from None
    inside = [address for address in own_addresses.values() if ipaddress.ip_address(address) in network]
    return MpiNetwork(wanted, "", inside[0]) if inside else None


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, socket.AF_INET))
    except (OSError, UnicodeError):
        return False
