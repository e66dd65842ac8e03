"""The hosts and devices that an experiment may use, in the order in which a ladder takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..worker.job import Device

LOCALHOST, LOOPBACK = "localhost", "127.0.0.1"


@dataclass(frozen=True)
class HostDevices:
    """A host with its devices. Other hosts reach it by ``address``, on the network that training uses."""

    name: str
    devices: tuple[Device, ...]
    address: str = LOOPBACK
    interface: str | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)  # by framework, where the host has its own


@dataclass(frozen=True)
class AvailableDevices:
    """All hosts with their devices. The name and memory of a device choose the default batch."""

    kind: str
    hosts: tuple[HostDevices, ...]
    cores_per_device: int  # 0 for GPUs
    description: str  # for messages
    device_name: str = ""
    memory_bytes: int = 0

    @classmethod
    def on_this_machine(cls, kind: str, devices: tuple[Device, ...], cores_per_device: int, description: str,
                        device_name: str = "", memory_bytes: int = 0) -> AvailableDevices:  # fmt: skip
        host = HostDevices(LOCALHOST, devices)
        return cls(kind, (host,), cores_per_device, description, device_name, memory_bytes)

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for host in self.hosts for device in host.devices)

    @property
    def devices_per_host(self) -> list[int]:
        """Two runs measured the same thing only if this is the same for both."""
        return [len(host.devices) for host in self.hosts]
