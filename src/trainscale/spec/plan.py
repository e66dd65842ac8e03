"""From an experiment and what a cluster can give to configs, a ladder, and an ordered list of trials. Everything that
can be wrong with a combination is found here, before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import InputError, unknown
from ..worker import models
from ..worker.data.facts import DatasetFacts
from ..worker.frameworks.catalog import FRAMEWORKS, STRATEGIES, WITH_SERVERS, Framework
from . import data, defaults, placement
from .config import APART, AUTO, BESIDE, EACH_HOST, ROUND_ROBIN, STRONG, Config, Trial
from .data import SYNTHETIC_DATASET, Dataset
from .devices import Devices
from .experiment import Experiment
from .ladder import ladder

# Seconds that a trial needs besides its steps: interpreters, imports, weights, first step. For estimates only.
_OVERHEAD_SECONDS = {"cpu": 8.0, "cuda": 25.0}
_TRAINING_FLOPS_PER_MAC = 6  # two operations a multiply-add, forward once and backward twice
_AUTO_OF_USUAL = 4  # how many times a device's usual batch the largest may be; for estimates only


@dataclass(frozen=True)
class Plan:
    experiment: Experiment
    configs: tuple[Config, ...]
    ladders: tuple[tuple[int, ...], ...]  # one for each config
    supply: Devices
    flops: float  # rough, of one device
    images: Dataset = SYNTHETIC_DATASET

    @property
    def points(self) -> list[tuple[Config, int]]:
        return [(config, n) for config, counts in zip(self.configs, self.ladders, strict=True) for n in counts]

    def round(self, repeat: int) -> list[Trial]:
        """One trial of every point. Every other round goes backwards, so that a drift of the machine cancels out."""
        points = self.points if repeat % 2 == 0 else self.points[::-1]
        return [Trial(config, n, repeat) for config, n in points]

    def trials(self) -> list[Trial]:
        """Repeats are interleaved over the ladder, not back to back."""
        return [trial for repeat in range(self.experiment.repeats) for trial in self.round(repeat)]

    def usual_batch(self, config: Config) -> int:
        """What a device of this kind would be given unasked."""
        supply = self.supply
        row = defaults.row_for(supply.kind, supply.device_name, supply.memory_bytes)
        return defaults.batch_for(config.model, row)

    def _guessed(self, config: Config) -> Config:
        """With a batch, where that is not known yet."""
        return config if config.batch != AUTO else replace(config, batch=_AUTO_OF_USUAL * self.usual_batch(config))

    def step_seconds(self, config: Config) -> float:
        """A rough guess. Users' own networks count as a ResNet-50."""
        config = self._guessed(config)
        known = models.resolve(config.model)
        macs = models.build(config.model, config.image_size, config.classes).macs if known else 4e9
        return config.batch_per_device(1) * macs * _TRAINING_FLOPS_PER_MAC / self.flops

    def trial_seconds(self, config: Config, devices: int) -> float:
        config = self._guessed(config)
        steps: float = self.experiment.warmup + self.experiment.steps
        if config.epochs:  # validation costs a third of training
            facts = self.images.facts()
            steps = config.epochs * (facts.train + facts.valid / 3) / config.global_batch(devices)
        per_step = self.step_seconds(config) * config.batch_per_device(devices) / config.batch_per_device(1)
        return _OVERHEAD_SECONDS[config.device] + steps * per_step

    @property
    def seconds(self) -> float:
        if self.experiment.budget is not None:
            return self.experiment.budget
        return self.experiment.repeats * sum(self.trial_seconds(config, n) for config, n in self.points)


