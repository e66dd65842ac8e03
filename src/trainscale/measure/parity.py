"""Proves that the compared frameworks train the same network: each computes a few steps.

Every difference between their numbers has a tolerance. Numbers in float32 are compared with the
reference's float64; no computation with fewer bits meets their tolerances.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from queue import SimpleQueue

from ..launch.connected_hosts import ConnectedHosts, wait_for_futures
from ..launch.tasks import BATCH, FP32, FP64, STEPS, VERSION, NumbersFailed, compute_parity_numbers
from ..launch.trial.trial import list_plugins
from ..record.parity import BUILD, FAILED, PROVEN, UNPROVEN, Check, Verdict
from ..spec.config import Config
from ..worker import models
from ..worker.frameworks.catalog import explain_foreign
from ..worker.job import Device
from .context import RunContext
from .expectations import Arrays, Report, find_numbers_file, read_cached, select_part, write_cached

_AT_ONCE = 2  # each may need some gigabytes, as AlexNet in float64

# A deep network amplifies rounding, so float32 may differ from float64 as much as the reference does, times
# this, between the two bounds; and vice versa. TF32 has 2¹³ times the rounding of float32.
FLOAT32_FACTOR = 30.0
DROPPED_DEVIATIONS = 5.0  # standard deviations of the share of zeros
KEPT = 1e-6  # of the value that is not dropped
PIXELS = 1e-6
_LEAST_CHANGE = 1e-3  # of the others' change, for a tensor that changes less


@dataclass(frozen=True)
class ParityNumbers:
    """What a framework computed in one precision (worker/inspection/parity.py)."""

    parameters: int
    macs: int
    arrays: Arrays


NumberPair = tuple[ParityNumbers, ParityNumbers]  # in float64 and in float32


def group_comparisons(configs: Iterable[Config]) -> list[list[Config]]:
    """Group the configs that train one network in several frameworks or layouts."""
    groups: dict[tuple[str, int, int, str], dict[tuple[str, str], Config]] = {}
    for config in configs:
        network = (config.model, config.image_size, config.classes, config.device)
        groups.setdefault(network, {}).setdefault((config.framework, config.layout), config)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def list_unproven(configs: Iterable[Config], reason: str) -> list[Verdict]:
    groups = group_comparisons(configs)
    return [_make_verdict(config, group[0], UNPROVEN, reason) for group in groups for config in group]


def prove(context: RunContext, configs: Iterable[Config], report: Report, fresh: bool = False) -> list[Verdict]:
    """Return a verdict for every config that is compared. The first framework is the reference."""
    verdicts: list[Verdict] = []
    for group in group_comparisons(configs):
        if models.resolve(group[0].model) is None:
            verdicts += list_unproven(group, explain_foreign(group[0].model))
            continue
        numbers, errors = _find_numbers(context, group, report, fresh)
        reference = next((config for config in group if config in numbers), None)
        for config in group:
            if reference is None or config not in numbers:
                reason = f"{config.framework} could not compute it: {errors[config]}"
                verdicts.append(_make_verdict(config, reference or config, UNPROVEN, reason))
            else:
                checks = compare(numbers[reference], numbers[config])
                failed = next((check for check in checks if not check.ok), None)
                reason = f"{failed.name}: {failed.words}" if failed else ""
                state = FAILED if failed else PROVEN
                verdicts.append(_make_verdict(config, reference, state, reason, checks))
    return verdicts


def _make_verdict(config: Config, reference: Config, state: str, reason: str, checks: Sequence[Check] = ()) -> Verdict:
    build = {name: getattr(config, name) for name in BUILD}
    expected = f"{reference.framework} {reference.layout}"
    return Verdict(**build, reference=expected, state=state, checks=tuple(checks), reason=reason)


def _find_numbers(
    context: RunContext, group: Sequence[Config], report: Report, fresh: bool
) -> tuple[dict[Config, NumberPair], dict[Config, str]]:
    """Return the numbers of each config, and of the others why there are none."""
    supply, files = context.plan.available, dict[tuple[Config, str], Path]()
    for config, precision in product(group, (FP64, FP32)):
        identity = {
            "framework": config.framework,
            "versions": context.frameworks[config.framework].versions,
            "network": [config.model, config.image_size, config.classes, config.channels],
            "layout": config.layout,
            "device": [supply.kind, supply.device_name],
            "precision": precision,
            "seed": context.plan.experiment.work.seed,
            "batch": BATCH,
            "steps": STEPS,
            "version": VERSION,
        }
        name = f"{config.framework}-{config.model}-{precision}"
        files[config, precision] = find_numbers_file("parity", name, identity, list_plugins(config))
    numbers = {key: None if fresh else _read(path) for key, path in files.items()}
    to_compute = {key: files[key] for key, known in numbers.items() if known is None}
    errors: dict[Config, str] = {}
    if to_compute:
        frameworks = dict.fromkeys(config.framework for config, _ in to_compute)
        report(f"parity of {group[0].model}: {', '.join(frameworks)}")
        errors = _compute_all(context, to_compute, report)
        numbers.update({key: _read(path) for key, path in to_compute.items()})
    pairs: dict[Config, NumberPair] = {}
    for config in group:
        double, single = numbers[config, FP64], numbers[config, FP32]
        if double and single:
            pairs[config] = double, single
        else:
            errors.setdefault(config, "its numbers are gone")
    return pairs, errors


def _read(path: Path) -> ParityNumbers | None:
    head, arrays = read_cached(path) or ({}, {})
    return ParityNumbers(head["parameters"], head["macs"], arrays) if head else None


def _compute_all(context: RunContext, files: Mapping[tuple[Config, str], Path], report: Report) -> dict[Config, str]:
    """Compute numbers into their files, each on a device of its own. Return the errors."""
    launcher, available = context.launcher, context.plan.available
    host = available.hosts[0]
    # On other machines one at a time: some launchers have one keeper for each host.
    at_once = _AT_ONCE if available.kind == "cpu" and launcher.local else 1
    free_devices: SimpleQueue[Device] = SimpleQueue()
    for device in host.devices[:at_once]:
        free_devices.put(device)
    connections: list[ConnectedHosts] = []
    errors: dict[Config, str] = {}

    def compute_one(config: Config, precision: str, path: Path) -> None:
        if config in errors:
            return
        name = f"  {config.framework} {config.layout} {precision}"
        device = free_devices.get()
        try:
            numbers = compute_parity_numbers(
                launcher,
                host,
                context.pythons[config.framework],
                replace(config, precision=precision),
                device,
                context.plan.experiment.work.seed,
                connections.append,
            )
            write_cached(path, numbers)
            report(f"{name}: {numbers.seconds:.0f} s")
        except NumbersFailed as error:
            errors[config] = str(error)
            report(f"{name}: {error}")
        finally:
            free_devices.put(device)

    with ThreadPoolExecutor(free_devices.qsize()) as pool:
        try:
            wait_for_futures([pool.submit(compute_one, *key, path) for key, path in files.items()])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for connection in tuple(connections):
                connection.request_end()
            raise
    return errors


# ---- the comparison

# Returns by how much two sides differ in arrays of one kind, and in which most.
Measure = Callable[[ParityNumbers, ParityNumbers, str], tuple[float, str]]


def compare(reference: NumberPair, other: NumberPair) -> tuple[Check, ...]:
    (exact, baseline), (double, single) = reference, other

    def check_as_close(name: str, measure: Measure, part: str, bounds: tuple[float, float]) -> Check:
        """Check that float32 is as near to float64 as the reference's, and vice versa."""
        least, most = bounds
        first, own = (_check(name, measure, exact, side, part, most) for side in (baseline, single))
        if own.difference is None or first.difference is None:
            return own if own.difference is None else first
        of_first = min(most, max(least, FLOAT32_FACTOR * own.difference))
        of_own = min(most, max(least, FLOAT32_FACTOR * first.difference))
        if first.difference > of_first:
            differences = f"by {first.difference:.1e} from its own float64, this by {own.difference:.1e}"
            return Check(name, first.difference, of_first, f"the reference differs {differences}")
        words = f"differ by {own.difference:.1e} from float64, tolerance {of_own:.0e}"
        return Check(name, own.difference, of_own, words)

    def check(name: str, measure: Measure, part: str, tolerance: float) -> Check:
        side = single if name.endswith("float32") else double
        return _check(name, measure, exact, side, part, tolerance)

    def check_count(name: str, a: int, b: int) -> Check:
        return Check(name, float(abs(a - b)), 0.0, f"{b:,} against {a:,}")

    # Tolerances are relative. docs/method.md has the figures of all frameworks.
    return (
        check_count("parameters", exact.parameters, double.parameters),
        check_count("multiply-adds", exact.macs, double.macs),
        check("initial weights", _largest, "before/", 0.0),
        check("initial weights, float32", _largest, "before/", 0.0),
        check("logits, float64", _largest, "logits/", 1e-7),
        check("weights after 3 steps, float64", _worst_change, "after/", 1e-4),  # of the change
        check("losses of 3 steps, float64", _largest, "losses", 1e-6),
        check("running statistics, float64", _largest, "statistics/", 1e-5),
        check_as_close("logits, float32", _largest, "logits/", (3e-6, 5e-3)),
        # A single number may be near the exact one by chance.
        check_as_close("first loss, float32", _first, "losses", (3e-5, 5e-4)),
        check_as_close("first running statistics, float32", _largest, "first-statistics/", (3e-5, 1e-2)),
        check_as_close("closest tensor after the first step, float32", _closest, "first/", (3e-5, 1e-2)),
        # A ReLU near zero may flip, so these only show whether the right update was made.
        check("weights after the first step, float32", _total, "first/", 0.1),
        check("each tensor after the first step, float32", _worst_change, "first/", 0.5),
        check("losses of 3 steps, float32", _largest, "losses", 2e-2),
        check("weights after 3 steps, float32", _total, "after/", 0.5),
        *_check_dropout(baseline, single),
        *_check_pixels(single),
    )


