"""What a plan chooses from: networks, strategies, default batches, combinations of settings."""

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..errors import InputError, explain_unknown, shorten
from ..worker import models
from ..worker.frameworks.catalog import LAYOUTS, STRATEGIES, WITH_SERVERS, Framework
from .config import APART, AUTO, BESIDE, EACH_HOST, ROUND_ROBIN, STRONG, Config
from .data import Dataset
from .devices import AvailableDevices
from .experiment import Experiment
from .groups import WorkSettings
from .settings import SEARCH_DEFAULT

_MOST_SERVERS = 65536  # each needs a port


def choose_network(text: str, framework: Framework, work: WorkSettings, dataset: Dataset) -> tuple[Config, int | None]:
    """Return the network of an entry of --models, built once to check its size, and the batch that it names."""
    name, batch = split_model(text)
    info = models.resolve(name)
    classes = work.classes or (dataset.facts.classes if dataset.is_real else 0)
    if info is None:  # a library's or a user's network, which declares no shape
        library, colon, attribute = name.partition(":")
        is_function = attribute.isidentifier() and all(part.isidentifier() for part in library.split("."))
        if not (attribute if library in framework.libraries else colon and is_function):
            libraries = [f"{library}:NAME" for library in framework.libraries]
            valid = [*models.list_names(), *libraries, "my_package.module:function"]
            raise explain_unknown("model", name, valid)
        shape = (work.image_size or 224, classes or 1000, 3)
    else:
        name = info.name
        shape = (work.image_size or info.image_size, classes or info.classes, info.channels)
        try:
            models.build(name, *shape[:2])
        except models.ShapeError as error:
            raise InputError(str(error)) from None
        except (Exception, SystemExit) as error:
            if info.plugin is None:
                raise
            reason = f"{type(error).__name__}: {error}"
            plugin = info.plugin.reference
            raise InputError(f"model {name!r} of the plug-in {plugin} cannot be built: {reason}") from None
    return Config(framework.name, name, 1, framework.usual_strategy, *shape, data=dataset.name), batch


def split_model(text: str) -> tuple[str, int | None]:
    """Split ``alexnet:256`` into network and batch. Of ``timm:resnet18:8`` only the last part is a batch."""
    name, colon, last = text.rpartition(":")
    if colon and not last:
        raise InputError(f"models: {text!r} ends with a colon; valid: NAME, NAME:BATCH or NAME:auto")
    if last.lower() == "auto" and (":" in name or models.resolve(name)):
        return name, AUTO
    if not colon or not re.fullmatch("-?[0-9]+", last):
        return text, None
    if int(last) < 1:
        raise InputError(f"models: {text!r}: batch {last} is too small; valid: 1 or more")
    return name, int(last)


# ---- all combinations

_PRECISIONS = ("fp32", "tf32", "bf16")  # of the default space: fp16 skips steps
_NO_CANDIDATES = ("independent", "ps-async")  # nothing is exchanged; an image teaches less