def make_plan(experiment: Experiment, supply: Devices) -> Plan:
    row = defaults.row_for(supply.kind, supply.device_name, supply.memory_bytes)
    images = data.find_dataset(experiment.data)
    facts = images.facts() if images.is_real else None
    _check_training(experiment, images)
    configs, ladders = [], []
    for framework in _frameworks(experiment):
        for text in experiment.models:
            for strategy, servers in _strategies(experiment, framework):
                layout = experiment.layout or framework.best_layout(supply.kind)
                refusal = framework.refuses(
                    strategy,
                    experiment.precision,
                    layout,
                    experiment.compile,
                    supply.kind,
                    experiment.ranks_per_gpu,
                )
                if refusal:
                    raise InputError(refusal)
                config = Config(
                    framework=framework.name,
                    strategy=strategy,
                    servers=servers,
                    server_placement=experiment.server_placement if servers else BESIDE,
                    servers_per_host=(experiment.servers_per_host or 0) if servers else 0,
                    placement=experiment.placement,
                    precision=experiment.precision,
                    layout=layout,
                    compile=experiment.compile,
                    scaling=experiment.scaling,
                    data=images.name,
                    augment=experiment.augment or not images.is_real,
                    loaders=(experiment.loaders or 0) if images.is_real else 0,
                    deterministic=experiment.deterministic,
                    momentum=experiment.momentum,
                    warmup_epochs=experiment.warmup_epochs,
                    until_accuracy=experiment.until_accuracy,
                    device=supply.kind,
                    cores_per_device=supply.cores_per_device,
                    ranks_per_gpu=experiment.ranks_per_gpu,
                    **_model(text, framework, experiment, row, facts),
                )
                _check_auto(experiment, config)
                configs.append(config)
                ladders.append(_ladder(experiment, config, supply))
                if facts:
                    _check_images(config, ladders[-1], facts)
    if experiment.max_batch is not None and not any(config.batch == AUTO for config in configs):
        raise InputError(f"max batch {experiment.max_batch}: no batch is searched; valid with --batch auto")
    if len(set(configs)) < len(configs):
        raise InputError("the same model, framework and strategy is asked for twice")
    flops = row.flops * max(1, supply.cores_per_device)
    return Plan(experiment, tuple(configs), tuple(ladders), supply, flops, images)


def _check_training(experiment: Experiment, images: Dataset) -> None:
    if experiment.epochs and not images.is_real:
        raise InputError("epochs: random images teach nothing; valid with --data mnist, cifar10 or imagefolder:DIR")
    if experiment.warmup_epochs and not experiment.epochs:
        raise InputError(f"warmup epochs {experiment.warmup_epochs:g}: valid with --epochs")
    if experiment.loaders and not images.is_real:
        raise InputError(f"loaders {experiment.loaders}: synthetic images need none; valid with --data mnist, …")


def _check_auto(experiment: Experiment, config: Config) -> None:
    """Whether the largest batch is a question here that trials on one device can answer."""
    if config.batch != AUTO:
        return
    if config.scaling == STRONG:
        raise InputError("batch auto: under strong scaling the batch is that of all devices; valid: a number")
    if experiment.ranks_per_gpu > 1:
        raise InputError(
            f"batch auto: {experiment.ranks_per_gpu} workers share the memory of a GPU; valid: a number, or"
            " --ranks-per-gpu 1"
        )


def _check_images(config: Config, counts: Sequence[int], facts: DatasetFacts) -> None:
    """Whether the network can be fed with these images at all."""
    if config.channels != facts.channels:
        raise InputError(
            f"model {config.model!r} takes images of {config.channels} channels, {facts.name} has {facts.channels}"
        )
    if config.classes < facts.classes:
        raise InputError(f"classes {config.classes}: {facts.name} has {facts.classes}; valid: {facts.classes} or more")
    for devices in () if config.batch == AUTO else counts:
        if config.global_batch(devices) > facts.train:
            raise InputError(
                f"a global batch of {config.global_batch(devices)} ({config.model} on {devices} devices) is more than"
                f" the {facts.train} training images of {facts.name}"
            )
        if config.epochs == 1 and 2 * config.global_batch(devices) > facts.train:
            raise InputError(
                f"one epoch of {facts.name} in batches of {config.global_batch(devices)} ({config.model} on {devices}"
                " devices) is one step, and the first is not timed; valid: more epochs, or a smaller batch"
            )


def _frameworks(experiment: Experiment) -> list[Framework]:
    for name in experiment.frameworks:
        if name.lower() not in FRAMEWORKS:
            raise unknown("framework", name, FRAMEWORKS)
    return [FRAMEWORKS[name.lower()] for name in experiment.frameworks]


