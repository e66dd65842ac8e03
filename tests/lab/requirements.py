"""What a lab needs from the machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_PROGRAMS = ("cc", "ip", "mount", "nsenter", "pivot_root", "ssh", "ssh-keygen", "sshd", "tc", "unshare")
_SLURM_PROGRAMS = ("munged", "sbatch", "sinfo", "slurmctld", "slurmd", "srun")
_FILES = ("/dev/net/tun", "/sys/fs/cgroup", "/etc/ssh/ssh_config")
# Includes the folders of daemons, which some users' PATH lacks.
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_requirement(slurm: bool = False) -> str | None:
    """Return why no lab (with Slurm) can run here, or None if one can."""
    if sys.platform != "linux":
        return "a lab of hosts needs Linux"
    if os.geteuid() != 0:
        return "a lab of hosts needs root"
    programs = (*_PROGRAMS, *(_SLURM_PROGRAMS if slurm else ()))
    missing = [program for program in programs if shutil.which(program, path=SEARCH) is None]
    missing += [path for path in _FILES if not Path(path).exists()]
    if missing:
        return f"a lab of hosts needs {', '.join(missing)} (tests/needs.sh installs it on Debian)"
    return None
