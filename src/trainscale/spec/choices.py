"""What one entry of --models and one entry of --strategies mean for a framework."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InputError, explain_unknown, shorten
from ..worker import models
from ..worker.frameworks.catalog import STRATEGIES, WITH_SERVERS, Framework
from .config import APART, AUTO, EACH_HOST, ROUND_ROBIN
from .data import Dataset
from .experiment import Experiment
from .groups import ResourceSettings, WorkSettings

_MOST_SERVERS = 65536  # each needs a port
_IMAGE_SIZE, _CLASSES, _CHANNELS = 224, 1000, 3  # of a user's own network, which does not declare them


@dataclass(frozen=True)
class NetworkChoice:
    name: str
    batch: int | None  # where the entry names none
    image_size: int
    classes: int
    channels: int


@dataclass(frozen=True)
class StrategyChoice:
    name: str
    servers: int  # or EACH_HOST


def choose_network(text: str, framework: Framework, work: WorkSettings, dataset: Dataset) -> NetworkChoice:
    """Read an entry of --models. The network is built once, so that a wrong size is found here."""
    name, batch = split_model(text)
    info = models.resolve(name)
    classes = work.classes or (dataset.read_facts().classes if dataset.is_real else None)
    if info is None:
        if not _is_reference(name, framework):
            libraries = [f"{library}:NAME" for library in framework.libraries]
            raise explain_unknown("model", name, [*models.list_names(), *libraries, "my_package.module:function"])
        return NetworkChoice(name, batch, work.image_size or _IMAGE_SIZE, classes or _CLASSES, _CHANNELS)
    choice = NetworkChoice(info.name, batch, work.image_size or info.image_size, classes or info.classes, info.channels)
    try:
        models.build(choice.name, choice.image_size, choice.classes)
    except models.ShapeError as error:
        raise InputError(str(error)) from None
    except (Exception, SystemExit) as error:
        if info.plugin is None:
            raise
        message = f"model {choice.name!r} of the plug-in {info.plugin.reference} cannot be built"
        raise InputError(f"{message}: {type(error).__name__}: {error}") from None
    return choice


def split_model(text: str) -> tuple[str, int | None]:
    """Split «alexnet:256» into a network and a batch. In «timm:resnet18:8» only the last part can be a batch, and
    «my_nets:auto» names a function of the user.
    """
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


def _is_reference(name: str, framework: Framework) -> bool:
    """Return whether the name can be that of a library's network or of a user's function."""
    library, colon, attribute = name.partition(":")
    if library in framework.libraries:
        return bool(attribute)
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in library.split("."))


def choose_strategies(experiment: Experiment, framework: Framework) -> list[StrategyChoice]:
    """Read --strategies: «ps:2» has two servers, «ps:each» has servers on each host, plain «ps» has --servers, or 1."""
    servers = experiment.resources.servers
    texts = experiment.work.strategies or (framework.usual_strategy,)
    choices = [_choose_strategy(text, experiment.resources) for text in texts]
    if servers is not None and not any(choice.servers for choice in choices):
        raise InputError(f"servers {servers}: no strategy here has servers; valid with {', '.join(WITH_SERVERS)}")
    return choices


def _choose_strategy(text: str, resources: ResourceSettings) -> StrategyChoice:
    name, _, count = text.lower().partition(":")
    if name not in STRATEGIES:
        raise explain_unknown("strategy", text, STRATEGIES)
    if count and (name not in WITH_SERVERS or not re.fullmatch("each|0*[1-9][0-9]*", count)):
        raise InputError(
            f"strategy {text!r}: only {' and '.join(WITH_SERVERS)} take a number of servers, 1 or more, or each"
        )
    if name not in WITH_SERVERS:
        return StrategyChoice(name, 0)
    if len(count.lstrip("0")) > len(str(_MOST_SERVERS)) or (count.isdecimal() and int(count) > _MOST_SERVERS):
        raise InputError(f"strategy {shorten(text)!r}: too many servers; valid: 1 … {_MOST_SERVERS}")
    if count != "each":
        return StrategyChoice(name, int(count) if count else resources.servers or 1)
    if APART in resources.server_placement or ROUND_ROBIN in resources.placement:
        other = "servers apart" if APART in resources.server_placement else "round-robin placement"
        raise InputError(f"strategy {text!r}: not with {other}; it puts servers beside the workers of each host")
    return StrategyChoice(name, EACH_HOST)
