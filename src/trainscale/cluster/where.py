"""Which launcher and which hosts an experiment means: those it names, those of the allocation it runs in, or this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..spec.experiment import Experiment
from . import allocation
from .hosts import Host, Where, first_hosts, read_hosts

LOCAL, SSH, MPI, SLURM, YARN, RAY = "local", "ssh", "mpi", "slurm", "yarn", "ray"
# Where the hosts are not known before the cluster has given them.
_FINDS_ITS_OWN = (YARN, RAY)


@dataclass(frozen=True)
class Place:
    """A launcher's name, and how it reaches which hosts. Local places have none."""

    launcher: str
    where: Where
    source: str = ""  # of the hosts, for messages

    @property
    def local(self) -> bool:
        return not self.where.hosts and self.launcher not in _FINDS_ITS_OWN


def find_place(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> Place:
    """An InputError where a launcher needs hosts and there are none."""
    given = allocation.find(environment)
    name = experiment.launcher or (SSH if experiment.hosts else given.launcher if given else LOCAL)
    if experiment.hosts:
        source = experiment.hosts
        hosts: tuple[Host, ...] = read_hosts(Path(experiment.hosts).expanduser())
    elif given and name in (SSH, MPI, SLURM):
        source, hosts = given.words, given.hosts
    elif name in (SSH, MPI):
        raise InputError(f"launcher {name}: no hosts; name a file by --hosts, or run inside an allocation")
    elif name == SLURM:
        raise InputError("launcher slurm: no allocation here; name --nodes to submit a job")
    else:
        source, hosts = "", ()
    if name == LOCAL and hosts:
        raise InputError(f"launcher local: it knows no hosts, and {source} names some; valid: --launcher ssh")
    where = Where(
        hosts=first_hosts(hosts, experiment.hosts_count, source) if hosts else (),
        remote_dir=experiment.remote_dir,
        python=experiment.remote_python or "",
        setup=experiment.setup,
        interface=experiment.interface,
        controller=experiment.controller_address or "",
        ssh_config=experiment.ssh_config,
        forward_agent=experiment.forward_agent,
    )
    return Place(name, where, source)
