"""What a series did, in the words of the published table, and in what a published curve differs from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...published.curve import PublishedCurve
from ...published.devices import find_device_kind
from ...record.run import RunInfo
from ...spec.config import Config
from ...worker import models
from ..series import Series
from ..titles import find_model_title

CPU = "CPU"
_ROUNDING = 0.01  # two counts of parameters or multiply-adds that differ by less are those of one network


@dataclass(frozen=True)
class OwnWork:
    """``network`` is one of trainscale's own, empty for a network of a user. ``device`` is a kind such as A100."""

    title: str
    config: Config
    unit: str
    network: str
    network_title: str
    parameters: int | None
    macs: int | None
    device: str


@dataclass(frozen=True)
class Trait:
    """Something in which a curve differs from a series: ``batch per device``, ``64``, ``32``."""

    name: str
    own: str
    published: str


def describe_work(series: Series, run: RunInfo) -> OwnWork:
    """Return what a series of a run did."""
    work = make_work(series.title, series.config, series.unit)
    return replace(work, parameters=series.parameters, device=_describe_device(series.config, run))


def make_work(title: str, config: Config, unit: str) -> OwnWork:
    """Return what a config says about the work. The operations of a user's network are None."""
    info = models.resolve(config.model.rpartition(":")[2])  # torchvision:resnet50 is ResNet-50 too
    macs = _count_macs(info, config) if info else None
    return OwnWork(title, config, unit, info.name if info else "", find_model_title(config.model), None, macs, "")


def is_same_network(own: OwnWork, curve: PublishedCurve) -> bool:
    """Whether the names are the same, and the operations too: images of another size are other work."""
    network = curve.network
    if own.network == network.name:
        return own.macs is None or network.macs is None or _is_same_count(own.macs, network.macs)
    same_macs = own.macs is None or (network.macs is not None and _is_same_count(own.macs, network.macs))
    return bool(own.parameters and own.parameters == network.parameters and same_macs)


def list_traits(own: OwnWork, curve: PublishedCurve, devices: int | None = None) -> tuple[Trait, ...]:
    """Return in what a curve differs. What the source does not state is left out. ``devices`` is that of its point."""
    config = own.config
    point = next((point for point in curve.points if point.devices == devices), curve.baseline)
    batch = point.batch_per_device if curve.scaling != "strong" else point.global_batch
    scope = "per device" if curve.scaling != "strong" else "over all devices"
    pairs = (
        ("network", own.network_title, "" if is_same_network(own, curve) else curve.network_stated),
        ("hardware", own.device, "" if own.device == curve.device else curve.hardware),
        ("scaling", config.scaling, curve.scaling or ""),
        ("batch " + scope, str(config.batch), f"{batch:g}" if batch and config.scaling == curve.scaling else ""),
        ("precision", config.precision, curve.precision),
        ("framework", config.framework, curve.framework),
        ("strategy", config.strategy, curve.strategy),
        ("data", "synthetic" if config.data == "synthetic" else "real", curve.data),
    )
    return tuple(Trait(name, ours, theirs) for name, ours, theirs in pairs if theirs and ours != theirs)


def _count_macs(info: models.ModelInfo, config: Config) -> int | None:
    try:
        return models.build(info.name, config.image_size, config.classes).macs
    except models.ShapeError:
        return None


def _describe_device(config: Config, run: RunInfo) -> str:
    if config.device == "cpu":
        return CPU
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    kinds = {find_device_kind(name) for machine in machines for name in machine.gpus}
    return " and ".join(sorted(kinds)) or "GPU"


def _is_same_count(first: int, second: int) -> bool:
    return abs(first - second) <= _ROUNDING * max(first, second)
