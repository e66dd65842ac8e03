"""What there is to train on: hosts, and the devices of each, in the order in which a ladder takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..worker.job import Device

LOCALHOST, LOOPBACK = "localhost", "127.0.0.1"


@dataclass(frozen=True)
class HostDevices:
    """One host with its devices. ``address`` is what the other hosts call it, on the network that training uses."""

    host: str
    devices: tuple[Device, ...]
    address: str = LOOPBACK
    interface: str | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)  # of frameworks, where the host has its own


@dataclass(frozen=True)
class Devices:
    """``words`` says it to a person; ``device_name`` and memory choose the defaults."""

    kind: str
    sites: tuple[HostDevices, ...]
    cores_per_device: int  # 0 for GPUs
    words: str
    device_name: str = ""
    memory_bytes: int = 0

    @classmethod
    def here(cls, kind: str, devices: tuple[Device, ...], cores_per_device: int, words: str,
             device_name: str = "", memory_bytes: int = 0) -> Devices:  # fmt: skip
        """Of this machine alone."""
        return cls(kind, (HostDevices(LOCALHOST, devices),), cores_per_device, words, device_name, memory_bytes)

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for site in self.sites for device in site.devices)

    @property
    def shape(self) -> list[int]:
        """Devices of each host: two runs on clusters of the same shape measured the same thing."""
        return [len(site.devices) for site in self.sites]
