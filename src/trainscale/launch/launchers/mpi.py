"""The MPI launcher: one mpirun of Open MPI or MPICH a trial starts a keeper on each of its hosts, and they call back.

Nothing here uses MPI for training: the ranks meet by the frameworks' own means. How mpirun is called is in
mpi_dialects.py; how it reaches hosts is the user's ssh, as the ssh launcher uses it.
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

from ...cluster.allocation import inside_slurm
from ...cluster.hosts import Host, HostAccess
from ...cluster.mpi_world import WORLD_PREFIXES, is_inside_mpi
from ...errors import InputError
from ...worker.inspection.host_facts import addresses
from ..connections.keeper import KeeperConnection
from ..connections.ssh_errors import SshError
from .callback import (
    CALLBACK_PROGRAM,
    CALLBACK_VARIABLE,
    CallbackEndpoint,
    CallbackLauncher,
    explain_no_callback,
    find_outward_address,
)
from .mpi_commands import HostGroup, MpiImplementation, MpiRequest, Network, find_mpi
from .ssh import shell_command, ssh_command

_ENDED = "ended with exit code"
_END = re.compile(rf"(?P<who>ssh|the keeper) {_ENDED} (?P<code>\d+)")
_NO_PROXY_CALL = re.compile(r'unable to connect from "[^"]*" to "[^"]*" \((?P<why>[^)]*)\)')
_LOST_DAEMON = re.compile(r"Remote daemon: .* on node (?P<host>\S+)$", re.MULTILINE)
_NO_DAEMON = re.compile(r"(?:orted|prted|hydra_pmi_proxy)\S*: (?:command )?(?:not found|No such file)")
_HOSTS_TO_RESOLVE = 4
_AGENT = """\
#!/bin/bash
# How mpirun reaches hosts. What is said there, or of there, gets the host's name before it.
# Connections of mpirun must end with it: some leave theirs open for whom they start.
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
}} | sed "s/^/$host: /" >&2
exit "${{PIPESTATUS[0]}}"
"""


class MpiLauncher(CallbackLauncher):
    name = "mpi"

    def __init__(
        self, where: HostAccess | None = None, mpi: MpiImplementation | None = None, agent: str | None = None
    ) -> None:
        """``mpi`` is found when it is needed, ``agent`` is written then."""
        super().__init__(where)
        self._mpi, self._agent = mpi, agent
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @property
    def mpi(self) -> MpiImplementation:
        if self._mpi is None:
            self._mpi = find_mpi()
        return self._mpi

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        with self._lock:
            self._mpi = self.mpi  # an error if there is none, before anything is written
            # Inside a Slurm job mpirun starts its own parts by srun.
            if self._agent is None and not inside_slurm(os.environ):
                self._agent = self._write_agent()
        return super().open(hosts)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def command(self, hosts: Sequence[str], call: CallbackEndpoint) -> list[str]:
        for host in hosts:
            if ":" in host:
                words = "mpirun would take what follows a colon for a number"
                raise InputError(f"host {host}: {words}; give it a name in the hosts file: ADDRESS NAME")
        keepers = [(host, self._keeper_line(self.access.host(host))) for host in hosts]
        order = MpiRequest(
            groups=tuple(
                HostGroup(tuple(h for h, _ in same), line) for line, same in groupby(keepers, lambda one: one[1])
            ),
            address=call.address,
            agent=self._agent,
            network=find_network(self.access.interface, addresses()),
            root=os.geteuid() == 0,
        )
        return self.mpi.command(order)

    def _keeper_line(self, to: Host) -> tuple[str, ...]:
        """A shell in the home folder, as ssh would give. It stays, to say that there is no keeper any more."""
        words = self.keeper_command(to.python or self.access.python or "python3")
        line = shell_command(words, self.access.setup_of(to))
        return ("/bin/sh", "-c", f'cd; ({line}) || echo "the keeper {_ENDED} $?" >&2')

    def keeper_command(self, host_python: str) -> list[str]:
        """Ranks are no processes of this MPI job, and get none of its variables."""
        who = f'import os;i=os.environ["{self.mpi.rank_variable}"];'
        forget = f"[os.environ.pop(n)for n in list(os.environ)if n.startswith({WORLD_PREFIXES})];".replace("'", '"')
        return [host_python, "-c", who + forget + CALLBACK_PROGRAM.replace("{index}", "i")]

    def environment(self, call: CallbackEndpoint) -> dict[str, str]:
        """Where this process was itself started by an mpirun, that one's variables are not for this one."""
        whole = super().environment(call)
        foreign = WORLD_PREFIXES if is_inside_mpi(whole) else ()
        rest = {
            name: value for name, value in whole.items() if name != CALLBACK_VARIABLE and not name.startswith(foreign)
        }
        # First, because some MPICH (4.0) never passes on the last.
        return {CALLBACK_VARIABLE: whole[CALLBACK_VARIABLE], **rest}

    def address(self) -> str:
        """A name in the hosts file may be one that ssh alone knows."""
        if self.access.controller:
            return self.access.controller
        some = self.access.hosts[:_HOSTS_TO_RESOLVE]
        return find_outward_address([host.address if _resolves(host.address) else self._by_ssh(host) for host in some])

    def _by_ssh(self, host: Host) -> str:
        done = subprocess.run(
            [*ssh_command(self.access, host), "-G", host.name], capture_output=True, text=True, check=False
        )
        names = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("hostname ")]
        return names[0] if names else host.address

    def _write_agent(self) -> str:
        folder = tempfile.gettempdir()
        # Open MPI cuts the name of its agent at spaces.
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-mpi-", dir="/tmp" if " " in folder else folder)
        path = Path(self._folder.name) / "agent"
        path.write_text(ssh_wrapper_script(self.access))
        path.chmod(0o700)
        return str(path)

    # What mpirun says

    def translate(self, said: str, hosts: Sequence[str]) -> str:
        return "\n".join(self._name(line, hosts) for line in said.splitlines())

    def _name(self, line: str, hosts: Sequence[str]) -> str:
        tag = self.mpi.tag.match(line)
        if tag is None or int(tag[1]) >= len(hosts):
            return line
        # A line that was printed in pieces has the tag before each.
        return f"{hosts[int(tag[1])]}: {line[tag.end() :].replace(tag[0], '')}"

    def explain(self, host: str, said: str) -> str:
        """All that was printed there, or by ssh of there; of mpirun's own prose only what is certain."""
        prefix = f"{host}: "
        lines = [line.removeprefix(prefix).strip() for line in said.splitlines() if line.startswith(prefix)]
        telling = [line for line in lines if line and not _END.fullmatch(line)]
        if telling or any(map(self._gone, lines)):
            return "\n".join(telling or lines)
        if any(lost["host"] == host for lost in _LOST_DAEMON.finditer(said)):
            return "mpirun lost the connection to it"
        return super().explain(host, "\n".join(line for line in said.splitlines() if line.startswith("srun:")))

    def trouble(self, host: str, words: str) -> SshError:
        if _NO_DAEMON.search(words):
            remedy = "install the same MPI there, and let a shell without a terminal find it (PATH in ~/.bashrc)"
            return SshError(f"no MPI there: {words.strip().splitlines()[-1]}", remedy)
        proxy = _NO_PROXY_CALL.search(words)
        if proxy:
            return explain_no_callback(proxy["why"])
        return super().trouble(host, words)

    def summarise(self, said: str) -> str:
        """The first line between the last two rulers, where it prints such."""
        blocks = [block.strip() for block in re.split(r"(?m)^-{20,}$", said)]
        told = [block for block in blocks[1::2] if block]
        return told[0].splitlines()[0] if told else ""

    def given_up(self, hosts: Sequence[str], said: str) -> list[str]:
        found: dict[str, None] = {}
        for line in said.splitlines():
            host, _, words = line.partition(": ")
            lost = _LOST_DAEMON.search(line)
            if lost:
                found[lost["host"]] = None
            elif host in hosts and self._gone(words.strip()):
                found[host] = None
        return [host for host in found if host in hosts]

    def _gone(self, line: str) -> bool:
        """Whether it says that there is no keeper, or no way to one."""
        end = _END.fullmatch(line)
        return end is not None and (end["who"] != "ssh" or self.mpi.cannot_start(int(end["code"])))


def ssh_wrapper_script(where: HostAccess) -> str:
    """What is called like ssh, with a host and a command line, for any of the hosts."""
    by_words: dict[str, list[str]] = {}
    for host in where.hosts:
        by_words.setdefault(shlex.join(ssh_command(where, host)), []).append(shlex.quote(host.name))
    cases = [f"    {'|'.join(names)}) ssh=({words}) ;;" for words, names in by_words.items()]
    return _AGENT.format(cases="\n".join(cases), ended=_ENDED)


def find_network(wanted: str | None, found: Mapping[str, str]) -> Network | None:
    """What --interface means on this machine, whose addresses were ``found``; None where it is not on that network,
    which may be one between the hosts alone.
    """
    if not wanted:
        return None
    if "/" not in wanted:
        return Network(wanted, wanted, found[wanted]) if wanted in found else None
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError as error:
        raise InputError(
            f"interface {wanted!r}: {error}; valid: a name such as eth1, a range such as 10.0.0.0/16"
        ) from None
    ours = [address for address in found.values() if ipaddress.ip_address(address) in network]
    return Network(wanted, "", ours[0]) if ours else None


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, socket.AF_INET))
    except (OSError, UnicodeError):
        return False
