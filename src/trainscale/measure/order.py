"""Decides which trial comes next: by a fixed list, a budget, intervals, or a search (analyse/race.py).

Everything here is pure: it looks at the plan and at the records so far.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from statistics import fmean, median, variance

from ..analyse.race import MOST_FAILURES, Race, count_most_rounds, replay_races
from ..analyse.statistics import CONFIDENCE, Estimate, make_estimate, mean_interval, ratio
from ..analyse.throughput import is_measured, list_speeds, list_step_seconds
from ..record.trial import HANG, OUT_OF_MEMORY, SKIPPED, TIMEOUT, Failure, TrialRecord
from ..spec.config import Config, PointKey, Trial
from ..spec.devices import count_hosts, place_processes
from ..spec.plan import FIRST_WINDOW_STEPS, LEAST_ROUNDS, Plan
from ..worker.job import Measure
from .context import make_short_measure

_GOOD_ENOUGH = 0.01  # half the interval over the mean
_OVERHEAD_GUESS = 8.0  # seconds of a trial besides its steps, before one is measured
_LEAST_WINDOW = 1.0  # seconds
_CERTAIN = (OUT_OF_MEMORY, TIMEOUT, HANG)  # it would happen again


@dataclass(frozen=True)
class NextTrial:
    trial: Trial
    measure: Measure


def choose_next_trial(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    measurement = plan.experiment.measurement
    if measurement.is_sequential:  # points beside the ladder come last, after a budget is spent
        most = max((further.repeats for further in plan.further_points), default=0)
        further = [trial for repeat in range(most) for trial in plan.list_further_trials(repeat)]
        return _choose_by_results(plan, records) or _choose_first_open(plan, further, records)
    if measurement.search:
        races = replay_races_of_plan(plan, records)
        race = next((race for race in races if race.waiting), None)
        if race is not None:  # small batches first in every other round
            config = sorted(race.waiting, key=lambda config: config.batch)[0 if race.round % 2 else -1]
            short = [record for record in records if record.trial.short]
            repeat = _find_free_repeat(short, (config, race.devices))
            trial = Trial(config, race.devices, repeat, short=True)
            return NextTrial(trial, make_short_measure(measurement))
        won: defaultdict[Config, set[int]] = defaultdict(set)  # the device counts to measure in full
        for race in races:
            if race.winner is not None:
                won[race.winner] |= {1, race.devices}
        ladders = {c: tuple(n for n in plan.ladders[c] if n in won[c]) for c in plan.ladders if c in won}
        plan = replace(plan, ladders=ladders)
        records = [record for record in records if not record.trial.short]
    return _choose_first_open(plan, plan.list_trials(), records)


def _find_free_repeat(records: Sequence[TrialRecord], point: PointKey) -> int:
    """Return the first number without a record: --retry-failed leaves gaps."""
    used = {record.trial.repeat for record in records if record.trial.point == point}
    return next(number for number in count() if number not in used)


def _choose_first_open(plan: Plan, trials: Iterable[Trial], records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the first trial that is not recorded and may succeed."""
    measurement = plan.experiment.measurement
    recorded = {record.trial.key for record in records}
    hopeless = find_hopeless_points(records)
    trial = next((t for t in trials if t.key not in recorded and t.point not in hopeless), None)
    if trial is None:
        return None
    measures = {further.point: further.measure for further in plan.further_points}
    return NextTrial(trial, measures.get(trial.point, Measure(measurement.warmup, measurement.steps)))


def find_hopeless_points(records: Sequence[TrialRecord]) -> set[PointKey]:
    failures = Counter(record.trial.point for record in records if not record.ok)
    certain = {record.trial.point for record in records if record.status in _CERTAIN}
    return certain | {point for point, number in failures.items() if number >= MOST_FAILURES}


# ---- where the results decide what is repeated: --budget, --until-interval


