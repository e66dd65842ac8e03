"""The ssh launcher: OpenSSH with the user's own configuration, one connection for each host and trial."""

from __future__ import annotations

import shlex

from .archive import RUN_FIRST_LINE
from .base import PipeLauncher

_OPTIONS = (
    "BatchMode=yes",  # a password or an unknown host key is an error here, not a question
    "ConnectTimeout=15",
    "ServerAliveInterval=5",  # a host that lost its power is noticed after 15 s
    "ServerAliveCountMax=3",
    "ControlMaster=no",  # a shared connection would outlive this one's end
)


class SshLauncher(PipeLauncher):
    name = "ssh"

    def command(self, host: str) -> list[str]:
        to = self.where.host(host)
        words = ["ssh", "-T", *(word for option in _OPTIONS for word in ("-o", option))]
        words.append("-A" if self.where.forward_agent else "-a")
        if self.where.ssh_config:
            words += ["-F", self.where.ssh_config]
        if to.port:
            words += ["-p", str(to.port)]
        if to.user:
            words += ["-l", to.user]
        python = to.python or self.where.python or "python3"
        return [*words, "--", to.name, shell_line([python, "-c", RUN_FIRST_LINE], self.where.setup_of(to))]


def shell_line(command: list[str], setup: tuple[str, ...]) -> str:
    """One word for the login shell of a host, whichever that is: it only starts another. Set-up lines get a login
    shell, because that is where ``module`` and ``conda`` are known.
    """
    script = " && ".join([*setup, f"exec {shlex.join(command)}"])
    return shlex.join(["exec", "/bin/bash", "-lc", script] if setup else ["exec", "/bin/sh", "-c", script])
