"""Every setting of an experiment, in one table: its key in an experiment file, its flags, its type, its help.

The command line, the experiment file, the docs and the messages about wrong values are all made from this table.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, unknown
from ..worker.data import SOURCES
from ..worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES
from ..worker.training.learning_rate import check_schedule
from . import data
from .config import AUTO

_UNITS = {"s": 1, "m": 60, "h": 3600}
_PAIRS = re.compile(r",(?=[\w -]*=)|,\s*$")  # a path may have commas of its own
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True)
class ValueType:
    """A type of value. ``parse`` reads text; ``toml`` names the TOML types that may stand in a file.

    Where ``table`` is set, a TOML table ``{a = "x"}`` may too, and means the list ``["a=x"]``.
    """

    name: str
    parse: Callable[[str], Any]
    toml: tuple[type, ...]
    plural: bool = False
    table: bool = False
    joint: str = ","  # between the items of a list; what may hold commas itself has another


def whole(least: int) -> ValueType:
    def parse(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if value < least:
            raise ValueError(f"{value} is too small; valid: {least} or more")
        return value

    return ValueType("a whole number", parse, (int,))


def _batch(text: str) -> int:
    return AUTO if text.lower() == "auto" else int(whole(1).parse(text))


def number(least: float, most: float, above: bool = False) -> ValueType:
    """``above``: the least itself is not valid."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not (least < value if above else least <= value) or not value <= most:
            end = "" if most == math.inf else f", at most {most:g}"
            raise ValueError(f"{text} is not valid; valid: {'above' if above else 'at least'} {least:g}{end}")
        return value

    return ValueType("a number", parse, (int, float))


def choice(*valid: str) -> ValueType:
    def parse(text: str) -> str:
        if text.lower() not in valid:
            raise ValueError(str(unknown("value", text, valid)))
        return text.lower()

    return ValueType(f"one of {', '.join(valid)}", parse, (str,))


