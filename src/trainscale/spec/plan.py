"""The plan of a run: configs, ladders, and the order of trials. It refuses what cannot be measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product, zip_longest

from ..errors import InputError, explain_unknown
from ..worker import models
from ..worker.data.facts import SYNTHETIC
from ..worker.frameworks.catalog import FRAMEWORKS, Framework
from ..worker.job import ASYNCHRONOUS, Measure
from .choices import OVERHEAD_SECONDS, choose_defaults, choose_network, combine_choices
from .config import AUTO, STRONG, Config, PointKey, Trial, remove_exchange
from .data import SYNTHETIC_DATASET, Dataset, find_dataset
from .devices import AvailableDevices, check_room, count_most_workers
from .experiment import Experiment
from .groups import ResourceSettings

LEAST_ROUNDS = 4  # over all points, before intervals decide how often to repeat
FIRST_WINDOW_STEPS = 20  # at least, before the length of a window can be chosen (--until-interval)
STUDY_REPEATS = 5  # with four, the interval of a mean is 28 % wider (Student's t)
# For estimates only.
_TRAINING_FLOPS_PER_MAC = 6  # two operations per multiply-add, once forward and twice backward
_UNKNOWN_MACS = 4e9  # of a user's own network: those of a ResNet-50
_AUTO_BATCH_FACTOR = 4  # how much larger than the default the largest batch may be
_VALIDATION_COST = 1 / 3  # of an image in training

# What --explain measures beside the ladder takes at most 40 % of its estimated time: this share, and up to 5 %
# of a window for exchanges alone and other batches (worker/training/loop.py).
MOST_TIME = 0.36
_FURTHER_REPEATS = 3  # the fewest that give an interval
_FURTHER_LEAST_STEPS = 20
_FURTHER_STEPS = (0.5, 0.3, 0.2)  # of the steps of the ladder; fewer, if more points fit then
_FURTHER_LEAST_WINDOW = 1.0  # seconds, where a budget limits a trial


@dataclass(frozen=True)
class FurtherPoint:
    config: Config
    devices: int
    repeats: int
    measure: Measure

    @property
    def point(self) -> PointKey:
        return self.config, self.devices


@dataclass(frozen=True)
class Plan:
    experiment: Experiment
    ladders: Mapping[Config, tuple[int, ...]]
    available: AvailableDevices
    dataset: Dataset = SYNTHETIC_DATASET

    @property
    def configs(self) -> tuple[Config, ...]:
        return tuple(self.ladders)

    @property
    def points(self) -> list[PointKey]:
        return [(config, n) for config, counts in self.ladders.items() for n in counts]

    def list_round(self, repeat: int) -> list[Trial]:
        """Return one trial of every point. Every other round is reversed, so that drift cancels out."""
        points = self.points if repeat % 2 == 0 else self.points[::-1]
        return [Trial(config, n, repeat) for config, n in points]

    @cached_property
    def further_points(self) -> tuple[FurtherPoint, ...]:
        """The points of --explain: the same work with nothing exchanged.

        The most needed come first. Those that fit into the time are chosen, with fewer repeats if the needed ones
        do not fit otherwise. The first is always among them, and measured at least once.
        """
        measurement, planned = self.experiment.measurement, {None, *self.points}
        orders: list[list[PointKey]] = []
        for config, ladder in self.ladders.items() if measurement.explain else ():
            is_synchronous = config.strategy not in (*ASYNCHRONOUS, "local")
            if is_synchronous and max(ladder) > 1 and "independent" in FRAMEWORKS[config.framework].engines:
                alone, counts = remove_exchange(config), (max(ladder), 1, *sorted(ladder, reverse=True))
                orders.append([(alone, n) for n in counts])
        # By priority: each series' largest device count, then one device, then the rest.
        by_priority = dict.fromkeys(chain.from_iterable(zip_longest(*orders)))
        candidates: list[PointKey] = [point for point in by_priority if point not in planned]
        if not candidates:
            return ()
        # Without these the first series has no answer. On one device, it may be the work alone itself.
        needed, of_first = set(candidates[:1]), candidates[0][0]
        for config, ladder in self.ladders.items():
            if remove_exchange(config) == of_first and (config.servers or 1 not in ladder):
                needed |= {(of_first, 1)} & set(candidates)
        allowed = MOST_TIME * self.ladder_seconds
        most = _FURTHER_REPEATS
        if not measurement.is_sequential:
            most = min(most, measurement.repeats)
        found: list[FurtherPoint] = []
        for repeats in range(most, 0, -1):
            chosen: list[FurtherPoint] = []
            for share in _FURTHER_STEPS:
                steps = max(min(_FURTHER_LEAST_STEPS, measurement.steps), int(share * measurement.steps))
                measure = Measure(measurement.warmup, steps)
                if measurement.budget is not None:
                    window = MOST_TIME * measurement.budget / (repeats * len(candidates))
                    window = max(_FURTHER_LEAST_WINDOW, window - OVERHEAD_SECONDS[self.available.kind])
                    measure = Measure(measurement.warmup, measurement.steps, window)
                fitting: list[FurtherPoint] = []
                taken = 0.0
                for config, devices in candidates:
                    seconds = repeats * self.estimate_seconds(config, devices, measure)
                    if taken + seconds <= allowed:
                        fitting.append(FurtherPoint(config, devices, repeats, measure))
                        taken += seconds
                    elif not fitting:
                        break
                chosen = max(chosen, fitting, key=len)  # of as many points those with the most steps
            if needed <= {further.point for further in chosen}:
                return tuple(chosen)
            found = found or chosen
        return tuple(found or [FurtherPoint(*candidates[0], 1, measure)])

    def list_further_trials(self, repeat: int) -> list[Trial]:
        return [Trial(*further.point, repeat) for further in self.further_points if repeat < further.repeats]

    def list_trials(self) -> list[Trial]:
        """The repeats of a point are spread over the run."""
        repeats = range(self.experiment.measurement.repeats)
        rounds = [(*self.list_round(repeat), *self.list_further_trials(repeat)) for repeat in repeats]
        return list(chain.from_iterable(rounds))

    def choose_default_batch(self, config: Config) -> int:
        return choose_defaults(self.available).choose_batch(config.model)

    def estimate_seconds(self, config: Config, devices: int, measure: Measure | None = None) -> float:
        """Estimate roughly. ``measure``: the length of the trial, if it is not the usual one."""
        measurement, overhead = self.experiment.measurement, OVERHEAD_SECONDS[self.available.kind]
        usual_batch = self.choose_default_batch(config)
        batch = _AUTO_BATCH_FACTOR * usual_batch if config.batch == AUTO else config.batch_per_device(devices)
        macs: float = _UNKNOWN_MACS
        if models.resolve(config.model):
            macs = models.build(config.model, config.image_size, config.classes).macs
        flops = choose_defaults(self.available).flops * max(1, self.available.cores_per_device)
        step = batch * macs * _TRAINING_FLOPS_PER_MAC / flops
        if measure is None:
            measure = Measure(measurement.warmup, measurement.steps)
            if measurement.until_interval is not None:
                measure = replace(measure, seconds=overhead, least_steps=FIRST_WINDOW_STEPS)
        steps: float = measure.warmup + measure.steps
        if config.epochs:
            facts = self.dataset.facts
            batch = usual_batch if config.batch == AUTO else config.global_batch(devices)
            steps = config.epochs * (facts.train + facts.valid * _VALIDATION_COST) / batch
        if measure.seconds is not None:
            steps = min(steps, max(measure.least_steps, measure.seconds / step))
        return min(overhead + steps * step, self.experiment.safety.timeout)

    @property
    def seconds(self) -> float:
        return self.ladder_seconds + self.further_seconds

    @property
    def further_seconds(self) -> float:
        points = self.further_points
        return sum(each.repeats * self.estimate_seconds(*each.point, each.measure) for each in points)

    @property
    def ladder_seconds(self) -> float:
        measurement = self.experiment.measurement
        if measurement.budget is not None:
            return measurement.budget
        repeats = LEAST_ROUNDS if measurement.until_interval is not None else measurement.repeats
        return repeats * sum(self.estimate_seconds(config, n) for config, n in self.points)


def make_plan(experiment: Experiment, available: AvailableDevices) -> Plan:
    work, training, measurement = experiment.work, experiment.training, experiment.measurement
    dataset, loaders = find_dataset(work.data), experiment.resources.loaders
    if training.epochs and not dataset.is_real:
        raise InputError("epochs: random images teach nothing; valid with --data mnist, cifar10 or imagefolder:DIR")
    if training.warmup_epochs and not training.epochs:
        raise InputError(f"warmup epochs {training.warmup_epochs:g}: valid with --epochs")
    if loaders and not dataset.is_real:
        raise InputError(f"loaders {loaders}: synthetic images need none; valid with --data mnist, …")
    if measurement.explain and training.epochs:
        raise InputError("explain: an explanation is about steps; valid without --epochs and --until-accuracy")
    if measurement.explain and measurement.search:
        raise InputError("explain: a search measures most combinations briefly; valid without --search")
    if measurement.strong_batch is not None and not measurement.study:
        raise InputError(f"strong batch {measurement.strong_batch}: valid with --study")
    if measurement.study and measurement.repeats < STUDY_REPEATS:
        reason = f"a study repeats every point at least {STUDY_REPEATS} times"
        raise InputError(f"repeats {measurement.repeats}: {reason}; valid: {STUDY_REPEATS} or more")
    for name in work.frameworks:
        if name.lower() not in FRAMEWORKS:
            raise explain_unknown("framework", name, FRAMEWORKS)
    configs: list[Config] = []
    for name, text in product(work.frameworks, work.models):
        framework = FRAMEWORKS[name.lower()]
        config, batch = choose_network(text, framework, work, dataset)
        configs += _make_configs(experiment, available, framework, config, batch)
    if measurement.study:
        configs += make_strong_configs(configs, available, experiment)
    if work.max_batch is not None and all(config.batch != AUTO for config in configs):
        raise InputError(f"max batch {work.max_batch}: no batch is searched; valid with --batch auto")
    if len(set(configs)) < len(configs):
        raise InputError("the same model, framework and strategy is requested twice")
    ladders = {config: choose_ladder(config, available, experiment.resources) for config in configs}
    for config, counts in ladders.items() if dataset.is_real else ():
        facts = dataset.facts
        if config.channels != facts.channels:
            need = f"model {config.model!r} takes images of {config.channels} channels"
            raise InputError(f"{need}, {facts.name} has {facts.channels}")
        if config.classes < facts.classes:
            valid = f"valid: {facts.classes} or more"
            raise InputError(f"classes {config.classes}: {facts.name} has {facts.classes}; {valid}")
        for devices in () if config.batch == AUTO else counts:
            batch = config.global_batch(devices)
            where = f"{config.model} on {devices} devices"
            if batch > facts.train:
                images = f"the {facts.train} training images of {facts.name}"
                raise InputError(f"a global batch of {batch} ({where}) is more than {images}")
            if config.epochs == 1 and 2 * batch > facts.train:
                epoch = f"one epoch of {facts.name} in batches of {batch} ({where})"
                raise InputError(f"{epoch} is one step, which is not timed; valid: more epochs, or a smaller batch")
    return Plan(experiment, ladders, available, dataset)


# ---- configs


def _make_configs(
    experiment: Experiment,
    available: AvailableDevices,
    framework: Framework,
    network: Config,
    batch: int | None,
) -> list[Config]:
    """A search leaves out combinations that the framework does not offer."""
    work, resources, training = experiment.work, experiment.resources, experiment.training
    is_real = network.data != SYNTHETIC
    base = replace(
        network,
        batch=choose_defaults(available).choose_batch(network.model),
        scaling=experiment.measurement.scaling,
        augment=work.augment or not is_real,
        loaders=(resources.loaders or 0) if is_real else 0,
        device=available.kind,
        cores_per_device=available.cores_per_device,
        ranks_per_gpu=resources.ranks_per_gpu,
        allocator=resources.allocator,
        epochs=training.epochs or 0,
        until_accuracy=training.until_accuracy,
        momentum=training.momentum,
        warmup_epochs=training.warmup_epochs,
        deterministic=training.deterministic,
    )
    # Where speed is measured, training is the same for all networks.
    usual = models.find_training_defaults(network.model) if training.epochs else base
    names = ("learning_rate", "weight_decay", "schedule")
    given = {name: getattr(training, name) for name in names}
    unset = {name: getattr(usual, name) for name, value in given.items() if value is None}
    base = replace(base, **{**given, **unset})
    configs = combine_choices(experiment, framework, base, batch)
    if experiment.measurement.search:
        configs = [config for config in configs if not framework.refuses(config)] or configs
    for config in configs:
        if refusal := framework.refuses(config):
            raise InputError(refusal)
        if config.batch == AUTO and config.scaling == STRONG:
            raise InputError("batch auto: under strong scaling the batch is that of all devices; valid: a number")
        if config.batch == AUTO and config.ranks_per_gpu > 1:
            raise InputError(f"batch auto: {config.ranks_per_gpu} workers share the memory of a GPU; valid: a number")
    return configs


def make_strong_configs(configs: Sequence[Config], available: AvailableDevices, experiment: Experiment) -> list[Config]:
    strong: dict[Config, None] = {}
    for config in configs:
        if config.batch == AUTO:
            raise InputError("batch auto: a study has a weak and a strong ladder; valid with --study: a number")
        ladder = choose_ladder(config, available, experiment.resources)
        if ladder[-1] > 1:
            # The largest multiple of every device count that is at most the batch, so that it fits on one
            # device as under weak scaling. If there is none, the smallest multiple.
            step = math.lcm(*ladder)
            batch = experiment.measurement.strong_batch or max(step, config.batch // step * step)
            strong[replace(config, scaling=STRONG, batch=batch)] = None
    if not strong:
        raise InputError("study: only one device would be used, so nothing scales; valid: more devices, not local")
    return list(strong)


def choose_ladder(config: Config, available: AvailableDevices, resources: ResourceSettings) -> tuple[int, ...]:
    check_room(config, 1, available)
    most = resources.devices[-1] if resources.devices else resources.max_devices
    most = most or count_most_workers(config, available)
    check_room(config, most, available, "devices" if resources.devices else "max devices")
    counts = resources.devices or tuple(sorted({*(2**power for power in range(most.bit_length())), most}))
    if config.strategy == "local":
        counts = (1,)
    uneven = [str(count) for count in counts if config.scaling == STRONG and config.batch % count]
    if uneven:
        raise InputError(
            f"strong scaling: a global batch of {config.batch} ({config.model}) cannot be split evenly over"
            f" {', '.join(uneven)} devices; valid: a multiple of each device count"
        )
    return counts