def _strategies(experiment: Experiment, framework: Framework) -> list[tuple[str, int]]:
    """Names and server counts: «ps:2» has its own, «ps:each» goes by the hosts, plain «ps» takes --servers, or one."""
    found = []
    for text in experiment.strategies or (framework.usual_strategy,):
        name, _, count = text.lower().partition(":")
        if name not in STRATEGIES:
            raise unknown("strategy", text, STRATEGIES)
        if count and (name not in WITH_SERVERS or not re.fullmatch("each|0*[1-9][0-9]*", count)):
            raise InputError(
                f"strategy {text!r}: only {' and '.join(WITH_SERVERS)} take a number of servers, 1 or more, or each"
            )
        if count == "each":
            _check_each(text, experiment)
            found.append((name, EACH_HOST))
            continue
        found.append((name, (int(count) if count else experiment.servers or 1) if name in WITH_SERVERS else 0))
    if experiment.servers is not None and not any(servers for _, servers in found):
        raise InputError(
            f"servers {experiment.servers}: no strategy here has servers; valid with {', '.join(WITH_SERVERS)}"
        )
    return found


def _check_each(text: str, experiment: Experiment) -> None:
    """Servers on every host of the workers are beside them, and the workers' hosts come first."""
    if experiment.server_placement == APART or experiment.placement == ROUND_ROBIN:
        other = "servers apart" if experiment.server_placement == APART else "round-robin placement"
        raise InputError(f"strategy {text!r}: not with {other}; it puts servers beside the workers of each host")


def _model(
    text: str, framework: Framework, experiment: Experiment, row: defaults.Row, facts: DatasetFacts | None
) -> dict[str, Any]:
    """Name, batch, sizes and training of one entry of --models."""
    name, batch = split_model(text)
    info = models.resolve(name)
    if info is None and not _is_reference(name, framework):
        libraries = [f"{library}:NAME" for library in framework.libraries]
        raise unknown("model", name, [*models.names(), *libraries, "my_package.module:function"])
    canonical = info.name if info else name
    image_size = experiment.image_size or (info.image_size if info else 224)
    classes = experiment.classes or (facts.classes if facts else info.classes if info else 1000)
    if info:
        try:
            models.build(canonical, image_size, classes)
        except models.ShapeError as error:
            raise InputError(str(error)) from None
        except (Exception, SystemExit) as error:
            if info.plugin is None:
                raise
            words = f"model {canonical!r} of the plug-in {info.plugin['reference']} cannot be built"
            raise InputError(f"{words}: {type(error).__name__}: {error}") from None
    return {
        "model": canonical,
        "batch": next(
            size for size in (batch, experiment.batch, defaults.batch_for(canonical, row)) if size is not None
        ),
        "image_size": image_size,
        "classes": classes,
        "channels": info.channels if info else 3,
        **_training(canonical, experiment),
    }


def _training(model: str, experiment: Experiment) -> dict[str, Any]:
    """Return the network's training defaults with what the experiment sets. Where speed is measured, without them."""
    values = asdict(models.training_defaults_of(model)) if experiment.epochs else {}
    requested = {name: getattr(experiment, name) for name in ("learning_rate", "weight_decay", "schedule")}
    values.update({name: value for name, value in requested.items() if value is not None})
    return {"epochs": experiment.epochs or 0, **values}


def split_model(text: str) -> tuple[str, int | None]:
    """«Alexnet:256» is a model and a batch; in «timm:resnet18:8» only the last part can be a batch. «my_nets:auto» is a
    function of somebody's own.
    """
    name, colon, last = text.rpartition(":")
    if last.lower() == "auto" and (":" in name or models.resolve(name)):
        return name, AUTO
    if not colon or not re.fullmatch("-?[0-9]+", last):
        return text, None
    if int(last) < 1:
        raise InputError(f"models: {text!r}: batch {last} is too small; valid: 1 or more")
    return name, int(last)


def _is_reference(name: str, framework: Framework) -> bool:
    library, colon, attribute = name.partition(":")
    if library in framework.libraries:
        return bool(attribute)
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in library.split("."))


def _ladder(experiment: Experiment, config: Config, supply: Devices) -> tuple[int, ...]:
    placement.check(config, 1, supply)
    counts = experiment.devices or ladder(experiment.max_devices or placement.most_workers(config, supply))
    placement.check(config, counts[-1], supply, "devices" if experiment.devices else "max devices")
    if config.strategy == "local":
        counts = (1,)
    uneven = [n for n in counts if config.scaling == STRONG and config.batch % n]
    if uneven:
        raise InputError(
            f"strong scaling: a global batch of {config.batch} ({config.model}) cannot be split evenly over"
            f" {', '.join(map(str, uneven))} devices; valid: a multiple of each device count"
        )
    return counts
