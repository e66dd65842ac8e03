"""Finds the largest batch that fits, by short real trials on one device; batches.json has them.

The batch is doubled until memory runs out, then bisected. On a CPU, which may swap instead, a worker may allocate
only its part of the free memory.

Schema history
    1  first version
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import TrainscaleError
from ..record.decoding import convert, read_document
from ..record.files import write_atomically
from ..record.journal import Journal
from ..record.trial import OUT_OF_MEMORY, Failure
from ..spec.config import AUTO, Config, Trial
from ..spec.devices import place_processes
from ..spec.plan import Plan
from ..worker.job import Measure
from ..worker.type_aliases import JsonObject
from .context import RunContext, run_trial, select_configs
from .expectations import Report
from .order import make_unmeasured

FILE = "batches.json"
SCHEMA = 1
MOST = 65_536  # no framework's kernels are made for more, and the search must end
SHARE = 0.8  # of the memory that a host has free, for all its workers together
_PRECISION = 1 / 16  # of the largest batch that fits: the search ends when it is this close
_GRAIN, _GRAINED_FROM = 8, 64  # from 64 on, only multiples of 8 are worth using
# Momentum is allocated in the second step. Fragmentation varies, so the result is tried again.
_FIRST_MEASURE, _SECOND_MEASURE = Measure(warmup=2, steps=2), Measure(warmup=2, steps=8)
_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True)
class Attempt:
    batch: int
    fits: bool
    seconds: float
    message: str = ""  # why it does not fit
    device_peak_bytes: int | None = None
    nvml_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None  # on a CPU: the limit set on the process

    @property
    def memory_bytes(self) -> int | None:
        """The first known count: of the driver, of the framework, of the host."""
        return self.nvml_peak_bytes or self.device_peak_bytes or self.host_peak_bytes


@dataclass(frozen=True)
class Search:
    """``config`` has the batch AUTO. ``bound`` says why ``most`` is not larger."""

    config: Config
    most: int
    bound: str
    attempts: tuple[Attempt, ...] = ()
    done: bool = False

    @property
    def largest(self) -> Attempt | None:
        """The largest batch known to fit, from this or an earlier run."""
        failed = {attempt.batch for attempt in self.attempts if not attempt.fits}
        fitting = [attempt for attempt in self.attempts if attempt.batch not in failed]
        return max(fitting, key=lambda attempt: (attempt.batch, attempt.memory_bytes or 0), default=None)

    @property
    def smallest_failing(self) -> Attempt | None:
        failed = [attempt for attempt in self.attempts if not attempt.fits]
        return min(failed, key=lambda attempt: attempt.batch, default=None)


def settle_batches(context: RunContext, journal: Journal, show: Report) -> RunContext:
    """Return the context with a batch for every config. ``show`` gets lines.

    Configs that fit with no batch are appended to the journal as failed.
    """
    missing = context.missing
    plan = select_configs(context.plan, lambda c: c.batch != AUTO or c.framework not in missing)
    context = replace(context, plan=plan)
    searches = find_batches(context, journal.directory, show)
    recorded = {record.trial.key for record in journal.records}
    for config, devices in plan.points:
        search = searches.get(config.key) if config.batch == AUTO else None
        trial = Trial(replace(config, batch=1), devices, 0)
        if search is None or search.largest or not search.smallest_failing or trial.key in recorded:
            continue
        failure = Failure(OUT_OF_MEMORY, f"not even a batch of 1 fits: {search.smallest_failing.message}")
        journal.append(make_unmeasured(plan, trial, failure))
    return replace(context, plan=apply_searches(plan, searches))


def find_batches(context: RunContext, directory: Path, show: Report) -> dict[str, Search]:
    """Return a finished search for every config whose batch is AUTO, by its key."""
    searches = read_batches(directory)
    for config, counts in context.plan.ladders.items():
        if config.batch != AUTO:
            continue
        most, reason = find_largest_to_try(context.plan, config, counts)
        search = searches.get(config.key) or Search(config, most, reason)
        if context.retry_failed and search.done and search.largest is None:
            search = replace(search, attempts=(), done=False)
        if search.done:
            continue
        known = f", {len(search.attempts)} attempts are known" if search.attempts else ""
        limit = f"at most {search.most:,}"
        show(f"{describe_config(config)}: searching the largest batch that fits, {limit}{known}")
        share = compute_memory_share(context.plan, config, counts)
        start = context.plan.choose_default_batch(config)
        while (batch := choose_next_batch(search.attempts, start, search.most)) is not None:
            attempt = try_batch(context, search, batch, share)
            search = replace(search, attempts=(*search.attempts, attempt))
            searches[config.key] = search
            write_batches(directory, searches)
            show(f"  {describe_attempt(search, attempt)}")
        searches[config.key] = replace(search, done=True)
        write_batches(directory, searches)
        show(describe_search(searches[config.key]))
    return searches


def choose_next_batch(attempts: Sequence[Attempt], start: int, most: int) -> int | None:
    """Return the batch to try now, or None when enough is known."""
    failed = {attempt.batch for attempt in attempts if not attempt.fits}
    fitted = Counter(attempt.batch for attempt in attempts if attempt.batch not in failed)
    largest_fitting, smallest_failing = max(fitted, default=0), min(failed, default=None)
    if not largest_fitting:
        return min(start, most) if smallest_failing is None else smallest_failing // 2 or None
    to_confirm = None if fitted[largest_fitting] > 1 else largest_fitting
    if smallest_failing is None:
        return min(2 * largest_fitting, most) if largest_fitting < most else to_confirm
    grain = _GRAIN if largest_fitting >= _GRAINED_FROM else 1
    if smallest_failing - largest_fitting <= max(grain, largest_fitting * _PRECISION):
        return to_confirm
    middle = (largest_fitting + smallest_failing) // 2 // grain * grain
    return middle if middle > largest_fitting else largest_fitting + grain


def try_batch(context: RunContext, search: Search, batch: int, share: float) -> Attempt:
    """Take a few steps of the run's work. A worker may use ``share`` of the free memory."""
    short = replace(search.config, batch=batch, epochs=0, until_accuracy=None)
    experiment = context.plan.experiment
    experiment = experiment.replace_values(timeout=min(experiment.safety.timeout, _TIMEOUT_SECONDS))
    context = replace(context, plan=replace(context.plan, experiment=experiment))
    is_second = any(attempt.batch == batch for attempt in search.attempts)
    measure = _SECOND_MEASURE if is_second else _FIRST_MEASURE
    record = run_trial(context, Trial(short, 1, 0), measure, memory_share=share)
    attempt = Attempt(batch, record.ok, round(record.seconds, 3))
    if limit := record.machine.memory_limit_bytes:
        attempt = replace(attempt, memory_limit_bytes=int(limit))
    if record.ok:
        names = ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")
        return replace(attempt, **{name: getattr(record.ranks[0], name) for name in names})
    failure = record.failure or Failure(record.status, "")
    if failure.kind == OUT_OF_MEMORY:
        return replace(attempt, message=failure.message)
    name, largest = describe_config(search.config), search.largest
    reason = f"{failure.kind}: {failure.message}"
    if largest:
        reason += f"\n  batch {largest.batch:,} fits: --max-batch {largest.batch} tries no larger one"
    raise TrainscaleError(f"{name}: the search for the largest batch ended at {batch:,}: {reason}")


