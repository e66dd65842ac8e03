"""The link between a host and the lab's switch, which can be cut, restored, and made slow or late."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .namespaces import LabError, Namespaces

BRIDGE = "bridge"
INTERFACE = "eth0"


def bits_per_second(rate: str) -> float:
    return _quantity("rate", rate, {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9})


def microseconds(delay: str) -> int:
    return int(_quantity("delay", delay, {"us": 1, "ms": 1_000, "s": 1_000_000}))


def _quantity(what: str, text: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r"([\d.]+)([a-z]+)", text)
    if match is None or match[2] not in units:
        raise LabError(f"{what} {text!r}: a number and one of {', '.join(units)}")
    return float(match[1]) * units[match[2]]


class Link:
    """The link of one host. It keeps its rate while the host has no power. Its delay is added each way."""

    def __init__(
        self, switch: Namespaces, name: str, folder: Path, rate: str | None = None, delay_microseconds: int = 0
    ) -> None:
        self._bits_per_second = bits_per_second(rate) if rate else None
        self._delay_microseconds = delay_microseconds
        self._switch = switch
        self._folder = folder  # where the delaying program is built, once per lab
        self._port, self._tap = f"port-{name}", f"delay-{name}"
        self._log = folder / name / "delay.log"
        self._host: Namespaces | None = None
        self._delayer: subprocess.Popen[bytes] | None = None

    def plug(self, host: Namespaces, address: str, known: Sequence[str] = ()) -> None:
        """Connect this host and set its address. It knows the hardware of hosts at ``known`` addresses."""
        self._host = host
        hardware = _make_hardware_address(address)
        self._at_switch(
            f"link add {self._port} type veth peer name {INTERFACE} address {hardware} netns {host.pid}",
            f"link set {self._port} master {BRIDGE} up",
        )
        neighbours = [
            f"neigh replace {other} lladdr {_make_hardware_address(other)} nud permanent dev {INTERFACE}"
            for other in known
            if other != address
        ]
        _ip(host, f"addr add {address}/24 dev {INTERFACE}", f"link set {INTERFACE} up", *neighbours)
        self._limit_both_ends()
        if self._delay_microseconds:
            self._delay()

    def unplug(self) -> None:
        """Disconnect the host silently: no packet leaves it any more."""
        if self._delayer is not None:
            self._delayer.communicate()  # closes its input, which ends it
            self._delayer = None
        if self._host is not None:
            with contextlib.suppress(LabError):  # the kernel removes it with a dead host, but not at once
                self._at_switch(f"link delete {self._port}")
        self._host = None

    def set_up(self, up: bool) -> None:
        self._at_switch(f"link set {self._port} {'up' if up else 'down'}")

    def limit(self, rate: str | None) -> None:
        self._bits_per_second = bits_per_second(rate) if rate else None
        self._limit_both_ends()

    def _limit_both_ends(self) -> None:
        if self._host is not None:  # else ``plug`` does it
            self._limit(self._host, INTERFACE)
            self._limit(self._switch, self._port)

    def _limit(self, space: Namespaces, device: str) -> None:
        bits = self._bits_per_second
        if bits is None:
            if "tbf" in _queue(space, device):
                space.run(["net"], ["tc", "qdisc", "delete", "dev", device, "root"])
            return
        # A bucket of 4 ms. Timers are late by up to a millisecond or so; with a smaller bucket that would lower the
        # rate.
        burst = max(65536, int(bits / 8 * 0.004))
        limit = ["rate", f"{bits:.0f}bit", "burst", str(burst), "latency", "20ms"]
        space.run(["net"], ["tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit])

    def _delay(self) -> None:
        """Put the delaying program between the link and the bridge."""
        program = build(self._folder)
        self._at_switch(f"link set {self._port} nomaster")
        with self._log.open("ab") as errors:
            self._delayer = subprocess.Popen(
                [*self._switch.enter("net"), str(program), str(self._delay_microseconds), self._port, self._tap],
                stdin=subprocess.PIPE,  # closes when this process ends, also when it is killed
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._delayer.stdout is not None
        if self._delayer.stdout.readline() != b"ready\n":
            raise LabError(f"no delay on {self._port}: {self._log.read_text()}")
        self._at_switch(f"link set {self._tap} txqueuelen 10000 master {BRIDGE} up")

    def _at_switch(self, *lines: str) -> None:
        _ip(self._switch, *lines)


def lay_network(switch: Namespaces, hosts: Mapping[str, Namespaces], addresses: Mapping[str, str], number: int) -> None:
    """Connect these hosts to a second bridge with plain links. Each is eth1 (eth2, …) of its host."""
    bridge = f"{BRIDGE}{number}"
    _ip(switch, f"link add {bridge} type bridge forward_delay 0", f"link set {bridge} up")
    for name, host in hosts.items():
        port, interface = f"port{number}-{name}", f"eth{number}"
        _ip(
            switch,
            f"link add {port} type veth peer name {interface} netns {host.pid}",
            f"link set {port} master {bridge} up",
        )
        _ip(host, f"addr add {addresses[name]}/24 dev {interface}", f"link set {interface} up")


def build(folder: Path) -> Path:
    """Return the delaying program, which is compiled at its first use."""
    program = folder / "delay_link"
    if not program.exists():
        source = Path(__file__).with_name("delay_link.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), str(source)], check=True)
    return program


def _make_hardware_address(address: str) -> str:
    """Return an address that is the same at every boot, because other hosts remember it."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _ip(space: Namespaces, *lines: str) -> None:
    space.run(["net"], ["ip", "-batch", "-"], "\n".join(lines) + "\n")


def _queue(space: Namespaces, device: str) -> str:
    command = [*space.enter("net"), "tc", "qdisc", "show", "dev", device, "root"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
