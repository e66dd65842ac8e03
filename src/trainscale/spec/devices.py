"""The hosts and devices that an experiment may use, in the order in which a ladder takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..worker.job import Device

if TYPE_CHECKING:
    from ..worker.inspection.host import HostFacts

LOCALHOST, LOOPBACK = "localhost", "127.0.0.1"


@dataclass(frozen=True)
class Host:
    """A host: how it is named and reached, and what it has to offer, which is known when it was visited."""

    address: str = LOOPBACK  # for other hosts; after the visit, on the network that training uses
    alias: str = ""  # for ssh
    port: int | None = None  # of its sshd
    user: str = ""
    slots: int | None = None  # number of devices to use there, if the hosts file limits it
    python: str = ""  # runs the keeper there
    setup: tuple[str, ...] = ()  # shell lines to run before the keeper
    # after the visit
    interface: str | None = None
    devices: tuple[Device, ...] = ()
    pythons: Mapping[str, str] = field(default_factory=dict, compare=False)  # by framework
    facts: HostFacts | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name that is shown, and that identifies the host everywhere in this project."""
        return self.alias or self.address

    @property
    def title(self) -> str:
        return "this machine" if self.name == LOCALHOST else self.name


@dataclass(frozen=True)
class AvailableDevices:
    """All hosts with their devices. The name and memory of a device choose the default batch."""

    kind: str
    hosts: tuple[Host, ...]
    cores_per_device: int  # 0 for GPUs
    description: str  # for messages
    device_name: str = ""
    memory_bytes: int = 0

    @classmethod
    def on_this_machine(cls, kind: str, devices: tuple[Device, ...], cores_per_device: int, description: str,
                        device_name: str = "", memory_bytes: int = 0) -> AvailableDevices:  # fmt: skip
        host = Host(LOOPBACK, LOCALHOST, devices=devices)
        return cls(kind, (host,), cores_per_device, description, device_name, memory_bytes)

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for host in self.hosts for device in host.devices)

    @property
    def devices_per_host(self) -> list[int]:
        """Number of devices on each host. Runs are comparable only if it is equal."""
        return [len(host.devices) for host in self.hosts]
