"""Settings of the machines: devices, processes and hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...worker.allocator import ALLOCATORS, TUNED
from ..config import APART, BESIDE, FILL, ROUND_ROBIN
from ..settings import SettingGroup, setting
from ..value_types import COUNTS, LINES, NAME, PYTHONS, SWITCH, choice, listed, whole


@dataclass(frozen=True)
class ResourceSettings(SettingGroup):
    table: ClassVar[str] = "resources"
    title: ClassVar[str] = "devices and processes"

    device: str = setting(
        choice("auto", "cpu", "cuda"),
        "kind of device: auto, cpu or cuda; auto uses GPUs if there are any",
        default="auto",
    )
    launcher: str | None = setting(
        NAME,
        "how processes are started on hosts: local, ssh, mpi, slurm, yarn, ray or the name of a plug-in",
        default_text="ssh with --hosts, slurm or mpi inside an allocation, else local",
    )
    max_devices: int | None = setting(
        whole(1), "end of the ladder of device counts 1, 2, 4, …", "-x", default_text="all devices"
    )
    devices: tuple[int, ...] | None = setting(COUNTS, "device counts to measure, such as 1,2,3")
    gpus_per_host: int | None = setting(
        whole(1), "number of devices to use on each host", "-g", "--devices-per-host", default_text="all"
    )
    cores_per_device: int | None = setting(
        whole(1), "number of cores per CPU device", default_text="an eighth of the cores, rounded up"
    )
    ranks_per_gpu: int = setting(whole(1), "number of workers that share one GPU", default=1)
    loaders: int | None = setting(
        whole(1),
        "number of processes per worker that prepare real images",
        default_text="depends on the images and cores",
    )
    python: tuple[tuple[str, str], ...] | None = setting(
        PYTHONS,
        "Python that runs a framework, such as mxnet=/path/to/python",
        default_text="this Python if it has the framework, else an environment's",
    )
    servers: int | None = setting(whole(1), "number of parameter servers for ps and ps-async", default_text="1")
    server_placement: tuple[str, ...] = setting(
        listed(choice(BESIDE, APART)),
        "run servers beside the workers (on their cores) or apart (on cores of their own); or a list of both",
        default=(BESIDE,),
    )
    servers_per_host: int | None = setting(
        whole(1),
        "number of parameter servers per host that runs servers",
        default_text="spread over the workers' hosts; 1 if servers are apart",
    )
    placement: tuple[str, ...] = setting(
        listed(choice(FILL, ROUND_ROBIN)),
        "fill: use all devices of a host before the next host; round-robin: assign processes to the hosts in turn,"
        " servers first; or a list of both",
        default=(FILL,),
    )
    allocator: str = setting(
        choice(*ALLOCATORS),
        "the C library's memory allocator in the processes of a trial: tuned keeps freed memory for the next step;"
        " system leaves the host's own settings, as a plain script has them",
        default=TUNED,
    )
    cache: bool = setting(
        SWITCH,
        "keep programs that JAX, XLA and torch.compile have compiled in the user's cache folder, for later trials",
        default=True,
    )


@dataclass(frozen=True)
class ClusterSettings(SettingGroup):
    table: ClassVar[str] = "cluster"
    title: ClassVar[str] = "hosts"

    hosts: str | None = setting(
        NAME,
        "file with one host per line: ADDRESS [SSH_ALIAS] [slots=N]",
        "-H",
        default_text="the hosts of the allocation, else this machine",
        metavar="FILE",
    )
    hosts_count: int | None = setting(whole(1), "use only the first N hosts", default_text="all")
    remote_dir: str = setting(
        NAME, "folder on each host into which the worker is copied", "-r", default="/tmp", metavar="DIR"
    )
    remote_python: str | None = setting(
        NAME,
        "Python on the hosts that starts the worker, 3.9 or newer",
        default_text="python3",
        metavar="PATH",
    )
    setup: tuple[str, ...] = setting(
        LINES,
        "shell line to run first on each host, such as 'module load cuda'; may be repeated",
        default=(),
        metavar="LINE",
    )
    interface: str | None = setting(
        NAME,
        "network for training: an interface such as eth1 or a range such as 10.0.0.0/16",
        default_text="that of the hosts' addresses",
    )
    controller_address: str | None = setting(
        NAME,
        "address of this machine to which the hosts connect",
        default_text="detected",
        metavar="ADDRESS",
    )
    nodes: int | None = setting(
        whole(1), "number of nodes to request from Slurm, YARN or Ray", default_text="all with Ray"
    )