def _check(name: str, measure: Measure, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    mismatch = _find_mismatch(select_part(a.arrays, part), select_part(b.arrays, part))
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    difference, key = measure(a, b, part)
    if not math.isfinite(difference):
        return Check(name, None, tolerance, f"{key or 'a weight'} is not finite")
    of_what = "" if measure in (_largest, _first) else " of their change"
    where = f" in {key}" if key and part in ("before/", "first/", "after/", "statistics/") else ""
    words = f"differ by {difference:.1e}{of_what}{where}"
    return Check(name, difference, tolerance, f"{words}, tolerance {tolerance:.0e}")


def _largest(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the largest difference, relative to the largest value of its array."""
    worst, where = 0.0, ""
    theirs = select_part(b.arrays, part)
    for key, values in select_part(a.arrays, part).items():
        scale = max(map(abs, values), default=0.0) or 1.0
        pairs = zip(values, theirs[key], strict=True)
        difference = max((abs(x - y) for x, y in pairs), default=0.0) / scale
        if not math.isfinite(difference):
            return math.inf, key
        if difference > worst:
            worst, where = difference, key
    return worst, where


def _first(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    ours, theirs = a.arrays[part][0], b.arrays[part][0]
    return abs(ours - theirs) / (abs(ours) or 1.0), part


def _closest(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the difference of the closest matrix: after the last one, no ReLU comes."""
    lengths = _list_changes(a, b, part)
    matrices = [key for key in lengths if key.endswith(".weight")] or list(lengths)
    shares = {key: lengths[key][1] / max(lengths[key][0], 1e-300) for key in matrices}
    where = min(shares, key=shares.__getitem__)
    return shares[where], where


def _worst_change(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the largest difference of a tensor, relative to its change."""
    lengths = _list_changes(a, b, part)
    typical = math.sqrt(sum(change**2 for change, _ in lengths.values()) / max(1, len(lengths)))
    least = max(_LEAST_CHANGE * typical, 1e-300)
    shares = {key: difference / max(change, least) for key, (change, difference) in lengths.items()}
    where = max(shares, key=lambda key: shares[key] if math.isfinite(shares[key]) else math.inf)
    return shares[where], where


def _total(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    changes, differences = zip(*_list_changes(a, b, part).values(), strict=True)
    return math.hypot(*differences) / max(math.hypot(*changes), 1e-300), ""


def _list_changes(a: ParityNumbers, b: ParityNumbers, part: str) -> dict[str, tuple[float, float]]:
    """Return the change of each tensor, and the difference of the two sides."""
    before, theirs = select_part(a.arrays, "before/"), select_part(b.arrays, part)
    return {
        key: (math.dist(values, before[key]), math.dist(values, theirs[key]))
        for key, values in select_part(a.arrays, part).items()
    }


def _check_dropout(reference: ParityNumbers, numbers: ParityNumbers) -> list[Check]:
    expected = select_part(reference.arrays, "dropout/")
    layers = select_part(numbers.arrays, "dropout/")
    mismatch = _find_mismatch(expected, layers)
    if mismatch:
        return [Check("dropout rates", None, DROPPED_DEVIATIONS, mismatch)]
    if not layers:
        return []
    deviations, scales = {}, {}
    for name, (share, kept, rate, count) in layers.items():
        deviations[name] = abs(share - rate) / math.sqrt(max(rate * (1 - rate), 1e-12) / count)
        scales[name] = abs(kept * (1 - rate) - 1)
    where = max(deviations, key=deviations.__getitem__)
    share, _, rate, _ = layers[where]
    detail = f"{where} drops {share:.4f} of its values, its rate is {rate:g}"
    worst = max(scales.values())
    return [
        Check("dropout rates", deviations[where], DROPPED_DEVIATIONS, detail),
        Check("scale of what is kept", worst, KEPT, f"differs by {worst:.1e}, tolerance {KEPT:.0e}"),
    ]


def _check_pixels(numbers: ParityNumbers) -> list[Check]:
    """Check that 8-bit images are the same numbers on device and host."""
    if "pixels" not in numbers.arrays:
        return []
    difference, wrong_labels = numbers.arrays["pixels"]
    if wrong_labels or not math.isfinite(difference):
        return [Check("8-bit images", None, PIXELS, "another shape or other labels than those of place")]
    words = f"differ by {difference:.1e}, tolerance {PIXELS:.0e}"
    return [Check("8-bit images", difference, PIXELS, words)]


def _find_mismatch(a: Arrays, b: Arrays) -> str:
    """Return what only one side has, or where sizes differ."""
    if a.keys() != b.keys():
        return f"only one of the two has {min(a.keys() ^ b.keys())}"
    for key in a:
        if len(a[key]) != len(b[key]):
            return f"{key} has {len(b[key]):,} values against {len(a[key]):,}"
    return ""
