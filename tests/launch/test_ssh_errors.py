"""The output of ssh, shells and hosts is explained, with a remedy."""

import pytest

from trainscale.launch.ssh_errors import explain_ssh_error

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/.ssh/known_hosts:1
Host key for node1 has changed and you have requested strict checking.
Host key verification failed.
"""
PYTHON = "install Python 3.9 or newer there"


@pytest.mark.parametrize(
    ("output", "reason", "remedy"),
    [
        ("ssh: Could not resolve hostname nod1: Name or service not known", "unknown name: ", "correct it"),
        ("ssh: Could not resolve hostname nod1: Temporary failure in name resolution", "unknown name: ", "correct it"),
        ("ssh: connect to host node1 port 2222: Connection refused",
         "connection refused: nothing listens on its port 2222", "start sshd there"),
        ("ssh: connect to host node1 port 22: Connection timed out", "time-out: it does not answer", "is it on"),
        ("ssh: connect to host node1 port 22: Operation timed out", "time-out: ", "is it on"),
        ("Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out", "time-out: ", "ssh"),
        ("ssh: connect to host node1 port 22: No route to host", "no route: ", "ping node1"),
        ("ssh: connect to host node1 port 22: Network is unreachable", "no route: ", "ping node1"),
        ("me@node1: Permission denied (publickey,password).",
         "permission denied: it does not let me in (publickey,password)", "ssh-copy-id node1"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
         "permission denied: too many keys", "IdentitiesOnly yes"),
        (CHANGED, "host key changed: ", "ssh-keygen -R node1"),
        ("Host key verification failed.", "host key unknown: ", "log in once by hand and confirm the key: ssh node1"),
        ("No ED25519 host key is known for node1 and you have asked for checking.\nHost key verification failed.",
         "host key unknown: ", "ssh node1"),
        ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22",
         "login refused: ", "MaxStartups"),
        ("Timeout, server node1 not responding.", "stopped answering: ", "--retry-failed"),
        ("bash: line 1: orted: command not found", "no MPI there: bash", "install the same MPI there"),
        ("/bin/sh: 1: exec: python3: not found", "no Python: python3 cannot be started there", PYTHON),
        ("/bin/bash: line 1: exec: python3: not found", "no Python: python3 ", PYTHON),
        ("/bin/bash: line 1: /opt/my python: No such file or directory", "no Python: /opt/my python ", PYTHON),
        ("/bin/bash: line 1: /opt/python: Permission denied\n/bin/bash: line 1: exec: /opt/python: cannot execute",
         "no Python: /opt/python ", PYTHON),
        ("sh: exec: line 0: python3: not found", "no Python: python3 ", PYTHON),
        ("/home/me/.bashrc: line 3: /opt/old/setup.sh: No such file or directory\n/bin/sh: 1: exec: python3: not found",
         "no Python: python3 ", PYTHON),
        ("pyenv: python3.9: command not found", "no Python: python3.9 ", PYTHON),
        ("/usr/bin/python3 is Python 3.6.15, too old; valid: 3.9 or newer", "Python too old: 3.6.15", PYTHON),
        ('  File "<string>", line 15\nSyntaxError: invalid syntax', "Python too old: ", PYTHON),
        ("bash: module: command not found\nset-up line failed: module load cuda",
         "set-up line failed: module load cuda (bash: module: command not found)", "try it by hand: ssh node1"),
        ("sh: 1: exec: /bin/bash: not found", "no bash: ", "install bash there"),
        ("[Errno 28] No space left on device: '/scratch/x'", "no space: none is left in /scratch", "--remote-dir"),
        ("[Errno 122] Disk quota exceeded", "no space: ", "--remote-dir"),
        ("[Errno 13] Permission denied: '/scratch/trainscale-7'",
         "no write permission: /scratch/trainscale-7 cannot be written", "--remote-dir"),
        ("[Errno 30] Read-only file system: '/scratch/trainscale-7'", "no write permission: ", "--remote-dir"),
        ("Welcome to node1!\nThis account is currently not available.", "This account is currently not available.", ""),
        ("", "the connection ended without a message", ""),
    ],
)  # fmt: skip
def test_output_is_explained(output: str, reason: str, remedy: str) -> None:
    error = explain_ssh_error(output, "node1", "/scratch")
    assert error.why.startswith(reason)
    assert remedy in error.remedy
    assert bool(error.remedy) == bool(remedy)


def test_text_of_others_may_have_braces_in_it() -> None:
    error = explain_ssh_error("set-up line failed: export A={x}", "node{1}")
    assert error.why == "set-up line failed: export A={x}"
    assert "ssh node{1}" in error.remedy
