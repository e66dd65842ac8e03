"""The largest batch that fits, found by short real trials on one device: doubled until memory runs out, then halved in
between. Running out of memory is the answer here; any other failure ends the search.

On a CPU the workers of a host share its memory, and there is no end to it but a machine that swaps: there a worker of
the search may allocate only its part of what is free, so that an allocation beyond it fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ..errors import TrainscaleError
from ..launch.launchers.base import Launcher
from ..launch.trial.observer import TrialObserver
from ..record.batches import Attempt, Search, read_batches, write_batches
from ..record.trial import OUT_OF_MEMORY, Failure, TrialRecord
from ..spec import placement
from ..spec.config import AUTO, Config, Trial
from ..spec.plan import Plan
from ..worker.job import Measure
from .trial import run_trial

MOST = 65_536  # no framework's kernels were made for more; and the search must end
SHARE = 0.8  # of the memory that a host has free, for all its workers together
_WIDTH = 1 / 16  # of the largest that fits: nearer than this is near enough
_GRAIN, _GRAINED_FROM = 8, 64  # from 64 on only multiples of 8 are tried: no other is worth having
# The second step is the first in which momentum is held; the others show that it stays so. What is found is tried
# twice, and longer: near the limit it is a matter of luck how memory is cut into pieces.
_MEASURE, _MEASURE_AGAIN = Measure(warmup=2, steps=2), Measure(warmup=2, steps=8)
_TIMEOUT_SECONDS = 1800.0


class SearchFailed(TrainscaleError):
    """An attempt failed by something else than want of memory."""


@dataclass
class SearchListener:
    """What the terminal wants to know while batches are tried."""

    begins: Callable[[Search], None] = lambda _: None
    tries: Callable[[Search, int], None] = lambda *_: None
    moves: Callable[[TrialObserver], None] = lambda _: None
    tried: Callable[[Search, Attempt], None] = lambda *_: None
    ends: Callable[[Search], None] = lambda _: None


def find_batches(
    plan: Plan,
    directory: Path,
    launcher: Launcher,
    pythons: Mapping[str, str],
    watch: SearchListener,
    *,
    again: bool = False,
    logs: Path | None = None,
) -> dict[str, Search]:
    """A finished search for every config whose batch is AUTO, by its key. Each attempt is remembered in the directory
    when it has ended: an interruption loses the one under way. ``again``: what has not fitted at all is tried anew.
    """
    found = read_batches(directory)
    for config, counts in zip(plan.configs, plan.ladders, strict=True):
        if config.batch != AUTO:
            continue
        search = found.get(config.key) or Search(config, *bound(plan, config, counts))
        if again and search.done and search.largest is None:
            search = replace(search, attempts=(), done=False)
        if search.done:
            continue
        watch.begins(search)
        share = memory_share(plan, config, counts)
        while (batch := next_batch(search.attempts, plan.usual_batch(config), search.most)) is not None:
            watch.tries(search, batch)
            tried = any(one.batch == batch for one in search.attempts)
            measure = _MEASURE_AGAIN if tried else _MEASURE
            record = try_batch(plan, config, batch, measure, launcher, pythons, share, watch.moves, logs)
            attempt = judge(search, batch, record)
            search = replace(search, attempts=(*search.attempts, attempt))
            found[config.key] = search
            write_batches(directory, found)
            watch.tried(search, attempt)
        found[config.key] = replace(search, done=True)
        write_batches(directory, found)
        watch.ends(found[config.key])
    return found


def next_batch(attempts: Sequence[Attempt], start: int, most: int) -> int | None:
    """What to try now, or None when enough is known. Pure: it looks at what was tried."""
    failed = {one.batch for one in attempts if not one.fits}
    fitted = Counter(one.batch for one in attempts if one.batch not in failed)
    fits, fails = max(fitted, default=0), min(failed, default=None)
    if not fits:
        return min(start, most) if fails is None else fails // 2 or None
    certain = None if fitted[fits] > 1 else fits
    if fails is None:
        return min(2 * fits, most) if fits < most else certain
    grain = _GRAIN if fits >= _GRAINED_FROM else 1
    if fails - fits <= max(grain, fits * _WIDTH):
        return certain
    middle = (fits + fails) // 2 // grain * grain
    return middle if middle > fits else fits + grain


def try_batch(
    plan: Plan,
    config: Config,
    batch: int,
    measure: Measure,
    launcher: Launcher,
    pythons: Mapping[str, str],
    share: float,
    moves: Callable[[TrialObserver], None] = lambda _: None,
    logs: Path | None = None,
) -> TrialRecord:
    """A few steps on the images of the run, with its strategy and precision; epochs are not waited for."""
    tried = replace(config, batch=batch, epochs=0, until_accuracy=None)
    patience = min(plan.experiment.timeout, _TIMEOUT_SECONDS)
    short = replace(plan, experiment=replace(plan.experiment, timeout=patience))
    return run_trial(Trial(tried, 1, 0), measure, short, launcher, pythons, logs=logs, watch=moves, memory_share=share)


def judge(search: Search, batch: int, record: TrialRecord) -> Attempt:
    """What a trial of the search shows. SearchFailed if it shows nothing about memory."""
    limit = record.machine.get("memory_limit_bytes")
    attempt = Attempt(batch, record.ok, round(record.seconds, 3), memory_limit_bytes=int(limit) if limit else None)
    if record.ok:
        rank = record.ranks[0]
        return replace(
            attempt,
            device_peak_bytes=rank.device_peak_bytes,
            nvml_peak_bytes=rank.nvml_peak_bytes,
            host_peak_bytes=rank.host_peak_bytes,
        )
    failure = record.failure or Failure(record.status, "")
    if failure.kind == OUT_OF_MEMORY:
        return replace(attempt, message=failure.message)
    largest = search.largest
    hint = f"\n  batch {largest.batch:,} fits: --max-batch {largest.batch} tries no larger one" if largest else ""
    raise SearchFailed(
        f"{label(search.config)}: the search for the largest batch ended at {batch:,}: {failure.kind}:"
        f" {failure.message}{hint}"
    )


def bound(plan: Plan, config: Config, counts: Sequence[int]) -> tuple[int, str]:
    """The largest batch to try, and what sets it."""
    limits = [(MOST, "the search goes no further")]
    if plan.experiment.max_batch is not None:
        limits.append((plan.experiment.max_batch, "--max-batch"))
    if plan.images.is_real:
        facts = plan.images.facts()
        words = f"the {facts.train:,} training images of {facts.name}"
        words += f" on {counts[-1]} devices" if counts[-1] > 1 else ""
        steps = 2 if config.epochs else 1  # an epoch of one step could not be timed: the first is left out
        words += ", two steps an epoch" if config.epochs else ""
        limits.append((max(1, facts.train // counts[-1] // steps), words))
    return min(limits)


def memory_share(plan: Plan, config: Config, counts: Sequence[int]) -> float:
    """Of a host's free memory, for each of its workers at the longest ladder step; 0, for no limit, on GPUs."""
    if config.device != "cpu":
        return 0.0
    hosts = Counter(
        seat.site.host for n in counts[-1:] for seat in placement.place_processes(config, n, plan.supply)[:n]
    )
    return SHARE / max(hosts.values())


