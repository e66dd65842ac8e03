"""The ssh launcher: OpenSSH with the user's own configuration, one connection for each host and trial."""

from __future__ import annotations

import shlex

from ...cluster.hosts import Host, HostAccess
from ..connections.worker_archive import RUN_FIRST_LINE
from .base import PipeLauncher

# What a user's configuration may not change, because the connection is a program's and not a person's.
_OPTIONS = (
    "BatchMode=yes",  # a password or an unknown host key is an error here, not a question
    "ServerAliveInterval=5",  # a host that lost its power is noticed after 15 s
    "ServerAliveCountMax=3",
    "ControlMaster=no",  # others must not depend on this connection; one that is there already may be used
    "ClearAllForwardings=yes",  # a forwarded port is for one connection at a time
    "LogLevel=INFO",  # below that it does not say what went wrong
)


class SshLauncher(PipeLauncher):
    name = "ssh"

    def command(self, host: str) -> list[str]:
        to = self.access.host(host)
        python = to.python or self.access.python or "python3"
        line = shell_command([python, "-c", RUN_FIRST_LINE], self.access.setup_of(to))
        return [*ssh_command(self.access, to), "--", to.name, line]


def ssh_command(where: HostAccess, to: Host) -> list[str]:
    """How ssh is called for a host, up to its name."""
    options = (*_OPTIONS, f"ConnectTimeout={where.connect_seconds}")
    words = ["ssh", "-T", "-x", *(word for option in options for word in ("-o", option))]
    words.append("-A" if where.forward_agent else "-a")
    if where.ssh_config:
        words += ["-F", where.ssh_config]
    if to.port:
        words += ["-p", str(to.port)]
    if to.user:
        words += ["-l", to.user]
    return words


def shell_command(command: list[str], setup: tuple[str, ...]) -> str:
    """One word for the login shell of a host, whichever that is: it only starts another. Set-up lines get a login
    shell, because that is where ``module`` and ``conda`` are known.
    """
    script = "; ".join([*map(_set_up, setup), f"exec {_program(command[0])} {shlex.join(command[1:])}"])
    return shlex.join(["exec", "/bin/bash", "-lc", script] if setup else ["exec", "/bin/sh", "-c", script])


def _program(path: str) -> str:
    """In the home folder of the host, not of this machine, where it begins with ~/."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _set_up(line: str) -> str:
    """Standard input and output are the keeper's: a line that read from there would swallow what it is told."""
    complaint = shlex.quote(f"set-up line failed: {line}")
    return f"eval {shlex.quote(line)} </dev/null >&2 || {{ echo {complaint} >&2; exit 1; }}"
