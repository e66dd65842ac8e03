"""The one visit to all hosts before a plan: what they have, and which Pythons have the frameworks."""

import importlib.util
import ipaddress
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..cluster.hosts import HostAccess, find_devices, find_local_devices
from ..errors import InputError, TrainscaleError
from ..record.decoding import DecodingError, convert, decode_object
from ..spec.devices import AvailableDevices, Host
from ..spec.experiment import Experiment
from ..worker.events import AnswerPiece, FrameworkFacts
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import HostFacts, HostFactsRequest, Machine, read_machine
from ..worker.inspection.probe import ProbeRequest
from .connection import HostError, KeeperConnection, select_causes
from .launchers.base import Launcher
from .tasks import TaskAnswer, make_role_task, run_host_tasks

_SECONDS = 150.0  # longer than a framework may take to be imported


@dataclass(frozen=True)
class Cluster:
    launcher: Launcher
    supply: AvailableDevices
    machine: Machine  # this one
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)  # none for this machine alone


def connect_cluster(
    launcher: Launcher,
    experiment: Experiment,
    pythons: Mapping[str, str],
    probes: Sequence[ProbeRequest] = (),
) -> Cluster:
    """Visit all hosts; each must answer. ``pythons``: tried first; ``probes``: what to import."""
    machine, has_hosts = read_machine(), bool(launcher.access.hosts)
    if launcher.local:
        return Cluster(launcher, find_local_devices(machine, experiment), machine)
    try:
        answers = visit_hosts(launcher, pythons, probes)
        errors = select_causes(answer for answer in answers.values() if isinstance(answer, HostError))
        if errors:
            lines = [str(error) for error in errors]
            if has_hosts:
                lines.append("  see: trainscale check --hosts FILE; --hosts-count N uses the first N only")
            raise TrainscaleError("\n".join(lines))
        facts = {name: answer for name, answer in answers.items() if isinstance(answer, HostFacts)}
        hosts = [add_facts(host, facts[host.name], launcher.access) for host in launcher.hosts()]
        return Cluster(launcher, find_devices(hosts, experiment), machine, facts)
    except BaseException:
        launcher.close()  # the cluster may have its hosts back
        raise


def visit_hosts(
    launcher: Launcher,
    pythons: Mapping[str, str],
    probes: Sequence[ProbeRequest] = (),
    seconds: float = _SECONDS,
) -> dict[str, HostFacts | HostError]:
    """Return the facts of each host, or why it cannot be reached."""
    modules = {name: list(FRAMEWORKS[name].imports) for name in pythons}
    named = {name: [python] for name, python in pythons.items() if python}
    request = HostFactsRequest(modules, named, launcher.access.remote_dir, list(probes))
    names = [host.name for host in launcher.hosts()]
    with launcher.connect(names, seconds, tolerates_errors=True) as connected:
        tasks = {name: [make_role_task(name, 0, "look", request)] for name in names}
        found: dict[str, HostFacts | HostError] = {}
        for name, answer in run_host_tasks(connected, tasks, seconds).items():
            connection = connected.connections[name]
            found[name] = answer if isinstance(answer, HostError) else decode_facts(answer[0], connection)
        return found


def decode_facts(answer: TaskAnswer, connection: KeeperConnection) -> HostFacts | HostError:
    text = "".join(piece.text for piece in answer.select_events(AnswerPiece))
    try:
        facts = convert(decode_object(text), HostFacts)
    except DecodingError:
        reason = "no message" if answer.exit else "it did not answer in time"
        return HostError(connection.host, f"cannot be inspected: {answer.last_line or reason}")
    ahead = connection.clock_ahead_seconds
    return replace(facts, clock_ahead_seconds=ahead, worker_copied=connection.copied)


def add_facts(host: Host, facts: HostFacts, access: HostAccess) -> Host:
    """Return the host with its facts and the network that training uses."""
    address, interface = choose_network(host, facts.addresses, access.interface, facts.reached_at)
    pythons = {name: location.python for name, location in facts.frameworks.items() if location}
    return replace(host, address=address, alias=host.name, interface=interface, pythons=pythons, facts=facts)


def combine_probes(hosts: Mapping[str, HostFacts], framework: str) -> FrameworkFacts:
    """Return one answer for all hosts, which must have the same version."""
    by_host = {name: facts.probes[framework] for name, facts in hosts.items()}
    for name, facts in by_host.items():
        if not facts.is_available:
            return replace(facts, reason=f"{name}: {facts.reason}")
    versions = {name: facts.version for name, facts in by_host.items()}
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        return FrameworkFacts(False, f"the hosts have different versions: {listed}")
    return next(iter(by_host.values()))


# ---- the network that training uses


def choose_network(
    host: Host, addresses: Mapping[str, str], interface: str | None, reached_at: str = ""
) -> tuple[str, str | None]:
    """Return those of --interface, else of the hosts file, else of the connection, else of the default route."""
    all_addresses = ", ".join(f"{name} {address}" for name, address in addresses.items())
    if interface and "/" in interface:
        try:
            network = ipaddress.ip_network(interface, strict=False)
        except ValueError as error:
            valid = "a range such as 10.0.0.0/16, or a name"
            raise InputError(f"interface {interface!r}: {error}; valid: {valid}") from None
        for name, address in addresses.items():
            if ipaddress.ip_address(address) in network:
                return address, name
        problem = f"{host.name} has no address in this range"
        raise InputError(f"interface {interface}: {problem}; it has {all_addresses}")
    if interface:
        if interface not in addresses:
            problem = f"{host.name} has none of this name with an address"
            raise InputError(f"interface {interface!r}: {problem}; it has {all_addresses}")
        return addresses[interface], interface
    try:
        named = [str(info[4][0]) for info in socket.getaddrinfo(host.address, None, socket.AF_INET)]
    except (OSError, UnicodeError):
        named = []
    pairs = [(address, name) for name, address in addresses.items()]
    by_address = {address: name for address, name in pairs if not address.startswith("127.")}
    for candidate in (*named, reached_at, *by_address):
        if candidate in by_address:
            return candidate, by_address[candidate]
    return host.address, None


# ---- the interpreter of each framework on this machine

HERE, GIVEN = "this Python", "given by --python"


@dataclass(frozen=True)
class Interpreter:
    """``source``: where it was found; ``environment``: the name of its environment, if any."""

    python: str
    source: str
    environment: str = ""


def find_interpreter(framework: str, given: Mapping[str, str]) -> Interpreter:
    """Find an interpreter without starting it; the probe does that later."""
    if framework in given:
        return Interpreter(given[framework], GIVEN)
    modules = FRAMEWORKS[framework].imports
    if all(is_installed(module) for module in modules):
        return Interpreter(sys.executable, HERE)
    from ..cluster.environments import list_environments  # here: an ordinary run does without it

    # An environment for this framework alone comes before a shared one.
    environments = sorted(list_environments(), key=lambda each: each.name != framework)
    for environment in environments:
        if environment.is_usable and environment.has(modules):
            return Interpreter(environment.python, f"environment {environment.name}", environment.name)
    return Interpreter(sys.executable, HERE)  # the probe reports that it lacks the framework


def choose_pythons(frameworks: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreter of each framework. Other hosts try it first."""
    names = [name.lower() for name in frameworks]
    return {name: find_interpreter(name, given).python for name in names if name in FRAMEWORKS}


def is_installed(module: str) -> bool:
    """A mere folder of that name does not count."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
