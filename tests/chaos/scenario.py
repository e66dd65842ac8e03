"""A scenario: one run, the faults that happen to it, and when. A seed decides all of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .faults import FAULTS, HOST, LAUNCHERS, RAY, SERVER, Fault

_LEAST_FAULTS, _MOST_FAULTS = 3, 6
_AT_START = 0.15  # the share of last faults that hit a run before its first trial
_TRIALS_AFTER = 1  # that follow the last fault, if the run goes on
# A cluster of Ray takes seconds of a core to start, and a run on it too.
_WEIGHTS = {RAY: 0.25}


@dataclass(frozen=True)
class Moment:
    """``seconds`` after the trial of this number has ranks, or after they ``train``; None: after the command was
    typed.
    """

    trial: int | None
    seconds: float
    train: bool = False


@dataclass(frozen=True)
class PlannedFault:
    fault: Fault
    moment: Moment
    target: int  # which of the possible targets is hit, modulo their number


@dataclass(frozen=True)
class Scenario:
    seed: int
    launcher: str
    strategy: str
    trials: int
    faults: tuple[PlannedFault, ...]

    def __str__(self) -> str:
        parts = [f"{item.fault.name} ({_moment(item.moment)})" for item in self.faults]
        return f"{self.seed} {self.launcher} {self.strategy}: {', '.join(parts)}"


def _moment(moment: Moment) -> str:
    where = "start" if moment.trial is None else f"{'training' if moment.train else 'ranks'} of trial {moment.trial}"
    return f"{where} + {moment.seconds:.1f} s"


def make_scenario(seed: int, launchers: Sequence[str] = LAUNCHERS, faults: Sequence[Fault] = FAULTS) -> Scenario:
    """Draw a launcher, then a few faults for consecutive trials. One that ends the run comes last."""
    draw = random.Random(seed)
    usable = [name for name in launchers if any(name in fault.launchers for fault in faults)]
    launcher = draw.choices(usable, [_WEIGHTS.get(name, 1.0) for name in usable])[0]
    possible = [fault for fault in faults if launcher in fault.launchers]
    chosen = [draw.choice(possible) for _ in range(draw.randint(_LEAST_FAULTS, _MOST_FAULTS))]
    lasting = [fault for fault in chosen if not fault.is_last]
    ending = [fault for fault in chosen if fault.is_last][:1]
    has_servers = any(fault.role == SERVER for fault in chosen)
    planned = []
    for number, fault in enumerate([*lasting, *ending]):
        at_start = number == 0 and fault.is_last and fault.role != HOST and draw.random() < _AT_START
        train = draw.random() < 0.6 or fault.role == SERVER
        moment = Moment(number, draw.uniform(0.0, 0.5), train)
        if at_start:
            moment = Moment(None, draw.uniform(0.0, 4.0))
        planned.append(PlannedFault(fault, moment, draw.randrange(1000)))
    strategy = "ps" if has_servers else "allreduce"
    return Scenario(seed, launcher, strategy, len(planned) + _TRIALS_AFTER, tuple(planned))