def find_largest_to_try(plan: Plan, config: Config, counts: Sequence[int]) -> tuple[int, str]:
    limits = [(MOST, "the search goes no further")]
    if plan.experiment.work.max_batch is not None:
        limits.append((plan.experiment.work.max_batch, "--max-batch"))
    if plan.dataset.is_real:
        facts = plan.dataset.facts
        reason = f"the {facts.train:,} training images of {facts.name}"
        reason += f" on {counts[-1]} devices" if counts[-1] > 1 else ""
        steps = 2 if config.epochs else 1  # the first step is not timed, so an epoch needs two
        reason += ", two steps an epoch" if config.epochs else ""
        limits.append((max(1, facts.train // counts[-1] // steps), reason))
    return min(limits)


def compute_memory_share(plan: Plan, config: Config, counts: Sequence[int]) -> float:
    """Return each worker's part of a host's free memory; 0 (no limit) on GPUs."""
    if config.device != "cpu":
        return 0.0
    workers = place_processes(config, counts[-1], plan.available)[: counts[-1]]
    return SHARE / max(Counter(worker.host.name for worker in workers).values())


def apply_searches(plan: Plan, searches: Mapping[str, Search]) -> Plan:
    """Return the plan with the batches that were found, each config once."""
    ladders: dict[Config, tuple[int, ...]] = {}
    for config, counts in plan.ladders.items():
        search = searches.get(config.key) if config.batch == AUTO else None
        if search is None or not search.done:
            ladders.setdefault(config, counts)
        elif search.largest is not None:
            ladders.setdefault(replace(config, batch=search.largest.batch), counts)
    return replace(plan, ladders=ladders)


def describe_config(config: Config) -> str:
    return f"{config.framework} {config.model} {config.strategy_label}"


def describe_attempt(search: Search, attempt: Attempt) -> str:
    """Return ``batch 512 fits, 14.2 GiB`` or ``batch 1,024: out of memory``."""
    is_second = sum(other.batch == attempt.batch for other in search.attempts) > 1
    if not attempt.fits:
        return f"batch {attempt.batch:,}: out of memory{' the second time' if is_second else ''}"
    memory = f", {attempt.memory_bytes / 2**30:.1f} GiB" if attempt.memory_bytes is not None else ""
    return f"batch {attempt.batch:,} fits{' again' if is_second else ''}{memory}"


def describe_search(search: Search) -> str:
    largest, failing = search.largest, search.smallest_failing
    name, limit = describe_config(search.config), failing.memory_limit_bytes if failing else None
    memory_limit = f", where a worker may allocate {limit / 2**30:.1f} GiB" if limit else ""
    if largest is None:
        return f"{name}: not even a batch of 1 fits{memory_limit}"
    memory = f" ({largest.memory_bytes / 2**30:.1f} GiB)" if largest.memory_bytes is not None else ""
    if failing is None:
        return f"{name}: batch {largest.batch:,} still fits{memory}; not tried further: {search.bound}"
    fits = f"the largest batch that fits is {largest.batch:,}{memory}"
    return f"{name}: {fits}; {failing.batch:,} does not{memory_limit}"


# ---- batches.json


def write_batches(directory: Path, searches: Mapping[str, Search]) -> None:
    values = [{**asdict(search), "config": search.config.to_dict()} for search in searches.values()]
    document = {"schema": SCHEMA, "searches": values}
    write_atomically(directory / FILE, json.dumps(document, indent=2) + "\n")


def read_batches(directory: Path) -> dict[str, Search]:
    """Return the searches of a run by the key of their config."""

    def decode(values: JsonObject) -> list[Search]:
        return convert(values.get("searches"), list[Search])

    searches = read_document(directory / FILE, SCHEMA, "batches that were searched", decode)
    return {search.config.key: search for search in searches or ()}
