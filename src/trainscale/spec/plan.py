"""The plan of a run: configs, the ladder of each, and the order of the trials. A combination that cannot be measured is
refused here, before anything starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import explain_unknown
from ..worker import models
from ..worker.frameworks.catalog import FRAMEWORKS, Framework
from ..worker.job import Measure
from . import checks, data
from .choices import NetworkChoice, choose_network
from .config import AUTO, Config, PointKey, Trial
from .data import SYNTHETIC_DATASET, Dataset
from .defaults import DeviceDefaults, choose_defaults
from .devices import AvailableDevices
from .experiment import Experiment
from .further import FurtherPoint, choose_further_points
from .groups import TrainingSettings
from .ladder import choose_ladder
from .space import Combination, choose_combinations
from .study import make_strong_configs

# Seconds that a trial needs besides its steps: interpreters, imports, weights, first step. For estimates only.
LEAST_ROUNDS = 4  # over all points before any interval is looked at, where the results decide how often to repeat
_OVERHEAD_SECONDS = {"cpu": 8.0, "cuda": 25.0}
# At least, of a window before its length can be chosen (--until-interval): noisy run means would stay in the mean.
FIRST_WINDOW_STEPS = 20
_TRAINING_FLOPS_PER_MAC = 6  # two operations per multiply-add, once forward and twice backward
_UNKNOWN_MACS = 4e9  # of a user's own network, for estimates: those of a ResNet-50
_AUTO_BATCH_FACTOR = 4  # how much larger than the default the largest batch may be; for estimates only
_VALIDATION_COST = 1 / 3  # of an image in training; for estimates only


@dataclass(frozen=True)
class Plan:
    experiment: Experiment
    configs: tuple[Config, ...]
    ladders: tuple[tuple[int, ...], ...]  # one for each config
    available: AvailableDevices
    dataset: Dataset = SYNTHETIC_DATASET

    @property
    def points(self) -> list[PointKey]:
        return [(config, n) for config, counts in zip(self.configs, self.ladders, strict=True) for n in counts]

    def list_round(self, repeat: int) -> list[Trial]:
        """Return one trial of every point. Every other round goes backwards, so that a drift of the machine cancels
        out.
        """
        points = self.points if repeat % 2 == 0 else self.points[::-1]
        return [Trial(config, n, repeat) for config, n in points]

    @cached_property
    def further_points(self) -> tuple[FurtherPoint, ...]:
        """What is measured beside the ladder, for an explanation. It does not make the run another one."""
        return choose_further_points(self)

    def list_further_trials(self, repeat: int) -> list[Trial]:
        return [Trial(*further.point, repeat) for further in self.further_points if repeat < further.repeats]

    def list_trials(self) -> list[Trial]:
        """Return all trials. The repeats of a point are spread over the run, not back to back."""
        repeats = range(self.experiment.measurement.repeats)
        return [trial for repeat in repeats for trial in (*self.list_round(repeat), *self.list_further_trials(repeat))]

    def choose_default_batch(self, config: Config) -> int:
        """Return the batch that the network has on this kind of device where nobody names one."""
        return _choose_device_defaults(self.available).choose_batch(config.model)

    def _estimate_batch(self, config: Config) -> Config:
        """Return the config with an estimated batch where the largest is still to be searched."""
        if config.batch != AUTO:
            return config
        return replace(config, batch=_AUTO_BATCH_FACTOR * self.choose_default_batch(config))

    def estimate_step_seconds(self, config: Config) -> float:
        """Estimate the time of a step on one device, roughly."""
        config = self._estimate_batch(config)
        macs: float = _UNKNOWN_MACS
        if models.resolve(config.model):
            macs = models.build(config.model, config.image_size, config.classes).macs
        flops = _choose_device_defaults(self.available).flops * max(1, self.available.cores_per_device)
        return config.batch_per_device(1) * macs * _TRAINING_FLOPS_PER_MAC / flops

    @property
    def overhead_seconds(self) -> float:
        """Estimate the time of a trial besides its steps."""
        return _OVERHEAD_SECONDS[self.available.kind]

    def estimate_trial_seconds(self, config: Config, devices: int) -> float:
        """Estimate the time of a trial, roughly. With --until-interval it is that of the first trials of a point, whose
        window takes about as long as what they cost besides it.
        """
        measurement = self.experiment.measurement
        measure = Measure(measurement.warmup, measurement.steps)
        if measurement.until_interval is not None:
            measure = replace(measure, seconds=self.overhead_seconds, least_steps=FIRST_WINDOW_STEPS)
        return self.estimate_seconds(config, devices, measure)

    def estimate_seconds(self, config: Config, devices: int, measure: Measure) -> float:
        """Estimate the time of a trial that measures that long."""
        config = self._estimate_batch(config)
        steps: float = measure.warmup + measure.steps
        if config.epochs:
            facts = self.dataset.read_facts()
            steps = config.epochs * (facts.train + facts.valid * _VALIDATION_COST) / config.global_batch(devices)
        per_step = self.estimate_step_seconds(config) * config.batch_per_device(devices) / config.batch_per_device(1)
        if measure.seconds is not None:
            steps = min(steps, max(measure.least_steps, measure.seconds / per_step))
        return _OVERHEAD_SECONDS[config.device] + steps * per_step

    @property
    def seconds(self) -> float:
        """The time of the ladder and of what is measured beside it."""
        return self.ladder_seconds + self.further_seconds

    @property
    def further_seconds(self) -> float:
        """A rough estimate of the time of what is measured beside the ladder."""
        return sum(
            further.repeats * self.estimate_seconds(*further.point, further.measure) for further in self.further_points
        )

    @property
    def ladder_seconds(self) -> float:
        """The budget, or else a rough estimate of the time of all trials of the ladder, or of the least of them."""
        measurement = self.experiment.measurement
        if measurement.budget is not None:
            return measurement.budget
        repeats = LEAST_ROUNDS if measurement.until_interval is not None else measurement.repeats
        return repeats * sum(self.estimate_trial_seconds(config, n) for config, n in self.points)


def make_plan(experiment: Experiment, available: AvailableDevices) -> Plan:
    dataset = data.find_dataset(experiment.work.data)
    checks.check_images_are_used(experiment, dataset)
    checks.check_explanation(experiment)
    checks.check_study(experiment)
    configs = []
    for framework in _find_frameworks(experiment.work.frameworks):
        for text in experiment.work.models:
            network = choose_network(text, framework, experiment.work, dataset)
            configs += _make_configs(experiment, available, framework, network, dataset)
    if experiment.measurement.study:
        configs += make_strong_configs(configs, available, experiment)
    checks.check_configs(configs, experiment.work.max_batch)
    ladders = tuple(choose_ladder(config, available, experiment.resources) for config in configs)
    if dataset.is_real:
        for config, counts in zip(configs, ladders, strict=True):
            checks.check_images_fit(config, counts, dataset.read_facts())
    return Plan(experiment, tuple(configs), ladders, available, dataset)


def _choose_device_defaults(available: AvailableDevices) -> DeviceDefaults:
    return choose_defaults(available.kind, available.device_name, available.memory_bytes)


def _find_frameworks(names: tuple[str, ...]) -> list[Framework]:
    for name in names:
        if name.lower() not in FRAMEWORKS:
            raise explain_unknown("framework", name, FRAMEWORKS)
    return [FRAMEWORKS[name.lower()] for name in names]


def _make_configs(
    experiment: Experiment,
    available: AvailableDevices,
    framework: Framework,
    network: NetworkChoice,
    dataset: Dataset,
) -> list[Config]:
    """Return the configs of all combinations. A search leaves out those that the framework does not offer."""
    usual_batch = _choose_device_defaults(available).choose_batch(network.name)
    combinations = choose_combinations(experiment, framework, network, available, usual_batch)
    configs = [_make_config(experiment, available, framework, network, dataset, choice) for choice in combinations]
    offered = [config for config in configs if framework.refuses(config) is None]
    if experiment.measurement.search and offered:
        configs = offered
    for config in configs:
        checks.check_config(config, framework)
    return configs


def _make_config(
    experiment: Experiment,
    available: AvailableDevices,
    framework: Framework,
    network: NetworkChoice,
    dataset: Dataset,
    choice: Combination,
) -> Config:
    work, resources, strategy = experiment.work, experiment.resources, choice.strategy
    config = Config(
        framework=framework.name,
        model=network.name,
        batch=choice.batch,
        strategy=strategy.name,
        image_size=network.image_size,
        classes=network.classes,
        channels=network.channels,
        servers=strategy.servers,
        server_placement=choice.server_placement,
        servers_per_host=(resources.servers_per_host or 0) if strategy.servers else 0,
        placement=choice.placement,
        precision=choice.precision,
        layout=choice.layout,
        compile=choice.compile,
        scaling=experiment.measurement.scaling,
        data=dataset.name,
        augment=work.augment or not dataset.is_real,
        loaders=(resources.loaders or 0) if dataset.is_real else 0,
        device=available.kind,
        cores_per_device=available.cores_per_device,
        ranks_per_gpu=resources.ranks_per_gpu,
        allocator=resources.allocator,
    )
    return _set_training(config, experiment.training)


def _set_training(config: Config, training: TrainingSettings) -> Config:
    """Return the config with the training that the experiment sets. What it does not set is the network's own default
    if the network is trained to an accuracy; where speed is measured it is the same for all networks.
    """
    usual = models.find_training_defaults(config.model) if training.epochs else config
    return replace(
        config,
        epochs=training.epochs or 0,
        until_accuracy=training.until_accuracy,
        momentum=training.momentum,
        warmup_epochs=training.warmup_epochs,
        deterministic=training.deterministic,
        learning_rate=usual.learning_rate if training.learning_rate is None else training.learning_rate,
        weight_decay=usual.weight_decay if training.weight_decay is None else training.weight_decay,
        schedule=usual.schedule if training.schedule is None else training.schedule,
    )
