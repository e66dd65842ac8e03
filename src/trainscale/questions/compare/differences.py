"""Which series of two runs belong together, in what they differ, and the refusal to compare what differs.

What differs is not compared, unless the person says that the change was meant (``--despite``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...record.decoding import remove_unprintable
from ...record.parity import PROVEN, REFUTED, UNPROVEN
from ...spec.config import Config
from .sides import BY_BUDGET, UNCHECKED, Side, list_titles

# The names that --despite takes, and the fields of a config that each of them covers.
FIELDS: dict[str, tuple[str, ...]] = {
    "model": ("model", "image_size", "classes", "channels"),
    "batch": ("batch", "scaling"),
    "framework": ("framework",),
    "strategy": ("strategy", "servers", "server_placement", "servers_per_host"),
    "device": ("device", "cores_per_device", "ranks_per_gpu"),
    "hosts": ("placement",),
    "precision": ("precision",),
    "layout": ("layout",),
    "compile": ("compile",),
    "data": ("data", "augment", "loaders"),
    "training": (
        "epochs", "until_accuracy", "learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs",
        "deterministic",
    ),
    "allocator": ("allocator",),
}  # fmt: skip
NAMES = (*FIELDS, "measurement", "parity", "witness", "versions", "machine")
_NONE = "none"
# Frameworks say more or less of their versions: 13.0 and 13, 91900 and 9.19.0.56.
_CUDA_LIBRARIES = ("cuda", "cudnn", "nccl")

Pair = tuple[Side, Side]


@dataclass(frozen=True)
class Difference:
    """``name`` is what --despite takes; ``field`` says what differs; ``a`` and ``b`` are its values.

    Two equal values differ from what is needed to compare them; then ``needed`` says what that is.
    """

    name: str
    field: str
    a: str
    b: str
    needed: str = ""


def find_differences(a: Side, b: Side) -> tuple[Difference, ...]:
    """Return all differences, in the order of NAMES."""
    common = list_common_devices(a, b)
    differences = compare_configs(a.config, b.config)
    for count in common:
        ours, theirs = str(a.points[count].hosts), str(b.points[count].hosts)
        if ours != theirs:
            differences.append(Difference("hosts", f"hosts of {count} devices", ours, theirs))
            break
    # The steps of a run with a time budget are not fixed.
    measurement = _compare_by_key("measurement", a.measurement, b.measurement)
    differences += [each for each in measurement if BY_BUDGET not in (each.a, each.b)]

    # A network is the same work in one framework, unless a check has doubts about one side. Two frameworks train the
    # same network only if both are proven.
    is_one_framework = a.config.framework == b.config.framework
    parities = {a.parity, b.parity}
    if (len(parities) > 1 and parities - {PROVEN, UNCHECKED}) if is_one_framework else parities != {PROVEN}:
        needed = "two frameworks are compared if both are proven to train the same network"
        differences.append(Difference("parity", "parity", a.parity, b.parity, needed))
    # A side that did not do its work, or has not proven it while the other has, is not compared.
    ours, theirs = (_find_worst_witness(side, common) for side in (a, b))
    if ours != theirs or ours == REFUTED:
        differences.append(Difference("witness", "witness", ours, theirs, "a refuted trial did not do its work"))

    # Two frameworks have different packages, so only those that both have are compared.
    versions = _compare_by_key("versions", a.versions, b.versions, only_common=not is_one_framework)
    differences += [each for each in versions if not _is_same_version(each.field, each.a, each.b)]
    differences += _compare_by_key("machine", a.machine, b.machine, only_common=True)
    return tuple(sorted(differences, key=lambda difference: NAMES.index(difference.name)))


def compare_configs(a: Config, b: Config) -> list[Difference]:
    return [
        Difference(name, field, _format_value(getattr(a, field)), _format_value(getattr(b, field)))
        for name, fields in FIELDS.items()
        for field in fields
        if getattr(a, field) != getattr(b, field)
    ]


def list_common_devices(a: Side, b: Side) -> list[int]:
    return sorted(a.points.keys() & b.points.keys())


def _find_worst_witness(side: Side, devices: Iterable[int]) -> str:
    states = {
        side.find_witness(count) for count in devices if side.values[count] or side.find_witness(count) == REFUTED
    }
    return next((state for state in (REFUTED, UNPROVEN, UNCHECKED) if state in states), PROVEN)


def _compare_by_key(
    name: str, a: Mapping[str, str], b: Mapping[str, str], only_common: bool = False
) -> list[Difference]:
    """Compare texts by key. A side that recorded nothing is not known to differ."""
    keys = dict.fromkeys((*a, *b)) if a and b else {}
    return [
        Difference(name, key, a.get(key, _NONE), b.get(key, _NONE))
        for key in keys
        if a.get(key) != b.get(key) and not (only_common and (key not in a or key not in b))
    ]


def _is_same_version(name: str, a: str, b: str) -> bool:
    """Return whether one version of a CUDA library says the same as the other, as far as both go."""
    if name not in _CUDA_LIBRARIES or _NONE in (a, b):
        return False
    first, second = (_split_version(name, version) for version in (a, b))
    common = min(len(first), len(second))
    return first[:common] == second[:common]


def _split_version(name: str, version: str) -> list[str]:
    """Split a version into its numbers. Until version 0.1, cuDNN's was recorded as its header has it: 91900, 8902."""
    if name == "cudnn" and version.isascii() and version.isdigit() and len(version) > 3:
        major, rest = divmod(int(version), 10_000 if int(version) >= 90_000 else 1_000)
        return [str(major), str(rest // 100), str(rest % 100)]
    return version.split(".")


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NONE if value is None else str(value)


# ---- which series belong together


def match_sides(all_a: Sequence[Side], all_b: Sequence[Side], despite: Collection[str]) -> list[Pair]:
    """Return the series of A with their counterparts in B: those with the same config, except for what ``despite``
    names. Raise an InputError if a series has several. If there are none, the two with the fewest differences are
    returned, so that the refusal names those.
    """
    if len(all_a) == len(all_b) == 1:
        return [(all_a[0], all_b[0])]
    pairs = []
    for a in all_a:
        alike = [b for b in all_b if {each.name for each in compare_configs(a.config, b.config)} <= {*despite}]
        same = [b for b in alike if b.config == a.config] or alike
        _check_single(same, a)
        pairs += [(a, b) for b in same]
    for b in {b.config: b for _, b in pairs}.values():
        _check_single([a for a, other in pairs if other is b], b)
    if pairs:
        return pairs
    every = [(a, b) for a in all_a for b in all_b]
    return [min(every, key=lambda pair: len(compare_configs(pair[0].config, pair[1].config)))]


def _check_single(counterparts: Sequence[Side], side: Side) -> None:
    if len(counterparts) > 1:
        source = counterparts[0].source
        raise InputError(
            f"{source}: {len(counterparts)} series may be the counterpart of {side.title!r}; name one of them as"
            f" {source}:SERIES or with --series{list_titles(counterparts)}"
        )


def check_sides(a: Side, b: Side, despite: Collection[str]) -> tuple[Difference, ...]:
    """Return the differences that ``despite`` names. Any other is an InputError that says what differs."""
    differences = find_differences(a, b)
    if not list_common_devices(a, b):
        counts = [", ".join(map(str, sorted(side.points))) for side in (a, b)]
        raise InputError(
            f"no device count was measured in both: A, {a.title!r}, has {counts[0]}; B, {b.title!r}, has {counts[1]}"
        )
    forbidden = [difference for difference in differences if difference.name not in despite]
    if not forbidden:
        return differences
    width = max(len(difference.field) for difference in forbidden)
    lines = []
    for each in forbidden:
        values = f"A {remove_unprintable(each.a)}  B {remove_unprintable(each.b)}"
        what = values if each.a != each.b else f"both {each.a}; {each.needed}"
        lines.append(f"\n    {each.name + ':':<13}{each.field:<{width}}  {what}")
    differing, equal = (
        ", ".join(dict.fromkeys(each.name for each in forbidden if (each.a != each.b) == is_different))
        for is_different in (True, False)
    )
    reasons = [f"they differ in {differing}" if differing else "", f"their {equal} is not proven" if equal else ""]
    names = [name for name in NAMES if name in {*despite, *(each.name for each in forbidden)}]
    raise InputError(
        f"A ({a.title}) and B ({b.title}) are not compared, because {' and '.join(filter(None, reasons))}:"
        f"{''.join(lines)}\n  Measure both in the same way; or, if the change was meant: --despite {','.join(names)}"
    )
