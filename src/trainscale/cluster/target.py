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
from ..spec.groups import RaySettings, YarnSettings
from . import allocation
from .hosts import Host, HostAccess, Request, first_hosts, read_hosts

LOCAL, SSH, MPI, SLURM, YARN, RAY = "local", "ssh", "mpi", "slurm", "yarn", "ray"
# Where the hosts are not known before the cluster has given them.
_FINDS_ITS_OWN = (YARN, RAY)


@dataclass(frozen=True)
class Target:
    """A launcher's name, and how it reaches which hosts. Local places have none."""

    launcher: str
    access: HostAccess
    source: str = ""  # of the hosts, for messages

    @property
    def local(self) -> bool:
        return not self.access.hosts and self.launcher not in _FINDS_ITS_OWN


def find_target(
    experiment: Experiment, environment: Mapping[str, str] = os.environ, met: tuple[Host, ...] = ()
) -> Target:
    """An InputError where a launcher needs hosts and there are none. ``met``: those that the processes of an mpirun,
    which runs this very command, are on.
    """
    given = allocation.find_allocation(environment)
    cluster, resources = experiment.cluster, experiment.resources
    name = resources.launcher or (MPI if met else SSH if cluster.hosts else given.launcher if given else LOCAL)
    if met:
        if cluster.hosts or name != MPI:
            what = f"hosts {cluster.hosts}" if cluster.hosts else f"launcher {name}"
            raise InputError(f"{what}: inside an mpirun its hosts are used; type this command without mpirun")
        source, hosts = "this mpirun", met
    elif cluster.hosts:
        source = cluster.hosts
        hosts = read_hosts(Path(cluster.hosts).expanduser())
    elif given and name in (SSH, MPI, SLURM):
        source, hosts = given.description, given.hosts
    elif name in (SSH, MPI):
        raise InputError(f"launcher {name}: no hosts; name a file by --hosts, or run inside an allocation")
    elif name == SLURM:
        raise InputError("launcher slurm: no allocation here; name --nodes to submit a job")
    else:
        source, hosts = "", ()
    if name in _FINDS_ITS_OWN and hosts:
        raise InputError(f"launcher {name}: it chooses the hosts itself, and {source} names some; valid: --nodes N")
    if name == LOCAL and hosts:
        raise InputError(f"launcher local: it knows no hosts, and {source} names some; valid: --launcher ssh")
    where = HostAccess(
        hosts=first_hosts(hosts, cluster.hosts_count, source) if hosts else (),
        remote_dir=cluster.remote_dir,
        python=cluster.remote_python or "",
        setup=cluster.setup,
        interface=cluster.interface,
        controller=cluster.controller_address or "",
        ssh_config=_ssh_config(cluster.ssh_config),
        forward_agent=cluster.forward_agent,
        request=Request(
            nodes=cluster.nodes or cluster.hosts_count,
            device=resources.device,
            devices=resources.gpus_per_host,
            cores_per_device=resources.cores_per_device,
            queue=experiment.settings_of(YarnSettings).queue or "default",
            yarn=experiment.settings_of(YarnSettings).yarn,
            ray_address=experiment.settings_of(RaySettings).ray_address or "",
            patience_seconds=experiment.safety.timeout,
        ),
    )
    place = Target(name, where, source)
    if place.local:
        _check_pythons(experiment)
    return place


def _check_pythons(experiment: Experiment) -> None:
    """On this machine, one that was named must be there."""
    for _, path in experiment.resources.python or ():
        if not Path(path).exists():
            raise InputError(f"--python: there is no Python at {path}")


def _ssh_config(text: str | None) -> str | None:
    path = Path(text).expanduser() if text else None
    if path is not None and not path.is_file():
        raise InputError(f"ssh config {path}: there is no such file")
    return str(path) if path else None
