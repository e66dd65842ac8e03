"""Reasons to refuse a plan. Each check raises InputError with what is valid."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..worker.data.facts import DatasetFacts
from ..worker.frameworks.catalog import Framework
from .config import AUTO, STRONG, Config
from .data import Dataset
from .experiment import Experiment

STUDY_REPEATS = 5  # with four, the interval of a mean is 28 % wider (Student's t)


def check_images_are_used(experiment: Experiment, dataset: Dataset) -> None:
    """Refuse settings that need real images, or epochs, where there are none."""
    training, loaders = experiment.training, experiment.resources.loaders
    if training.epochs and not dataset.is_real:
        raise InputError("epochs: random images teach nothing; valid with --data mnist, cifar10 or imagefolder:DIR")
    if training.warmup_epochs and not training.epochs:
        raise InputError(f"warmup epochs {training.warmup_epochs:g}: valid with --epochs")
    if loaders and not dataset.is_real:
        raise InputError(f"loaders {loaders}: synthetic images need none; valid with --data mnist, …")


def check_explanation(experiment: Experiment) -> None:
    if experiment.measurement.explain and experiment.training.epochs:
        raise InputError("explain: an explanation is about steps; valid without --epochs and --until-accuracy")
    if experiment.measurement.explain and experiment.measurement.search:
        raise InputError("explain: a search measures most combinations briefly; valid without --search")


def check_study(experiment: Experiment) -> None:
    measurement = experiment.measurement
    if measurement.strong_batch is not None and not measurement.study:
        raise InputError(f"strong batch {measurement.strong_batch}: valid with --study")
    if measurement.study and measurement.repeats < STUDY_REPEATS:
        raise InputError(
            f"repeats {measurement.repeats}: a study repeats every point at least {STUDY_REPEATS} times; valid:"
            f" {STUDY_REPEATS} or more"
        )


def check_config(config: Config, framework: Framework) -> None:
    """Refuse what the framework does not offer, and a search for the largest batch that one device cannot answer."""
    refusal = framework.refuses(config)
    if refusal:
        raise InputError(refusal)
    if config.batch != AUTO:
        return
    if config.scaling == STRONG:
        raise InputError("batch auto: under strong scaling the batch is that of all devices; valid: a number")
    if config.ranks_per_gpu > 1:
        raise InputError(
            f"batch auto: {config.ranks_per_gpu} workers share the memory of a GPU; valid: a number, or"
            " --ranks-per-gpu 1"
        )


def check_configs(configs: Sequence[Config], max_batch: int | None) -> None:
    if max_batch is not None and not any(config.batch == AUTO for config in configs):
        raise InputError(f"max batch {max_batch}: no batch is searched; valid with --batch auto")
    if len(set(configs)) < len(configs):
        raise InputError("the same model, framework and strategy is requested twice")


def check_images_fit(config: Config, counts: Sequence[int], facts: DatasetFacts) -> None:
    """Refuse a data set whose images the network cannot take, or that is too small for a batch."""
    if config.channels != facts.channels:
        raise InputError(
            f"model {config.model!r} takes images of {config.channels} channels, {facts.name} has {facts.channels}"
        )
    if config.classes < facts.classes:
        raise InputError(f"classes {config.classes}: {facts.name} has {facts.classes}; valid: {facts.classes} or more")
    for devices in () if config.batch == AUTO else counts:
        batch = config.global_batch(devices)
        where = f"{config.model} on {devices} devices"
        if batch > facts.train:
            raise InputError(
                f"a global batch of {batch} ({where}) is more than the {facts.train} training images of {facts.name}"
            )
        if config.epochs == 1 and 2 * batch > facts.train:
            raise InputError(
                f"one epoch of {facts.name} in batches of {batch} ({where}) is one step, and the first is not timed;"
                " valid: more epochs, or a smaller batch"
            )
