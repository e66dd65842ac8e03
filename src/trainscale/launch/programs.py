"""Runs a user's program on many hosts, with the variables that the engines of all frameworks read.

Processes are dealt out to the hosts in turn, servers first, as by dmlc's trackers. But workers are numbered
by host, because today's engines expect neighbouring ranks on neighbouring devices.
"""

import base64
import io
import json
import signal
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster.hosts import get_machine
from ..errors import InputError, TrainscaleError
from ..spec.config import FILL
from ..spec.devices import LOOPBACK, Host
from ..worker.events import Exit, LogLine, RankError
from ..worker.inspection.host import HostFacts, HostFactsRequest
from ..worker.job import SCHEDULER, SERVER, WORKER, Task
from ..worker.keeper.program import FolderRequest, ProgramJob
from .connected_hosts import ConnectedHosts
from .connection import HostError, HostLost, ReceivedEvent, describe_exit, find_last_line, select_causes
from .hosts import add_facts, decode_facts
from .launchers.base import ITS_PYTHON, ITS_START, Launcher
from .tasks import make_role_task, run_host_tasks
from .trial.trial import find_loopback_interface

MEETINGS = ("torch", "jax", "scheduler")  # they have ports of their own on the first host
ALL_ROLES = ""
_PREPARE_SECONDS = 120.0
_NOT_COPIED = (".git", "__pycache__", ".venv")
_MOST_BYTES = 64 * 2**20  # of a folder to copy, compressed: both sides hold it in memory

INTERRUPTED, TIMED_OUT = 130, 124  # exit codes; the second is that of the program `timeout`
_LOST = 1

_SECONDS_AFTER_FAILURE = 3.0  # for the others to report what they saw, and to end by themselves
_SECONDS_AFTER_WORKERS = 5.0  # for servers to notice that all workers have left
_SECONDS_AFTER_SIGNAL = 10.0  # for a program after a signal to end: it may have something to save
_LONGEST_LINE = 65536  # characters: longer ones are shown in parts
_FOREVER_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True)
class ProgramRequest:
    """Which processes to run, and what each runs."""

    workers: int
    servers: int = 0
    scheduler: bool = False
    placement: str = ""  # FILL, else dealt out
    shows_own_gpus: bool = False  # a worker sees only its share of the host's GPUs, else all
    chief: bool = False  # worker 0 is the chief in TF_CONFIG, which leads while the others serve
    command: Sequence[str] = ()
    folder: str = ""
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of a role or ALL_ROLES


@dataclass(frozen=True)
class Program:
    """One process."""

    role: str
    index: int  # in its role
    host: Host
    local_index: int = 0  # among the workers of its host
    local_count: int = 0  # of workers on its host

    @property
    def name(self) -> str:
        return self.role if self.role == SCHEDULER else f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        return f"{self.name} {self.host.name}"


def assign_roles(request: ProgramRequest, hosts: Sequence[Host]) -> list[Program]:
    """Only slots are a limit. FILL fills one host before the next: its slots, GPUs or cores."""
    is_filled = request.placement == FILL
    limits = [host.slots for host in hosts]
    if is_filled:
        machines = [get_machine(host) for host in hosts]
        devices = [len(machine.gpus) or len(machine.cores) for machine in machines]
        limits = [slots or count for slots, count in zip(limits, devices, strict=True)]
    known = [limit for limit in limits if limit is not None]
    room = sum(known)
    if len(known) == len(hosts) and room < request.workers:
        each = ", ".join(f"{host.name} {limit}" for host, limit in zip(hosts, known, strict=True))
        reason = f"there is room for {room} ({each})"
        raise InputError(f"{request.workers} workers: {reason}; valid: 1 … {room}, or more slots")
    counts = [0] * len(hosts)
    turn = 0 if is_filled else request.servers
    while sum(counts) < request.workers:
        limit = limits[turn % len(hosts)]
        has_room = limit is None or counts[turn % len(hosts)] < limit
        counts[turn % len(hosts)] += has_room
        turn += not (is_filled and has_room)
    programs: list[Program] = []
    for host, count in zip(hosts, counts, strict=True):
        programs += [Program(WORKER, len(programs) + index, host, index, count) for index in range(count)]
    used_hosts = [host for host, count in zip(hosts, counts, strict=True) if count or not is_filled]
    for index in range(request.servers):
        programs.append(Program(SERVER, index, used_hosts[index % len(used_hosts)]))
    return programs + ([Program(SCHEDULER, 0, programs[0].host)] if request.scheduler else [])


