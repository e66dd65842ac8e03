"""The faults of the campaign: whom each hits, what is done to it, and which rows of the journal may follow from it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

LOCAL, SSH, MPI, SLURM, RAY = "local", "ssh", "mpi", "slurm", "ray"
LAUNCHERS = (LOCAL, SSH, MPI, SLURM, RAY)
_WITH_HOSTS = (SSH, MPI, SLURM)

CONTROLLER, KEEPER, RANK, SERVER, HOST = "controller", "keeper", "rank", "server", "host"

# What a failed row may name.
HIT_RANK, HIT_RANK_OR_NONE, HIT_HOST, HIT_HOST_OR_NONE, NOTHING = (
    "the rank", "the rank or none", "the host", "the host or none", "no rank and no host",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """``role`` is what is hit, ``deed`` what happens to it. ``statuses`` are those that a row may get by it; without
    any, no trial may fail. A fault that ``is_last`` ends the run or its hosts, so no other fault can follow it.
    """

    role: str
    deed: str
    launchers: tuple[str, ...]
    statuses: tuple[str, ...] = ()
    names: str = NOTHING
    is_last: bool = False
    most_rows: int = 1  # that may fail by it
    exit_codes: tuple[int, ...] = ()  # besides what the rows of the journal demand

    @property
    def name(self) -> str:
        return f"{self.role}: {self.deed}"


KILL, TERMINATE, INTERRUPT, STOP = "kill -9", "SIGTERM", "SIGINT", "SIGSTOP"
SIGNALS = {KILL: signal.SIGKILL, TERMINATE: signal.SIGTERM, INTERRUPT: signal.SIGINT, STOP: signal.SIGSTOP}
HANG, PRINT, PRINT_LINES = "hang", "print", "print lines"
CUT_SHORTLY, CUT, POWER_OFF, SHUT_DOWN = "link down and up", "link down", "power-off", "shutdown"
FULL_DISK, SCANCEL = "full disk", "scancel"
_ALL = LAUNCHERS
_MANY = 99
_HANGS = ("hang", "timeout")  # a first step may take so long that the time limit comes first

FAULTS = (
    Fault(CONTROLLER, KILL, _ALL, is_last=True, exit_codes=(-signal.SIGKILL,)),
    Fault(CONTROLLER, TERMINATE, _ALL, is_last=True, exit_codes=(130,)),
    Fault(CONTROLLER, INTERRUPT, _ALL, is_last=True, exit_codes=(130,)),
    Fault(CONTROLLER, STOP, _ALL),  # and SIGCONT after a while
    Fault(CONTROLLER, FULL_DISK, (LOCAL,), is_last=True, exit_codes=(1,)),
    Fault(KEEPER, KILL, (LOCAL, SSH, MPI, SLURM), ("lost",), HIT_HOST),
    Fault(KEEPER, TERMINATE, (LOCAL, SSH, MPI, SLURM), ("lost",), HIT_HOST),
    Fault(KEEPER, STOP, (LOCAL, SSH, MPI, SLURM), (*_HANGS, "lost"), HIT_HOST_OR_NONE),
    Fault(RANK, KILL, _ALL, ("crash",), HIT_RANK),
    Fault(RANK, TERMINATE, _ALL, ("crash",), HIT_RANK),
    Fault(RANK, STOP, _ALL, _HANGS, HIT_RANK_OR_NONE),
    Fault(RANK, HANG, _ALL, _HANGS, HIT_RANK_OR_NONE),
    Fault(RANK, PRINT, _ALL, _HANGS, HIT_RANK_OR_NONE),
    Fault(RANK, PRINT_LINES, _ALL, _HANGS, HIT_RANK_OR_NONE),
    Fault(SERVER, KILL, _ALL, ("crash",), HIT_RANK),
    Fault(SERVER, STOP, _ALL, _HANGS, HIT_RANK_OR_NONE),
    Fault("ssh", KILL, (SSH,), ("lost",), HIT_HOST),
    Fault("ssh", TERMINATE, (SSH,), ("lost",), HIT_HOST),
    Fault("ssh", STOP, (SSH,), (*_HANGS, "lost"), HIT_HOST_OR_NONE),
    Fault("mpirun", KILL, (MPI,), ("lost",)),
    Fault("mpirun", TERMINATE, (MPI,), ("lost",)),
    Fault("mpirun", STOP, (MPI,), (*_HANGS, "lost")),
    Fault("srun", KILL, (SLURM,), ("lost",)),
    Fault("srun", TERMINATE, (SLURM,), ("lost",)),
    Fault("srun", STOP, (SLURM,), (*_HANGS, "lost")),
    Fault("slurmstepd", KILL, (SLURM,), ("lost",), HIT_HOST_OR_NONE),
    Fault("job", SCANCEL, (SLURM,), is_last=True, exit_codes=(130,)),
    Fault("actor", KILL, (RAY,), ("lost",), HIT_HOST_OR_NONE, is_last=True, most_rows=_MANY),
    Fault(HOST, CUT_SHORTLY, (*_WITH_HOSTS, RAY), (*_HANGS, "lost", "crash"), HIT_HOST_OR_NONE),
    Fault(HOST, CUT, _WITH_HOSTS, (*_HANGS, "lost", "crash"), HIT_HOST_OR_NONE, True, _MANY),
    Fault(HOST, POWER_OFF, _WITH_HOSTS, (*_HANGS, "lost", "crash"), HIT_HOST_OR_NONE, True, _MANY),
    Fault(HOST, SHUT_DOWN, _WITH_HOSTS, ("lost", "crash"), HIT_HOST_OR_NONE, True, _MANY),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