def combine_choices(experiment: Experiment, framework: Framework, config: Config, batch: int | None) -> list[Config]:
    """Return the config with all combinations of the settings that may be lists, strategies outermost.

    A setting that is not given has one value, or in the default space of a search all that the framework offers.
    ``config`` has the usual batch; ``batch`` is that of its entry in --models.
    """
    work, resources, search = experiment.work, experiment.resources, experiment.measurement.search
    batches = (batch,) if batch is not None else work.batch or (config.batch,)
    strategies = []  # with their servers: ps has --servers, or 1; ps:each has EACH_HOST
    for text in work.strategies or (framework.usual_strategy,):
        name, _, count = text.lower().partition(":")
        if name not in STRATEGIES:
            raise explain_unknown("strategy", text, STRATEGIES)
        if count and (name not in WITH_SERVERS or not re.fullmatch("each|0*[1-9][0-9]*", count)):
            names = " and ".join(WITH_SERVERS)
            raise InputError(f"strategy {text!r}: only {names} take a number of servers, 1 or more, or each")
        is_long = len(count.lstrip("0")) > len(str(_MOST_SERVERS))  # int() refuses thousands of digits
        if is_long or (count.isdecimal() and int(count) > _MOST_SERVERS):
            raise InputError(f"strategy {shorten(text)!r}: too many servers; valid: 1 … {_MOST_SERVERS}")
        if count == "each" and (APART in resources.server_placement or ROUND_ROBIN in resources.placement):
            other = "servers apart" if APART in resources.server_placement else "round-robin placement"
            raise InputError(f"strategy {text!r}: not with {other}; it puts servers beside the workers of each host")
        servers = EACH_HOST if count == "each" else int(count) if count else resources.servers or 1
        strategies.append((name, servers if name in WITH_SERVERS else 0))
    if resources.servers is not None and not any(servers for _, servers in strategies):
        valid = ", ".join(WITH_SERVERS)
        raise InputError(f"servers {resources.servers}: no strategy here has servers; valid with {valid}")
    layouts = work.layout or (framework.layouts.get(config.device, tuple(LAYOUTS))[0],)
    precisions, compiles = work.precision or ("fp32",), work.compile or (False,)
    if search == SEARCH_DEFAULT:
        if batch is None and not work.batch and config.scaling != STRONG:
            batches = tuple(dict.fromkeys((max(1, config.batch // 2), config.batch, 2 * config.batch)))
        if not work.strategies:
            candidates = [name for name in framework.engines if name not in _NO_CANDIDATES]
            strategies = [(name, n) for name in candidates for n in ((1, 2) if name in WITH_SERVERS else (0,))]
        layouts = work.layout or framework.layouts.get(config.device, layouts)
        precisions = work.precision or tuple(name for name in _PRECISIONS if name in framework.precisions)
        if not work.compile and framework.compiles and config.device == "cuda":
            compiles = (False, True)
    if search and any(name == "independent" for name, _ in strategies):
        raise InputError("strategy 'independent': nothing is exchanged, so it cannot be the best; leave --search out")
    if search and AUTO in batches:
        raise InputError("batch auto: a search compares batches by speed; valid with --search: numbers")
    configs = []
    fields = ("batch", "precision", "layout", "compile", "server_placement", "placement")
    for strategy, servers in strategies:
        sides = resources.server_placement if servers else (BESIDE,)
        per_host = (resources.servers_per_host or 0) if servers else 0
        base = replace(config, strategy=strategy, servers=servers, servers_per_host=per_host)
        for values in product(batches, precisions, layouts, compiles, sides, resources.placement):
            choice: dict[str, Any] = dict(zip(fields, values, strict=True))
            configs.append(replace(base, **choice))
    return configs


# ---- default batches

GIB = 1024**3
# Of a trial besides its steps: interpreters, imports, weights, first step. For estimates only.
OVERHEAD_SECONDS = {"cpu": 8.0, "cuda": 25.0}


@dataclass(frozen=True)
class DeviceDefaults:
    device: str
    name_parts: tuple[str, ...]  # a device whose name contains one of these is meant
    least_memory_bytes: int  # where no name matches
    batches: dict[str, int]  # per device, of each network
    other_batch: int  # of networks that are not named
    flops: float  # sustained in 32-bit training; for estimates only

    def choose_batch(self, model: str) -> int:
        return self.batches.get(model, self.other_batch)


_MODELS = (
    *("alexnet", "mnist", "inception-bn-28-small", "resnet50-cifar", "resnet18", "resnet34", "vgg16", "resnet101"),
    "resnet152",
)


def _name_batches(*batches: int) -> dict[str, int]:
    return dict(zip(_MODELS, batches, strict=True))


# On the K80 and K520, the batches of AlexNet and Inception v3 are those of awslabs/deeplearning-benchmark.
# On modern GPUs a 32-bit batch fits with room to spare. On CPUs a step takes at most a few seconds on one core.
_K80 = _name_batches(512, 512, 256, 256, 32, 32, 32, 32, 32)
_K520 = _name_batches(128, 256, 128, 128, 8, 8, 8, 8, 8)
_64_GIB = _name_batches(1024, 2048, 1024, 1024, 512, 512, 128, 128, 128)
_32_GIB = _name_batches(1024, 1024, 512, 512, 256, 256, 64, 64, 64)
_14_GIB = _name_batches(512, 512, 256, 256, 128, 128, 32, 32, 32)
GPUS = (
    DeviceDefaults("AWS P2 (K80)", ("K80",), 0, _K80, 32, 2e12),
    DeviceDefaults("AWS G2 (K520)", ("K520",), 0, _K520, 8, 1e12),
    DeviceDefaults("GPU, 64 GiB and more", (), 64 * GIB, _64_GIB, 256, 3e13),
    DeviceDefaults("GPU, 32 GiB and more", (), 32 * GIB, _32_GIB, 128, 1.2e13),
    DeviceDefaults("GPU, 14 GiB and more", (), 14 * GIB, _14_GIB, 64, 6e12),
    DeviceDefaults("GPU, smaller", (), 0, _K520, 8, 3e12),
)
CPU = DeviceDefaults("CPU, a core", (), 0, _name_batches(8, 64, 16, 16, 4, 4, 2, 2, 2), 2, 6e10)


def choose_defaults(available: AvailableDevices) -> DeviceDefaults:
    if available.kind == "cpu":
        return CPU
    for gpu in GPUS:
        if any(part in available.device_name for part in gpu.name_parts):
            return gpu
    return next(gpu for gpu in GPUS if not gpu.name_parts and available.memory_bytes >= gpu.least_memory_bytes)