def count_ports(programs: Sequence[Program]) -> dict[str, int]:
    """Each host needs one port a worker or server, the first also those of MEETINGS."""
    counts = Counter(program.host.name for program in programs if program.role != SCHEDULER)
    counts[programs[0].host.name] += len(MEETINGS)
    return counts


def build_program_jobs(
    request: ProgramRequest, programs: Sequence[Program], ports: Mapping[str, Sequence[int]]
) -> list[ProgramJob]:
    """``ports``: as ``count_ports`` says."""
    is_distributed = len({program.host.name for program in programs}) > 1
    free_ports = {host: list(numbers) for host, numbers in ports.items()}
    meetings = {name: str(free_ports[programs[0].host.name].pop()) for name in MEETINGS}
    # On one host all messages stay inside it, whatever networks it has.
    own_addresses = [program.host.address if is_distributed else LOOPBACK for program in programs]
    first_address = own_addresses[0]
    addresses = {
        program.name: f"{address}:{free_ports[program.host.name].pop(0)}"
        for program, address in zip(programs, own_addresses, strict=True)
        if program.role != SCHEDULER
    }
    workers = [program for program in programs if program.role == WORKER]
    worker_hosts = list(dict.fromkeys(program.host.name for program in workers))
    jobs = []
    for program, address in zip(programs, own_addresses, strict=True):
        interface = program.host.interface if is_distributed else find_loopback_interface()
        machine, index = get_machine(program.host), str(program.index)
        share = _choose_share(program)
        coordinator = f"{first_address}:{meetings['jax']}"
        # Servers get the addresses of torch and JAX but are not in their worlds.
        environment = {
            "MASTER_ADDR": first_address,
            "MASTER_PORT": meetings["torch"],
            "WORLD_SIZE": str(request.workers),
            "JAX_COORDINATOR_ADDRESS": coordinator,
            "JAX_NUM_PROCESSES": str(request.workers),
        }
        if program.role == WORKER:
            host_number = str(worker_hosts.index(program.host.name))
            environment |= {
                "RANK": index,
                "LOCAL_RANK": str(program.local_index),
                "LOCAL_WORLD_SIZE": str(program.local_count),
                "GROUP_RANK": host_number,
                "NODE_RANK": host_number,
                "GROUP_WORLD_SIZE": str(len(worker_hosts)),
                "JAX_PROCESS_ID": index,
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
                "KERAS_DISTRIBUTION_NUM_PROCESSES": str(request.workers),
                "KERAS_DISTRIBUTION_PROCESS_ID": index,
            }
            if share and program.local_count > 1 and not request.shows_own_gpus:
                environment["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, share))
        if program.role != SCHEDULER:
            environment["TF_CONFIG"] = _make_tensorflow_config(request, program, addresses)
        if request.scheduler:  # MXNet waits for one as soon as it sees a role
            environment |= {
                "DMLC_ROLE": program.role,
                "DMLC_PS_ROOT_URI": first_address,
                "DMLC_PS_ROOT_PORT": meetings["scheduler"],
                "DMLC_NUM_WORKER": str(request.workers),
                "DMLC_NUM_SERVER": str(request.servers),
                "DMLC_NODE_HOST": address,
            }
            if program.role != SCHEDULER:  # what dmlc's trackers added
                offset = request.workers if program.role == SERVER else 0
                environment["DMLC_TASK_ID"] = str(program.index + offset)
                environment[f"DMLC_{program.role.upper()}_ID"] = index
        if interface:
            environment |= {
                "GLOO_SOCKET_IFNAME": interface,
                "TP_SOCKET_IFNAME": interface,
                "NCCL_SOCKET_IFNAME": f"={interface}",  # without the =, a prefix
            }
            if request.scheduler:
                environment["DMLC_INTERFACE"] = interface
        for role in (ALL_ROLES, program.role):
            environment |= request.variables.get(role, {})
        defaults = {"PYTHONUNBUFFERED": "1"}
        if program.local_count > 1:  # no more threads than the host has cores, in all its workers
            defaults["OMP_NUM_THREADS"] = str(max(1, len(machine.cores) // program.local_count))
        visible_gpus: list[int] | None = None  # all
        if machine.gpus and program.role != WORKER:
            visible_gpus = []  # TensorFlow would take the memory of all
        elif machine.gpus and request.shows_own_gpus:
            visible_gpus = share
        jobs.append(ProgramJob([*request.command], request.folder, environment, defaults, visible_gpus))
    return jobs


def _make_tensorflow_config(request: ProgramRequest, program: Program, addresses: Mapping[str, str]) -> str:
    workers = [addresses[f"{WORKER} {index}"] for index in range(request.workers)]
    servers = [addresses[f"{SERVER} {index}"] for index in range(request.servers)]
    chiefs = int(request.chief)
    members = {"chief": workers[:chiefs], "worker": workers[chiefs:], "ps": servers}
    kind, index = "worker", program.index - chiefs
    if program.role == SERVER:
        kind, index = "ps", program.index
    elif index < 0:
        kind, index = "chief", 0
    cluster = {name: listed for name, listed in members.items() if listed}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def _choose_share(program: Program) -> list[int]:
    """Return the numbers of a worker's GPUs; more workers than GPUs share them."""
    gpus, workers = len(get_machine(program.host).gpus), program.local_count
    if not gpus or not workers:
        return []
    index = program.local_index
    if workers > gpus:
        return [index % gpus]
    return list(range(index * gpus // workers, (index + 1) * gpus // workers))


# ---- running them


def prepare_hosts(launcher: Launcher, hosts: Sequence[Host], folder: str, archive: str | None = None) -> list[Host]:
    """Return the hosts, once all have the folder. ``archive`` is its content to copy."""
    tasks = {
        host.name: [
            make_role_task(host.name, 0, "look", HostFactsRequest(folder=launcher.access.remote_dir)),
            make_role_task(host.name, 1, "program", FolderRequest(folder, archive)),
        ]
        for host in hosts
    }
    facts: dict[str, HostFacts] = {}
    problems: list[str] = []
    with launcher.connect(list(tasks), _PREPARE_SECONDS, tolerates_errors=True) as connected:
        answers = run_host_tasks(connected, tasks, _PREPARE_SECONDS)
        errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
        for name, answer in answers.items():
            if isinstance(answer, HostError):
                continue
            host_facts = decode_facts(answer[0], connected.connections[name])
            prepared, problem = answer[1].exit, answer[1].find_last(RankError)
            if isinstance(host_facts, HostError):
                errors.append(host_facts)
            elif problem:
                problems.append(f"{name}: folder {folder} {problem.message}")
            elif prepared is None or prepared.code:
                errors.append(HostError(name, answer[1].last_line or "does not answer"))
            else:
                facts[name] = host_facts
    if errors:
        raise TrainscaleError("\n".join(str(error) for error in select_causes(errors)))
    if problems:
        hint = "name a folder that every host has by --folder, or copy this one by --copy DIR"
        raise InputError("\n".join([*problems, f"  {hint}"]))
    return [add_facts(host, facts[host.name], launcher.access) for host in hosts]


def pack_folder(folder: Path) -> str:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=lambda e: None if Path(e.name).name in _NOT_COPIED else e)
            if raw.tell() > _MOST_BYTES:
                size = f"{_MOST_BYTES // 2**20} MiB, compressed"
                raise InputError(
                    f"copy: {folder} is larger than {size}; keep data elsewhere,"
                    " or share the folder and name it by --folder"
                )
    return base64.b64encode(raw.getvalue()).decode()


class ProgramRun:
    """It is over when all workers, or the chief, have ended."""

    def __init__(
        self,
        programs: Sequence[Program],
        show_line: Callable[[Program, str, bool], None],  # whether it is from standard error
        show_message: Callable[[str], None],
        chief: bool,
    ) -> None:
        self.programs = programs
        self.exit_code = 0
        self.failure = ""
        self.is_ending = False  # programs that end now received a signal, which is no failure
        self.show_message = show_message
        self._show_line = show_line
        workers = [n for n, program in enumerate(programs) if program.role == WORKER]
        self._leaders = workers[:1] if chief else workers
        self._running = set(range(len(programs)))
        self._line_parts: dict[tuple[int, str], str] = {}

    @property
    def is_over(self) -> bool:
        return bool(self.failure) or not self._running.intersection(self._leaders)

    @property
    def running(self) -> list[Program]:
        return [self.programs[number] for number in sorted(self._running)]

    def update(self, received: ReceivedEvent) -> None:
        match received.event:
            case LogLine() as line if received.rank is not None and 0 <= received.rank < len(self.programs):
                # A long line arrives in parts. Of a progress bar, show the last state.
                text = self._line_parts.pop((received.rank, line.stream), "") + line.text
                if line.more and len(text) < _LONGEST_LINE:
                    self._line_parts[received.rank, line.stream] = text
                else:
                    text = text.rstrip("\r").rpartition("\r")[2]
                    self._show_line(self.programs[received.rank], text, line.stream == "stderr")
            case Exit(code=code) if received.rank in self._running:
                self._running.discard(received.rank)
                program = self.programs[received.rank]
                if code != 0:
                    reason = f"{program.name} on {program.host.name} {describe_exit(code)}"
                    self.fail(128 - code if code < 0 else code, reason)
            case HostLost(culprit=culprit, stderr_tail=tail):
                host = culprit or received.host
                lost = {number for number in self._running if self.programs[number].host.name == host}
                self._running -= lost
                if lost:
                    reason = find_last_line("\n".join(tail)) or "it sends nothing any more"
                    self.fail(_LOST, f"{host} is lost: {reason}")

    def fail(self, exit_code: int, reason: str) -> None:
        """Note a failure. Only the first one counts."""
        if not self.failure and not self.is_ending:
            self.exit_code, self.failure = exit_code, reason
            self.show_message(reason)


def run_programs(
    launcher: Launcher, run: ProgramRun, request: ProgramRequest, timeout_seconds: float | None = None
) -> int:
    """Return the exit code of the first program that failed, or 0."""
    port_counts = count_ports(run.programs)
    with launcher.connect(list(port_counts)) as connected:
        jobs = build_program_jobs(request, run.programs, connected.find_ports(port_counts))
        tasks = [
            Task(program.host.name, rank, [ITS_PYTHON, ITS_START, "program"], json.dumps(vars(job)))
            for rank, (program, job) in enumerate(zip(run.programs, jobs, strict=True))
        ]
        try:
            connected.start(tasks, _FOREVER_SECONDS)
            deadline = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
            while connected.is_open and run.running and not run.is_over:
                if time.monotonic() > deadline:
                    run.fail(TIMED_OUT, f"time is up after {timeout_seconds:g} s")
                for received in connected.poll():
                    run.update(received)
            if not run.is_over:  # the keepers assumed that this machine was dead
                run.fail(_LOST, "the hosts ended their programs: they had no sign of life from here")
            # Let the others end by themselves, then by a signal, then by their keepers.
            _wait(connected, run, _SECONDS_AFTER_FAILURE if run.failure else _SECONDS_AFTER_WORKERS)
            if connected.is_open and run.running:
                labels = ", ".join(program.label for program in run.running)
                run.show_message(f"ending what goes on: {labels}")
                _send_signal(connected, run, signal.SIGTERM)
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # a second Ctrl-C stops the waiting
                run.show_message("interrupted; waiting for the programs to end (Ctrl-C again: do not wait)")
                _send_signal(connected, run, signal.SIGINT)
            return INTERRUPTED
        finally:
            run.is_ending = True
            for received in connected.drain():
                run.update(received)
    return run.exit_code


def _send_signal(connected: ConnectedHosts, run: ProgramRun, number: signal.Signals) -> None:
    run.is_ending = True
    connected.send_signal(int(number))
    _wait(connected, run, _SECONDS_AFTER_SIGNAL)


def _wait(connected: ConnectedHosts, run: ProgramRun, seconds: float) -> None:
    for received in connected.read_events(seconds if run.running else 0.0):
        run.update(received)
        if not run.running:
            return
