"""The ladder of a config: the device counts that are measured."""

from __future__ import annotations

from ..errors import InputError
from . import placement
from .config import STRONG, Config
from .devices import AvailableDevices
from .groups import ResourceSettings


def double_up_to(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and always the maximum itself."""
    counts = []
    count = 1
    while count < most:
        counts.append(count)
        count *= 2
    return (*counts, most)


def choose_ladder(config: Config, available: AvailableDevices, resources: ResourceSettings) -> tuple[int, ...]:
    placement.check_room(config, 1, available)
    counts = resources.devices or double_up_to(resources.max_devices or placement.count_most_workers(config, available))
    placement.check_room(config, counts[-1], available, "devices" if resources.devices else "max devices")
    if config.strategy == "local":
        counts = (1,)
    uneven = [count for count in counts if config.scaling == STRONG and config.batch % count]
    if uneven:
        raise InputError(
            f"strong scaling: a global batch of {config.batch} ({config.model}) cannot be split evenly over"
            f" {', '.join(map(str, uneven))} devices; valid: a multiple of each device count"
        )
    return counts
