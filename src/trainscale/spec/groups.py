"""All settings of an experiment, in the groups that --help and the experiment file have too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import InputError, TrainscaleError
from ..worker.config import ALLOCATORS, TUNED
from ..worker.data.facts import SOURCES
from ..worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES
from .config import APART, BESIDE, FILL, ROUND_ROBIN, Config
from .settings import (
    BATCHES,
    COUNTS,
    DATA,
    DURATION,
    LINES,
    NAME,
    NAMES,
    PYTHONS,
    SCHEDULE,
    SEARCH,
    SHARE,
    SWITCH,
    SWITCHES,
    Setting,
    SettingGroup,
    choice,
    listed,
    number,
    setting,
    whole,
)

rare = partial(setting, is_rare=True)  # --help only names it

MOST_EPOCHS = 100  # the limit where only an accuracy is given
MOST_REPEATS = 10_000


@dataclass(frozen=True)
class WorkSettings(SettingGroup):
    table, title = "work", "networks, frameworks and data"

    models: tuple[str, ...] = setting(
        NAMES,
        "networks to train, each NAME, NAME:BATCH or NAME:auto; also torchvision:NAME, timm:NAME, keras:NAME,"
        " gluon:NAME and my_package.module:function",
        "-m",
        "--model",
        default=("alexnet", "inceptionv3"),
    )
    frameworks: tuple[str, ...] = setting(
        NAMES, f"frameworks to measure: {', '.join(FRAMEWORKS)}", "--framework", default=("torch",)
    )
    strategies: tuple[str, ...] | None = setting(
        NAMES,
        f"how workers exchange gradients: {', '.join(STRATEGIES)}; ps:2 uses two servers, ps:each one server on each"
        " host that has workers",
        "--strategy",
        default_text="allreduce, or ps where a framework has no allreduce",
    )
    batch: tuple[int, ...] | None = setting(  # each a number or AUTO
        BATCHES,
        "images per device (of all devices under strong scaling) for networks named without a batch, such as 4,8,16;"
        " auto searches for the largest batch that fits",
        "-b",
        default_text="depends on the device",
    )
    max_batch: int | None = rare(
        whole(1),
        "largest batch to try where the batch is auto",
        default_text="65536, and at most the number of training images",
    )
    image_size: int | None = setting(
        whole(1), "height and width of an image, in pixels", default_text="set by the network"
    )
    classes: int | None = setting(whole(2), "number of classes", default_text="set by the data set or the network")
    precision: tuple[str, ...] | None = setting(
        listed(choice(*PRECISIONS)), f"number format, or a list: {', '.join(PRECISIONS)}", default_text="fp32"
    )
    layout: tuple[str, ...] | None = setting(
        listed(choice(*LAYOUTS)),
        "nchw (channels first), nhwc (channels last), or a list of both",
        default_text="the faster one for the framework and the device",
    )
    compile: tuple[bool, ...] | None = setting(
        SWITCHES,
        "compile the network with the framework's compiler; --compile on,off measures both",
        default_text="off",
    )
    data: str = setting(
        DATA,
        "images to train on: "
        + "; ".join(f"{name}: {description}" for name, description in SOURCES.items())
        + "; mnist:DIR and cifar10:DIR name the folder of the files",
        default="synthetic",
    )
    augment: bool = setting(
        SWITCH,
        "randomly crop, mirror or shift training images",
        default=True,
        default_text="{}, except for digit data sets",
    )
    seed: int = setting(
        whole(0), "seed for the weights, the order of the images and all other random choices", default=1337
    )


@dataclass(frozen=True)
class TrainingSettings(SettingGroup):
    table, title = "training", "training to an accuracy"

    epochs: int | None = setting(
        whole(1),
        "train for N epochs and validate after each one",
        default_text="none; speed is measured over a number of steps",
    )
    until_accuracy: float | None = setting(
        number(0, 1, above=True),
        "stop after the epoch that reaches this validation accuracy, such as 0.99, and after --epochs at the latest"
        f" ({MOST_EPOCHS} if not given)",
        metavar="SHARE",
    )
    learning_rate: float | None = setting(
        number(0, math.inf, above=True),
        "learning rate of SGD",
        "--lr",
        default_text=f"set by the network with --epochs, else {Config.learning_rate:g}",
        metavar="RATE",
    )
    momentum: float = rare(number(0, 0.9999), "momentum of SGD", default=Config.momentum)
    weight_decay: float | None = rare(
        number(0, 1),
        "weight decay of SGD",
        default_text=f"set by the network with --epochs, else {Config.weight_decay:g}",
    )
    schedule: str | None = rare(
        SCHEDULE,
        "how the learning rate changes: constant, cosine, step:30,60 (to a tenth at epochs 30 and 60) or step:30,60:0.5"
        " (to half)",
        default_text=f"set by the network with --epochs, else {Config.schedule}",
    )
    warmup_epochs: float = rare(
        number(0, 1000), "number of epochs in which the learning rate rises from zero", default=0.0
    )
    deterministic: bool = rare(
        SWITCH, "use slower operations of the framework that give the same numbers in every run", default=False
    )


@dataclass(frozen=True)
class ResourceSettings(SettingGroup):
    table, title = "resources", "devices and processes"

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
    ranks_per_gpu: int = rare(whole(1), "number of workers that share one GPU", default=1)
    loaders: int | None = rare(
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
    server_placement: tuple[str, ...] = rare(
        listed(choice(BESIDE, APART)),
        "run servers beside the workers (on their cores) or apart (on cores of their own); or a list of both",
        default=(BESIDE,),
    )
    servers_per_host: int | None = rare(
        whole(1),
        "number of parameter servers per host that runs servers",
        default_text="spread over the workers' hosts; 1 if servers are apart",
    )
    placement: tuple[str, ...] = rare(
        listed(choice(FILL, ROUND_ROBIN)),
        "fill: use all devices of a host before the next host; round-robin: assign processes to the hosts in turn,"
        " servers first; or a list of both",
        default=(FILL,),
    )
    allocator: str = rare(
        choice(*ALLOCATORS),
        "the C library's memory allocator in the processes of a trial: tuned: keep freed memory for the next step;"
        " system: use the host's default settings",
        default=TUNED,
    )
    cache: bool = rare(
        SWITCH,
        "keep programs that JAX, XLA and torch.compile have compiled in the user's cache folder, for later trials",
        default=True,
    )


@dataclass(frozen=True)
class ClusterSettings(SettingGroup):
    table, title = "cluster", "hosts"

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
    remote_python: str | None = rare(
        NAME, "Python on the hosts that starts the worker, 3.9 or newer", default_text="python3", metavar="PATH"
    )
    setup: tuple[str, ...] = setting(
        LINES,
        "shell line to run first on each host, such as 'module load cuda'; may be repeated",
        default=(),
        metavar="LINE",
    )
    interface: str | None = rare(
        NAME,
        "network for training: an interface such as eth1 or a range such as 10.0.0.0/16",
        default_text="that of the hosts' addresses",
    )
    controller_address: str | None = rare(
        NAME, "address of this machine to which the hosts connect", default_text="detected", metavar="ADDRESS"
    )
    nodes: int | None = setting(
        whole(1), "number of nodes to request from Slurm, YARN or Ray", default_text="all with Ray"
    )


@dataclass(frozen=True)
class MeasurementSettings(SettingGroup):
    table, title = "measurement", "measurement"

    scaling: str = setting(
        choice("weak", "strong"),
        "weak: the batch per device is fixed; strong: the batch of all devices together is fixed",
        default="weak",
    )
    warmup: int = setting(whole(2), "number of steps before the measured window", default=10)
    steps: int = setting(whole(2), "number of steps in the measured window", default=100)
    repeats: int = setting(
        whole(1, MOST_REPEATS),
        "number of trials per point, each in fresh processes",
        default=5,
        default_text="{}, or 1 with --epochs",
    )
    budget: float | None = setting(
        DURATION,
        "time limit for the whole run, such as 5m; points with the widest confidence intervals are repeated until all"
        " are within ±1 %",
    )
    until_interval: float | None = setting(
        SHARE,
        "repeat until the interval of every speed and efficiency is within ± this share, such as 1%; each repeat goes"
        " to the point where it narrows the intervals most per second and device; --budget may limit the time",
        default_text="1% of speeds with --budget",
    )
    explain: bool = setting(
        SWITCH,
        "also measure what trainscale explain needs: ranks that exchange nothing, exchanges alone, other batches; takes"
        " up to 40 % more time",
        default=False,
    )
    search: str | None = setting(
        SEARCH,
        "find the fastest combination of the settings that are lists, for every device count, without measuring all in"
        " full; default also tries what the frameworks offer for settings that are not given",
        default_text="every combination is measured in full",
    )
    study: bool = setting(
        SWITCH,
        "measure weak and strong scaling of the same networks, each point at least 5 times, for trainscale study",
        default=False,
    )
    strong_batch: int | None = rare(
        whole(1),
        "images of all devices together on the strong ladder of --study",
        default_text="the batch of the network, as a multiple of every device count",
    )

    @property
    def is_sequential(self) -> bool:
        return self.budget is not None or self.until_interval is not None


@dataclass(frozen=True)
class SafetySettings(SettingGroup):
    table, title = "safety", "checks and time limits"

    parity: bool = setting(
        SWITCH,
        "check that all frameworks train the same network before comparing them; results are cached",
        default=True,
    )
    witness: bool = setting(
        SWITCH,
        "compare the first steps of every trial with what one device would compute with all images",
        default=True,
    )
    timeout: float = setting(
        DURATION, "time limit of a trial", default=1800.0, default_text="{}, or 7 days with --epochs"
    )
    stall_timeout: float = rare(DURATION, "time without progress after which a rank counts as hung", default=180.0)


# ---- of launchers: a command needs all, but only one launcher


@dataclass(frozen=True)
class SshSettings(SettingGroup):
    """The settings of every launcher that uses ssh."""

    table, title = "ssh", "ssh"

    ssh_config: str | None = setting(NAME, "configuration file of ssh", default_text="the user's", metavar="FILE")
    forward_agent: bool = setting(SWITCH, "forward the ssh agent to the hosts", default=False)

    def find_config(self) -> Path | None:
        path = Path(self.ssh_config).expanduser() if self.ssh_config else None
        if path and not path.is_file():
            raise InputError(f"ssh config {path}: there is no such file")
        return path


@dataclass(frozen=True)
class SlurmSettings(SettingGroup):
    """The settings of a job that is submitted."""

    table, title = "slurm", "Slurm"

    partition: str | None = setting(NAME, "partition of a submitted job", default_text="chosen by Slurm")
    time: str | None = setting(
        NAME,
        "time limit of a submitted job, such as 2:00:00",
        default_text="estimated from the plan",
        metavar="TIME",
    )
    account: str | None = setting(NAME, "account of a submitted job", default_text="chosen by Slurm")
    gres: str | None = setting(
        NAME,
        "generic resources of a submitted job",
        default_text="gpu:N with --device cuda and -g N",
        metavar="LIST",
    )
    sbatch: tuple[str, ...] = setting(
        LINES, "another option for sbatch, such as --constraint=gpu; may be repeated", default=(), metavar="OPTION"
    )


@dataclass(frozen=True)
class YarnSettings(SettingGroup):
    table, title = "yarn", "YARN"

    queue: str | None = setting(NAME, "YARN queue", default_text="default")
    yarn: tuple[str, ...] = setting(
        LINES,
        "another option for YARN's distributed shell, such as '-container_memory 8192'; may be repeated",
        default=(),
        metavar="OPTION",
    )


@dataclass(frozen=True)
class RaySettings(SettingGroup):
    table, title = "ray", "Ray"

    ray_address: str | None = setting(
        NAME,
        "address of the Ray head: ADDRESS:PORT or ray://ADDRESS:PORT",
        default_text="RAY_ADDRESS, else the cluster of this machine",
        metavar="ADDRESS",
    )


# What a person sets first comes first, as in --help.
GROUPS: tuple[type[SettingGroup], ...] = (
    WorkSettings,
    MeasurementSettings,
    ResourceSettings,
    ClusterSettings,
    TrainingSettings,
    SafetySettings,
    SshSettings,
    SlurmSettings,
    YarnSettings,
    RaySettings,
)
PLUGIN_GROUPS: list[type[SettingGroup]] = []  # launch/plugins.py adds them


def list_plugin_setting_keys() -> tuple[str, ...]:
    return tuple(setting.key for group in PLUGIN_GROUPS for setting in group.settings())


def collect_settings(further: Sequence[type[SettingGroup]] = ()) -> dict[str, Setting]:
    """Return every setting by its key. Keys and flags must be unique. ``further``: groups that may be added."""
    settings: dict[str, Setting] = {}
    taken: set[str] = set()
    for group in (*GROUPS, *PLUGIN_GROUPS, *further):
        for declared in group.settings():
            names = {declared.key, *declared.flags}
            if names & taken:
                name = min(names & taken)
                raise TrainscaleError(f"{group.__module__}.{group.__name__} declares {name}, which exists already")
            settings[declared.key] = declared
            taken |= names
    return settings


SETTINGS = collect_settings()
