"""The ssh launcher: OpenSSH with the user's configuration, one connection to each host for a run."""

import shlex
from collections.abc import Mapping

from ...cluster.hosts import HostAccess, HostList
from ...spec.devices import Host
from ...spec.experiment import Experiment
from ...spec.groups import SshSettings
from ..worker_archive import RUN_FIRST_LINE
from .base import Launcher, PipeLauncher

# A user's configuration must not change these: no person uses the connection.
_OPTIONS = (
    "BatchMode=yes",  # a password or an unknown host key is an error here, not a question
    "ServerAliveInterval=5",  # a host that lost its power is noticed after 15 s
    "ServerAliveCountMax=3",
    "ControlMaster=no",  # no other connection may depend on this one
    "ClearAllForwardings=yes",  # only one connection at a time can forward a port
    "LogLevel=INFO",  # less would hide what went wrong
)


class UsesSsh(Launcher):
    """A launcher that uses ssh, with its settings."""

    settings_type = SshSettings
    settings: SshSettings

    @classmethod
    def find_hosts(cls, experiment: Experiment, environment: Mapping[str, str]) -> HostList:
        experiment.ssh.find_config()  # a wrong name is refused before anything starts
        return super().find_hosts(experiment, environment)


class SshLauncher(UsesSsh, PipeLauncher):
    name = "ssh"

    def command(self, host: str) -> list[str]:
        to = self.access.find_host(host)
        python = to.python or self.access.python or "python3"
        line = make_shell_command([python, "-c", RUN_FIRST_LINE], self.access.join_setup(to))
        return [*make_ssh_command(self.access, self.settings, to), "--", to.name, line]


def make_ssh_command(access: HostAccess, settings: SshSettings, host: Host) -> list[str]:
    options = (*_OPTIONS, f"ConnectTimeout={access.connect_seconds}")
    argv = ["ssh", "-T", "-x", *(argument for option in options for argument in ("-o", option))]
    argv.append("-A" if settings.forward_agent else "-a")
    if config := settings.find_config():
        argv += ["-F", str(config)]
    if host.port:
        argv += ["-p", str(host.port)]
    if host.user:
        argv += ["-l", host.user]
    return argv


def make_shell_command(command: list[str], setup: tuple[str, ...]) -> str:
    """Return one argument that any login shell understands: it starts another shell."""
    commands = []
    for line in setup:  # away from standard input and output, which belong to the keeper
        complaint = shlex.quote(f"set-up line failed: {line}")
        commands.append(f"eval {shlex.quote(line)} </dev/null >&2 || {{ echo {complaint} >&2; exit 1; }}")
    program, *arguments = command
    # A path that begins with ~/ is in the home folder of the host, not of this machine.
    program = f"~/{shlex.quote(program[2:])}" if program.startswith("~/") else shlex.quote(program)
    script = "; ".join([*commands, f"exec {program} {shlex.join(arguments)}"])
    # Set-up lines get a login shell, because ``module`` and ``conda`` are defined there.
    shell = ["/bin/bash", "-lc"] if setup else ["/bin/sh", "-c"]
    return shlex.join(["exec", *shell, script])
