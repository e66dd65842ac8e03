"""Explains why a keeper could not be started, from what ssh, mpirun, a shell or Python printed.

The part of a reason before its first colon is short enough for a table.
"""

import re

from .connection import HostError, find_last_line

_PYTHON = "install Python 3.9 or newer there, or name one: --remote-python PATH, or python=PATH in the hosts file"
_FOLDER = "name another folder of the hosts: --remote-dir DIR"
OTHER_ADDRESS = "is there a firewall in between? --controller-address names another address of this machine"
_KEY = "put your public key there (ssh-copy-id {host}), or name user and key in ssh's configuration"

# (pattern of the output, reason, remedy), the more specific first. {before} is the line before the match.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r'cannot call \S+: (?:\[Errno -?\d+\] )?(?P<reason>.+)'
     r'|unable to connect from "[^"]*" to "[^"]*" \((?P<mpich>[^)]*)\)',
     "cannot call this machine: {reason}{mpich}",
     OTHER_ADDRESS),
    (r"(?m)^(?P<line>.*(?:orted|prted|hydra_pmi_proxy)\S*: (?:command )?(?:not found|No such file).*)",
     "no MPI there: {line}",
     "install the same MPI there, and let a shell without a terminal find it (PATH in ~/.bashrc)"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED",
     "host key changed: its ssh host key is not the one that is known here",
     "if the host was set up anew: ssh-keygen -R {host}, then ssh {host} once, by hand"),
    (r"Host key verification failed",
     "host key unknown: its ssh host key is not known here",
     "log in once by hand and confirm the key: ssh {host}"),
    (r"Could not resolve hostname (?P<name>\S+): ",
     "unknown name: neither ssh's configuration nor this machine's network knows {name}",
     "correct it in the hosts file, write the address instead, or add it to /etc/hosts"
     " or ssh's configuration"),
    (r"port (?P<port>\d+): Connection refused",
     "connection refused: nothing listens on its port {port}",
     "start sshd there, or name the right port in the hosts file: ADDRESS:PORT"),
    (r"port (?P<port>\d+): (?:Connection|Operation) timed out"
     r"|[Cc]onnection timed out during banner exchange"
     r"|Connection to \S+ port (?P<other>\d+) timed out",
     "time-out: it does not answer",
     "is it on, and is its ssh port open for this machine? Try: ssh {host}"),
    (r"No route to host|Network is unreachable",
     "no route: this machine has no way to its address",
     "is it on, and is the address right? Try: ping {host}"),
    (r"(?P<user>\S+)@\S+: Permission denied \((?P<ways>[^)]*)\)",
     "permission denied: it does not let {user} in ({ways})",
     _KEY + "; a key with a passphrase must be in the agent (ssh-add)"),
    (r"Too many authentication failures",
     "permission denied: too many keys were tried",
     "name the right one in ssh's configuration: IdentityFile, IdentitiesOnly yes"),
    (r"set-up line failed: (?P<line>.*)",
     "set-up line failed: {line}{before}",
     "try it by hand: ssh {host}; see --setup and setup= in the hosts file"),
    (r"(?m)^\S*sh: .*(?P<bash>/bin/bash): (?:not found|No such file)",
     "no bash: it has no {bash}, which set-up lines need",
     "install bash there, or leave the set-up lines out"),
    (r"(?m)^\S*sh: (?:line )?(?:\d+: )?(?:exec: )?(?:line \d+: )?(?P<python>[^:\n]+): "
     r"(?:not found|cannot execute|No such file|Is a directory|Permission denied)"
     r"|pyenv: (?P<shim>\S+): command not found",
     "no Python: {python}{shim} cannot be started there",
     _PYTHON),
    (r"is Python (?P<version>\S+), too old", "Python too old: {version}", _PYTHON),
    (r"SyntaxError", "Python too old: it does not understand Python 3", _PYTHON),
    (r"No space left on device|Disk quota exceeded",
     "no space: none is left in {folder}",
     "make room there, or " + _FOLDER),
    (r"(?:Errno 1|Errno 13|Errno 20|Errno 30)\b.*: '(?P<path>[^']*)'",
     "no write permission: {path} cannot be written",
     _FOLDER),
    (r"Timeout, server \S+ not responding|client_loop: send disconnect",
     "stopped answering: its power, or the network in between",
     "once it is back, the same command with --retry-failed measures what is missing"),
    (r"kex_exchange_identification|ssh_exchange_identification"
     r"|Connection (?:closed|reset) by \S+ port",
     "login refused: its sshd closed the connection before the login{before}",
     "too many logins at once for it or for a jump host (MaxStartups of sshd_config),"
     " or this machine is not allowed"),
)  # fmt: skip


def explain_ssh_error(output: str, host: str, folder: str = "its folder") -> HostError:
    """``output`` came in place of a keeper's answer; ``folder`` is for the worker."""
    for pattern, reason, remedy in _KNOWN:
        match = re.search(pattern, output)
        if match:
            before = find_last_line(output[: match.start()])
            names = {name: value or "" for name, value in match.groupdict().items()}
            values = {"host": host, "folder": folder, "before": f" ({before})" if before else "", **names}
            return HostError(host, reason.format(**values), remedy=remedy.format(**values))
    return HostError(host, find_last_line(output) or "the connection ended without a message")