def duration(text: str) -> float:
    """Seconds of «90», «90s», «5m», «1h30m»."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = sum(float(v) * _UNITS[u] for v, u in zip(match.groups(), "hms", strict=True) if v) if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a duration; valid: 90s, 5m, 1h30m")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("the list is empty")
    return names


def _lines(text: str) -> tuple[str, ...]:
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise ValueError("there is no line")
    return lines


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(whole(1).parse(part) for part in _names(text))
    return tuple(sorted(set(counts)))


def find_python(text: str) -> str:
    """The interpreter that a person means by a path or a name: absolute, and not followed where it is a link, because
    an environment's Python is one.
    """
    path = os.path.abspath(os.path.expanduser(text)) if os.sep in text else shutil.which(text)  # noqa: PTH100, PTH111
    if not text or path is None:
        raise ValueError(f"there is no Python {text!r} on the PATH; valid: a path to one, or the name of one")
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; valid: the Python in it, such as {Path(path) / 'bin/python'}")
    if not Path(path).exists():
        raise ValueError(f"there is no Python at {path}")
    if not os.access(path, os.X_OK):
        raise ValueError(f"{path} is not executable")
    return path


def _pythons(text: str) -> tuple[tuple[str, str], ...]:
    """``framework=path`` pairs."""
    found: dict[str, str] = {}
    for pair in (part.strip() for part in _PAIRS.split(text) if part.strip()):
        name, equals, path = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{pair!r} has no framework; valid: FRAMEWORK=PATH, such as mxnet=/path/to/python")
        if name.lower() not in FRAMEWORKS:
            raise ValueError(str(unknown("framework", name, FRAMEWORKS)))
        if name.lower() in found:
            raise ValueError(f"two Pythons for {name.lower()}; valid: one")
        # One that is not here may be on the hosts; whether there are any is not known here (cluster/target.py).
        elsewhere = path.startswith(os.sep) and not Path(path).exists()
        found[name.lower()] = path if elsewhere else find_python(path)
    if not found:
        raise ValueError("the list is empty")
    return tuple(found.items())


def _switch(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


NAMES = ValueType("a list of names", _names, (str,), plural=True)
COUNTS = ValueType("a list of whole numbers", _counts, (int,), plural=True)
DURATION = ValueType('a duration such as "5m"', duration, (str, int, float))
PYTHONS = ValueType("a table of frameworks and their Pythons", _pythons, (str,), plural=True, table=True)
LINES = ValueType("a list of lines", _lines, (str,), plural=True, joint="\n")
SWITCH = ValueType("true or false", _switch, (bool,))
NAME = ValueType("a name", str, (str,))
BATCH = ValueType('a whole number or "auto"', _batch, (int, str))
DATA = ValueType("a source of images", data.parse_data, (str,))
SCHEDULE = ValueType("a schedule", check_schedule, (str,))


@dataclass(frozen=True)
class Setting:
    key: str
    flags: tuple[str, ...]
    kind: ValueType
    help: str
    group: str
    metavar: str = ""

    def read_text(self, text: str, flag: str) -> Any:
        """A value from the command line."""
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise InputError(f"{flag}: {error}") from None

    def read_toml(self, value: Any, where: str) -> Any:
        """A value from an experiment file: typed there, then checked as if it had been typed on the command line."""
        if self.kind.table and isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            value = [f"{name}={item}" for name, item in value.items()]
        items = value if isinstance(value, list) else [value]
        right = (self.kind.plural or not isinstance(value, list)) and all(self._right(item) for item in items)
        if not right:
            raise InputError(f"{where}: {self.key} must be {self.kind.name}, not {_toml_words(value)}")
        try:
            return self.kind.parse(
                self.kind.joint.join(
                    str(item).lower() if item is True or item is False else str(item) for item in items
                )
            )
        except ValueError as error:
            raise InputError(f"{where}: {self.key}: {error}") from None

    def _right(self, item: Any) -> bool:
        # In Python a bool is an int; in an experiment file `steps = true` is a mistake.
        return isinstance(item, self.kind.toml) and (bool in self.kind.toml or not isinstance(item, bool))


def _toml_words(value: Any) -> str:
    names = {
        str: "text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        list: "a list",
        dict: "a table",
    }
    return f"{names.get(type(value), type(value).__name__)} ({value!r})"


WHAT, TRAINING, WHERE, HOSTS, HOW, CARE = (
    "what is trained", "training to an accuracy", "on what", "on which hosts", "how it is measured", "care",
)  # fmt: skip

SETTINGS = (
    Setting("models", ("--models", "-m", "--model"), NAMES,
          "networks, each NAME, NAME:BATCH or NAME:auto; also torchvision:NAME, timm:NAME, keras:NAME, gluon:NAME,"
          " my_package.module:function (default: alexnet,inceptionv3)", WHAT, "LIST"),
    Setting("frameworks", ("--frameworks", "--framework"), NAMES,
          f"{', '.join(FRAMEWORKS)} (default: torch)", WHAT, "LIST"),
    Setting("strategies", ("--strategies", "--strategy"), NAMES,
          f"{', '.join(STRATEGIES)}; ps:2 is two servers, ps:each one on every host of the workers (default: allreduce,"
          " ps where a framework has none)",
          WHAT, "LIST"),
    Setting("batch", ("-b", "--batch"), BATCH,
          "images per device (of all devices under strong scaling) for models without their own; auto: the largest that"
          " fits, which is searched (default: by device)", WHAT, "N"),
    Setting("max_batch", ("--max-batch",), whole(1),
          "where batch is auto: try none above this (default: 65536, and no more than the images)", WHAT, "N"),
    Setting("image_size", ("--image-size",), whole(1),
          "pixels of an image's side (default: the network's own)", WHAT, "N"),
    Setting("classes", ("--classes",), whole(2), "classes of the labels (default: the network's own)", WHAT, "N"),
    Setting("precision", ("--precision",), choice(*PRECISIONS),
          f"{', '.join(PRECISIONS)} (default: fp32)", WHAT, "NAME"),
    Setting("layout", ("--layout",), choice(*LAYOUTS),
          "nchw or nhwc, which is channels-last (default: the framework's best)", WHAT, "NAME"),
    Setting("compile", ("--compile",), SWITCH, "compile the network with the framework's compiler", WHAT),
    Setting("data", ("--data",), DATA,
          "; ".join(f"{name}: {what}" for name, what in SOURCES.items()) + "; mnist:DIR and cifar10:DIR say where"
          " (default: synthetic)", WHAT, "NAME"),
    Setting("augment", ("--augment",), SWITCH,
          "crop, mirror or shift training images at random (default: yes, but digits)", WHAT),
    Setting("seed", ("--seed",), whole(0),
          "of weights, of the order of images and of chance (default: 1337)", WHAT, "N"),
    Setting("epochs", ("--epochs",), whole(1),
          "train so often over all images, and try the network on the validation images after each (default: measure"
          " speed, in steps)", TRAINING, "N"),
    Setting("until_accuracy", ("--until-accuracy",), number(0, 1, above=True),
          "stop after the epoch that reaches this validation accuracy, such as 0.99; --epochs is the limit"
          " (default of that limit: 100)", TRAINING, "SHARE"),
    Setting("learning_rate", ("--learning-rate", "--lr"), number(0, math.inf, above=True),
          "of SGD (default: by network with --epochs, else 0.001)", TRAINING, "RATE"),
    Setting("momentum", ("--momentum",), number(0, 0.9999), "of SGD (default: 0.9)", TRAINING, "N"),
    Setting("weight_decay", ("--weight-decay",), number(0, 1), "of SGD (default: 0.0001)", TRAINING, "N"),
    Setting("schedule", ("--schedule",), SCHEDULE,
          "of the learning rate: constant, cosine, step:30,60 (a tenth after each), step:30,60:0.5 (default: by network"
          " with --epochs, else constant)", TRAINING, "NAME"),
    Setting("warmup_epochs", ("--warmup-epochs",), number(0, 1000),
          "epochs in which the learning rate rises from nothing (default: 0)", TRAINING, "N"),
    Setting("deterministic", ("--deterministic",), SWITCH,
          "the framework's slower operations that give the same numbers each time (default: no)", TRAINING),
    Setting("device", ("--device",), choice("auto", "cpu", "cuda"), "auto, cpu or cuda (default: auto)", WHERE, "NAME"),
    Setting("launcher", ("--launcher",), NAME,
          "how processes get onto hosts: local, ssh, mpi, slurm, yarn, ray (default: ssh with --hosts, slurm inside an"
          " allocation, else local)", WHERE, "NAME"),
    Setting("max_devices", ("-x", "--max-devices"), whole(1),
          "end of the ladder 1, 2, 4, … (default: all)", WHERE, "N"),
    Setting("devices", ("--devices",), COUNTS, "an explicit ladder, such as 1,2,3", WHERE, "LIST"),
    Setting("gpus_per_host", ("-g", "--gpus-per-host", "--devices-per-host"), whole(1),
          "devices to use on each host (default: all)", WHERE, "N"),
    Setting("cores_per_device", ("--cores-per-device",), whole(1),
          "cores of a CPU device (default: 1, more where that would give over 8 devices)", WHERE, "N"),
    Setting("ranks_per_gpu", ("--ranks-per-gpu",), whole(1), "workers that share one GPU (default: 1)", WHERE, "N"),
    Setting("loaders", ("--loaders",), whole(1),
          "processes of each worker that prepare real images (default: by images and cores)", WHERE, "N"),
    Setting("python", ("--python",), PYTHONS,
          "the Python that has a framework, such as mxnet=/path/to/python (default: this one, or an environment's)",
          WHERE, "LIST"),
    Setting("servers", ("--servers",), whole(1), "parameter servers for ps and ps-async (default: 1)", WHERE, "N"),
    Setting("server_placement", ("--server-placement",), choice("beside", "apart"),
          "beside the workers, on their cores, or apart, on cores of their own (default: beside)", WHERE, "NAME"),
    Setting("servers_per_host", ("--servers-per-host",), whole(1),
          "parameter servers on each host that has any (default: spread over the workers' hosts; 1 where apart)",
          WHERE, "N"),
    Setting("placement", ("--placement",), choice("fill", "round-robin"),
          "fill: one host before the next; round-robin: dealt out to the hosts, servers first (default: fill)",
          WHERE, "NAME"),
    Setting("hosts", ("--hosts", "-H"), NAME, "a file, one host a line: ADDRESS [SSH_ALIAS] [slots=N]", HOSTS, "FILE"),
    Setting("hosts_count", ("--hosts-count",), whole(1), "use only the first N hosts (default: all)", HOSTS, "N"),
    Setting("remote_dir", ("-r", "--remote-dir"), NAME,
          "where the worker is copied to on each host (default: /tmp)", HOSTS, "DIR"),
    Setting("remote_python", ("--remote-python",), NAME,
          "the Python of the hosts that starts things there, 3.9 or newer (default: python3)", HOSTS, "PATH"),
    Setting("setup", ("--setup",), LINES,
          "a shell line to run first on each host, such as 'module load cuda'; may be given again", HOSTS, "LINE"),
    Setting("interface", ("--interface",), NAME,
          "the network for training: an interface such as eth1, or a range such as 10.0.0.0/16 (default: that of the"
          " hosts' addresses)", HOSTS, "NAME"),
    Setting("controller_address", ("--controller-address",), NAME,
          "what the hosts call this machine, where keepers call back (default: found out)", HOSTS, "ADDRESS"),
    Setting("ssh_config", ("--ssh-config",), NAME, "ssh's configuration file (default: the user's)", HOSTS, "FILE"),
    Setting("forward_agent", ("--forward-agent",), SWITCH, "forward the ssh agent to the hosts (default: no)", HOSTS),
    Setting("nodes", ("--nodes",), whole(1), "nodes to ask Slurm, YARN or Ray for (default with Ray: all)", HOSTS, "N"),
    Setting("partition", ("--partition",), NAME, "Slurm's partition", HOSTS, "NAME"),
    Setting("time", ("--time",), NAME, "Slurm's time limit, such as 2:00:00", HOSTS, "TIME"),
    Setting("account", ("--account",), NAME, "Slurm's account", HOSTS, "NAME"),
    Setting("gres", ("--gres",), NAME,
          "Slurm's generic resources (default: gpu:N with --device cuda and -g N)", HOSTS, "LIST"),
    Setting("sbatch", ("--sbatch",), LINES,
          "another option for Slurm's sbatch, such as --constraint=gpu; may be given again", HOSTS, "OPTION"),
    Setting("queue", ("--queue",), NAME, "YARN's queue (default: default)", HOSTS, "NAME"),
    Setting("yarn", ("--yarn",), LINES,
          "another option for YARN's distributed shell, such as '-container_memory 8192'; may be given again", HOSTS,
          "OPTION"),
    Setting("ray_address", ("--ray-address",), NAME,
          "Ray's head, ADDRESS:PORT or ray://ADDRESS:PORT (default: RAY_ADDRESS, else the cluster of this machine)",
          HOSTS, "ADDRESS"),
    Setting("scaling", ("--scaling",), choice("weak", "strong"),
          "weak: the batch per device is fixed; strong: the batch of all devices is (default: weak)", HOW, "NAME"),
    Setting("warmup", ("--warmup",), whole(2), "steps before the window (default: 10)", HOW, "N"),
    Setting("steps", ("--steps",), whole(2), "steps in the window (default: 100)", HOW, "N"),
    Setting("repeats", ("--repeats",), whole(1), "trials of each point, in fresh processes (default: 5)", HOW, "N"),
    Setting("budget", ("--budget",), DURATION,
          "time for everything, such as 5m: spent where the interval is widest, until ±1 %", HOW, "TIME"),
    Setting("parity", ("--parity",), SWITCH,
          "before frameworks are compared, prove that they train the same network (default: yes; remembered)", CARE),
    Setting("timeout", ("--timeout",), DURATION, "a trial may last this long (default: 30m)", CARE, "TIME"),
    Setting("stall_timeout", ("--stall-timeout",), DURATION,
          "a rank without progress for this long hangs (default: 3m)", CARE, "TIME"),
)  # fmt: skip

BY_KEY = {field.key: field for field in SETTINGS}
