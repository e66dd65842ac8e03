"""In what two sides differ. What differs is not compared, unless the person says that the change was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...record.witness import PROVEN, REFUTED, UNPROVEN
from ...spec.config import Config
from .sides import BY_BUDGET, UNCHECKED, Side

# The names that --despite takes, and the fields of a config that each of them covers.
_FIELDS: dict[str, tuple[str, ...]] = {
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
NAMES = (*_FIELDS, "measurement", "parity", "witness", "versions", "machine")
_NONE = "none"


@dataclass(frozen=True)
class Difference:
    """``name`` is what --despite takes; ``field`` says what differs; ``a`` and ``b`` are its values."""

    name: str
    field: str
    a: str
    b: str


def find_differences(a: Side, b: Side) -> tuple[Difference, ...]:
    """Return all differences, in the order of NAMES."""
    checks: tuple[Callable[[Side, Side], Iterable[Difference]], ...] = (
        lambda a, b: compare_configs(a.config, b.config), _compare_hosts, _compare_measurement, _compare_parity,
        _compare_witness, _compare_versions, _compare_machine,
    )  # fmt: skip
    differences = [difference for check in checks for difference in check(a, b)]
    return tuple(sorted(differences, key=lambda difference: NAMES.index(difference.name)))


def compare_configs(a: Config, b: Config) -> list[Difference]:
    return [
        Difference(name, field, _format_value(getattr(a, field)), _format_value(getattr(b, field)))
        for name, fields in _FIELDS.items()
        for field in fields
        if getattr(a, field) != getattr(b, field)
    ]


def list_names(differences: Sequence[Difference]) -> tuple[str, ...]:
    """Return the names of differences, each once."""
    return tuple(dict.fromkeys(difference.name for difference in differences))


def list_common_devices(a: Side, b: Side) -> list[int]:
    return sorted(a.points.keys() & b.points.keys())


def _compare_hosts(a: Side, b: Side) -> Iterable[Difference]:
    for devices in list_common_devices(a, b):
        ours, theirs = a.points[devices].hosts, b.points[devices].hosts
        if ours != theirs:
            yield Difference("hosts", f"hosts of {devices} devices", str(ours), str(theirs))
            return


def _compare_measurement(a: Side, b: Side) -> Iterable[Difference]:
    """Compare warm-up, steps and network interface. The steps of a run with a time budget are not fixed."""
    differences = _compare_by_key("measurement", a.measurement, b.measurement)
    return [difference for difference in differences if BY_BUDGET not in (difference.a, difference.b)]


def _compare_parity(a: Side, b: Side) -> Iterable[Difference]:
    """A network is the same work in one framework, unless a check has doubts about one side. Two frameworks train the
    same network only if both are proven.
    """
    if a.config.framework != b.config.framework:
        if not a.parity == b.parity == PROVEN:
            yield Difference("parity", "parity", a.parity, b.parity)
        return
    doubts = {a.parity, b.parity} - {PROVEN, UNCHECKED}
    if doubts and a.parity != b.parity:
        yield Difference("parity", "parity", a.parity, b.parity)


def _compare_witness(a: Side, b: Side) -> Iterable[Difference]:
    """A side that did not do its work, or has not proven it while the other has, is not compared."""
    ours, theirs = (_find_worst_witness(side, list_common_devices(a, b)) for side in (a, b))
    if ours != theirs or ours == REFUTED:
        yield Difference("witness", "witness", ours, theirs)


def _find_worst_witness(side: Side, devices: Iterable[int]) -> str:
    states = {point.witness for count in devices if (point := side.points[count]).speed or point.witness == REFUTED}
    return next((state for state in (REFUTED, UNPROVEN, UNCHECKED) if state in states), PROVEN)


def _compare_versions(a: Side, b: Side) -> Iterable[Difference]:
    """Compare versions. Two frameworks have different packages, so only those that both have are compared."""
    return _compare_by_key("versions", a.versions, b.versions, only_common=a.config.framework != b.config.framework)


def _compare_machine(a: Side, b: Side) -> Iterable[Difference]:
    return _compare_by_key("machine", a.machine, b.machine, only_common=True)


def _compare_by_key(
    name: str, a: Mapping[str, str], b: Mapping[str, str], only_common: bool = False
) -> Iterable[Difference]:
    """Compare texts by key. A side that recorded nothing is not known to differ."""
    if not a or not b:
        return
    for key in dict.fromkeys((*a, *b)):
        if a.get(key) != b.get(key) and not (only_common and (key not in a or key not in b)):
            yield Difference(name, key, a.get(key, _NONE), b.get(key, _NONE))


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NONE if value is None else str(value)