def resolved(plan: Plan, searches: Mapping[str, Search]) -> Plan:
    """The plan with the batches that were found. Without what does not fit at all, and without what is asked for
    already; what is not found yet stays as it is.
    """
    kept: dict[Config, tuple[int, ...]] = {}
    for config, counts in zip(plan.configs, plan.ladders, strict=True):
        search = searches.get(config.key) if config.batch == AUTO else None
        if search is None or not search.done:
            kept.setdefault(config, counts)
        elif search.largest is not None:
            kept.setdefault(replace(config, batch=search.largest.batch), counts)
    return replace(plan, configs=tuple(kept), ladders=tuple(kept.values()))


def without_room(plan: Plan, searches: Mapping[str, Search]) -> list[TrialRecord]:
    """A failed row for every point of a config that fits with no batch: out of memory is a result."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = []
    for config, n in plan.points:
        search = searches.get(config.key) if config.batch == AUTO else None
        if search is None or not search.done or search.largest is not None or search.smallest_failing is None:
            continue
        failure = Failure(OUT_OF_MEMORY, f"not even a batch of 1 fits: {search.smallest_failing.message}")
        hosts = placement.hosts_of(config, n, plan.supply)
        trial = Trial(replace(config, batch=1), n, 0)
        found.append(TrialRecord(trial, OUT_OF_MEMORY, now, 0.0, hosts=hosts, failure=failure))
    return found


def label(config: Config) -> str:
    return f"{config.framework} {config.model} {config.strategy_label}"