def _choose_by_results(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the next trial, until the budget is spent or all intervals are narrow."""
    measurement = plan.experiment.measurement
    repeats = Counter(record.trial.point for record in records)
    point = _choose_most_useful_point(plan, repeats, records)
    if point is None:
        return None
    trial = Trial(*point, _find_free_repeat(records, point))
    times: defaultdict[int, list[TrialTimes]] = defaultdict(list)  # by number of devices
    for record in records:
        if record.trial.config == trial.config and is_measured(record):
            window = max(rank.window_seconds for rank in record.ranks)
            own = TrialTimes(record.seconds, window, list_step_seconds(record)[: record.steps])
            times[record.trial.devices].append(own)
    most = Measure(measurement.warmup, measurement.steps)
    counts = choose_counts(times[trial.devices], times.values(), most)

    good = [record for record in records if record.ok]
    overhead = _OVERHEAD_GUESS  # besides the steps, of the last trial of this point, or of any
    of_point = [record for record in good if record.trial.point == point]
    if last := next(reversed(of_point or good), None):
        window = max(rank.window_seconds for rank in last.ranks)
        overhead = max(0.0, last.seconds - window * (1 + last.warmup / max(1, last.steps)))
    if measurement.budget is not None:
        further = {further.point for further in plan.further_points}
        spent = sum(record.seconds for record in records if record.trial.point not in further)
        seconds_left = measurement.budget - spent
        # Every point is measured once, even past the budget. Further trials must end within it.
        if repeats[point] and seconds_left < overhead + _LEAST_WINDOW:
            return None
        share = measurement.budget / (len(plan.points) * LEAST_ROUNDS)
        seconds = max(_LEAST_WINDOW, min(share, seconds_left) - overhead)
        return NextTrial(trial, replace(counts or most, seconds=seconds))
    # Until a window can be chosen, it takes no longer than what its trial costs besides it.
    first = replace(most, seconds=max(_LEAST_WINDOW, overhead), least_steps=FIRST_WINDOW_STEPS)
    return NextTrial(trial, counts or first)


def _choose_most_useful_point(
    plan: Plan, repeats: Counter[PointKey], records: Sequence[TrialRecord]
) -> PointKey | None:
    """Return the point whose repeat is worth most, by default that of the widest interval."""
    measurement, hopeless = plan.experiment.measurement, find_hopeless_points(records)
    points = [point for point in plan.points if point not in hopeless]
    fewest = min((repeats[point] for point in points), default=0)
    if fewest < LEAST_ROUNDS:
        in_round = [trial.point for trial in plan.list_round(fewest) if trial.point in points]
        return next((point for point in in_round if repeats[point] == fewest), None)
    repeated = {}
    widths = dict.fromkeys(points, math.inf)
    for point in points:
        good = [record for record in records if record.trial.point == point and is_measured(record)]
        if good:
            speed = mean_interval(list_speeds(good), sequential=True)
            if len(good) >= LEAST_ROUNDS and speed.relative is not None:
                widths[point] = speed.relative
            # Under a budget, a trial on few devices costs as much time as one on all.
            devices = point[1] if measurement.budget is None else 1
            cost = devices * fmean(record.seconds for record in good)
            estimate = make_estimate(speed, len(good), is_sequential=True)
            repeated[point] = Repeated(estimate, max(cost, _LEAST_WINDOW))
    if measurement.until_interval is not None:
        return choose_point(repeated, measurement.until_interval)
    widest = max(points, key=widths.__getitem__)
    return widest if widths[widest] > _GOOD_ENOUGH else None


# ---- which point
#
# The error of an efficiency is that of its point and of the 1-device point, so this cheap point is repeated
# more often: if a trial of a point costs c, repeats tend to the ratio of the points' CV/√c.

MOST_REPEATS = 100  # of a point: more will not make an interval narrow either


@dataclass(frozen=True)
class Repeated:
    speed: Estimate
    device_seconds: float  # that one more trial takes


def choose_point(points: Mapping[PointKey, Repeated], target: float) -> PointKey | None:
    """Return the point whose repeat narrows intervals above ``target`` most per device-second."""
    # Of speeds, and of speed-ups over the 1-device point.
    intervals: list[Sequence[PointKey]] = [(key,) for key in points]
    intervals += [(key, (key[0], 1)) for key in points if key[1] > 1 and (key[0], 1) in points]
    gains: defaultdict[PointKey, float] = defaultdict(float)
    for point, *baseline in intervals:
        speeds = [points[key].speed for key in baseline]
        width = ratio([points[point].speed], speeds, CONFIDENCE).relative
        if width is not None and width <= target:
            continue
        for key in (point, *baseline):
            error, repeats = points[key].speed.error, points[key].speed.repeats or 1
            # What one more repeat takes from the variance of the mean.
            gain = math.inf if error is None else error**2 / (repeats + 1)
            gains[key] += gain / points[key].device_seconds
    useful = [key for key in points if gains.get(key)]
    candidates = [key for key in useful if (points[key].speed.repeats or 0) < MOST_REPEATS]
    return max(candidates, key=lambda key: gains[key], default=None)


# ---- how many steps
#
# If a trial costs C besides its window and c a step, and steps vary by V within and by B between processes,
# cost times variance is least for √(C/c · V/B) steps (Kalibera and Jones, 2013).

LEAST_STEPS = 5  # of a window
_LEAST_FREEDOM = 3  # repeats beyond the first of each point, for the variance between them
_LEAST_BETWEEN = 0.001**2  # no machine repeats its speed more closely than by 0.1 %
_STEPS_IN_BLOCKS = 20  # shorter windows are not cut into blocks
_CHEAP_WARMUP = 0.1  # of a trial besides its window: below that, it is not shortened
_WARMUP_SHARE = 0.25  # of the steps of the window
_LEAST_WARMUP = 2


@dataclass(frozen=True)
class TrialTimes:
    seconds: float
    window_seconds: float
    steps: Sequence[float]

    @property
    def step_seconds(self) -> float:
        return self.window_seconds / len(self.steps)


def choose_counts(own: Sequence[TrialTimes], points: Iterable[Sequence[TrialTimes]], most: Measure) -> Measure | None:
    """Return how long a point's next trial is; None while too little is known."""
    ratio = compute_variance_ratio(points)
    own = [trial for trial in own if trial.steps and trial.window_seconds > 0]
    if ratio is None or not own:
        return None
    overhead = median(max(0.0, trial.seconds - trial.window_seconds) for trial in own)
    step = median(trial.step_seconds for trial in own)
    steps = min(most.steps, max(LEAST_STEPS, round(math.sqrt(overhead / step * ratio))))
    warmup = most.warmup
    if warmup * step > _CHEAP_WARMUP * overhead:
        warmup = min(warmup, max(_LEAST_WARMUP, round(_WARMUP_SHARE * steps)))
    return Measure(warmup, steps)


def compute_variance_ratio(points: Iterable[Sequence[TrialTimes]]) -> float | None:
    """Return the relative variance of steps within a process over that of run means."""
    within: list[float] = []
    excess, freedom = 0.0, 0
    for trials in points:
        own = [trial for trial in trials if len(trial.steps) > 1]
        variances = []  # relative, of a step, such that a mean of m steps has 1/m of it
        for steps in (trial.steps for trial in own):
            # Steps in a row are alike, so means of blocks are compared.
            block = math.isqrt(len(steps)) if len(steps) >= _STEPS_IN_BLOCKS else 1
            starts = range(0, len(steps) - block + 1, block)
            block_means = [fmean(steps[start : start + block]) for start in starts]
            variances.append(block * variance(block_means) / fmean(steps) ** 2)
        within += variances
        if len(own) < 2:
            continue
        means = [trial.step_seconds for trial in own]
        spread = variance(means) / fmean(means) ** 2
        by_chance = fmean(value / len(trial.steps) for value, trial in zip(variances, own, strict=True))
        excess += (len(own) - 1) * (spread - by_chance)
        freedom += len(own) - 1
    if freedom < _LEAST_FREEDOM:
        return None
    return fmean(within) / max(_LEAST_BETWEEN, excess / freedom)


# ---- a search: how many trials it has, and what is not tried because it cannot fit


def replay_races_of_plan(plan: Plan, records: Sequence[TrialRecord]) -> list[Race]:
    return replay_races(plan.points, records, count_most_rounds(plan.experiment.measurement.repeats))


def count_most_trials(plan: Plan) -> tuple[int, int]:
    measurement, races = plan.experiment.measurement, replay_races_of_plan(plan, ())
    rounds = count_most_rounds(measurement.repeats)
    short = sum(len(race.configs) * rounds for race in races if len(race.configs) > 1)
    has_baseline = any(1 in ladder for ladder in plan.ladders.values())
    points = sum(2 if race.devices > 1 and has_baseline else 1 for race in races)
    return short, points * measurement.repeats


def make_unmeasured(plan: Plan, trial: Trial, failure: Failure) -> TrialRecord:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    hosts = count_hosts(trial.config, trial.devices, plan.available)
    return TrialRecord(trial, failure.kind, now, 0.0, hosts=hosts, failure=failure)


def skip_for_memory(plan: Plan, trial: Trial, records: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return why a short trial is not tried, by the memory of two smaller batches."""
    if not trial.short:
        return None
    config, work = trial.config, replace(trial.config, batch=0)
    same_count = [record for record in records if record.trial.devices == trial.devices]
    alike = [record for record in same_count if replace(record.trial.config, batch=0) == work]
    failed = min((r.trial.config.batch for r in alike if r.status == OUT_OF_MEMORY), default=config.batch)
    if failed < config.batch:
        message = f"not tried: batch {failed} ran out of memory"
        return make_unmeasured(plan, trial, Failure(SKIPPED, message))
    peaks: defaultdict[int, float] = defaultdict(float)  # by batch, of the rank that needs most
    for record in alike:
        sizes = [
            rank.host_peak_bytes if config.device == "cpu" else rank.nvml_peak_bytes or rank.device_peak_bytes
            for rank in record.ranks
            if is_measured(record)
        ]
        known = [size for size in sizes if size]
        if known and len(known) == len(sizes):
            peaks[record.trial.config.batch] = max(peaks[record.trial.config.batch], *known)
    limit = float(plan.available.memory_bytes)  # of a GPU, or of a host; 0 if it is unknown
    if config.device == "cpu":
        workers = place_processes(config, trial.devices, plan.available)[: trial.devices]
        limit /= max(Counter(worker.host.name for worker in workers).values())
    smaller = sorted(batch for batch in peaks if batch < config.batch)
    if not limit or len(smaller) < 2:
        return None
    low, high = smaller[-2:]
    slope = max(0.0, (peaks[high] - peaks[low]) / (high - low))
    estimate = peaks[high] + slope * (config.batch - high)
    if estimate <= limit:
        return None
    memory = (estimate, limit, peaks[low], peaks[high])
    needed, there, at_low, at_high = (f"{size / 2**30:.1f} GiB" for size in memory)
    batches = f"{low} ({at_low}) and {high} ({at_high})"
    message = f"not tried: it would need about {needed} by its batches {batches}, and there are {there}"
    return make_unmeasured(plan, trial, Failure(SKIPPED, message))
