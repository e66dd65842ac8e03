"""The lab's keys, host names and ssh configuration, the same for the controller and every host."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

# As a careful administrator would configure it: keys, no passwords, no variables from the client. This key exchange is
# a cheap one: the default takes a tenth of a second of CPU at each end.
_SSHD_CONFIG = """\
Port 22
HostKey /run/lab/host_key
AuthorizedKeysFile /run/lab/authorized_keys
PidFile none
UsePAM no
UseDNS no
KexAlgorithms curve25519-sha256
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
MaxSessions 100
Subsystem sftp internal-sftp
"""

_SSH_CONFIG = """\
Host {patterns}
  User root
  IdentityFile {folder}/keys/client
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/keys/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
"""


def write_access(folder: Path, hosts: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Write keys, known hosts and names of ``hosts`` (name → address); ``others`` have a name but no sshd."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]
    running = [subprocess.Popen([*keygen, str(keys / name)]) for name in ("client", *hosts)]
    failed = [process.args for process in running if process.wait()]
    assert not failed, failed
    known_hosts = [
        f"{name},{address} {' '.join((keys / f'{name}.pub').read_text().split()[:2])}\n"
        for name, address in hosts.items()
    ]
    (keys / "known_hosts").write_text("".join(known_hosts))
    names = [f"{address} {name}\n" for name, address in {**others, **hosts}.items()]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    patterns = " ".join([*hosts, *hosts.values()])
    (folder / "ssh_config").write_text(_SSH_CONFIG.format(patterns=patterns, folder=folder))
    (folder / "sshd_config").write_text(_SSHD_CONFIG)
