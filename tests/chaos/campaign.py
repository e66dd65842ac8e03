"""A campaign: scenarios one after another, at several places at the same time, until the time or the seeds are over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trainscale.launch.connected_hosts import wait_for_futures

from .faults import FAULTS, LAUNCHERS, Fault
from .judge import Observation, violations
from .perform import Interrupted, Performance
from .places import Place
from .scenario import Scenario, make_scenario

_LONGEST_ERROR = 200


@dataclass(frozen=True)
class Outcome:
    """What is kept of a scenario: the faults that happened, and what was broken, with the number of its fault.

    ``error`` says why the scenario could not be performed: the lab did not do its part.
    """

    seed: int
    launcher: str
    faults: Sequence[str] = ()
    broken: Sequence[tuple[int, str]] = ()
    error: str = ""


def judge(scenario: Scenario, seen: Observation) -> Outcome:
    broken = [(item.hit, item.problem) for item in violations(seen)] if seen.hits else []
    return Outcome(scenario.seed, scenario.launcher, [hit.fault.name for hit in seen.hits], broken)


@dataclass(frozen=True)
class CampaignSettings:
    launchers: Sequence[str] = LAUNCHERS
    faults: Sequence[Fault] = FAULTS
    at_once: int = 2
    seconds: float | None = None
    most_faults: int | None = None  # that happen altogether
    patience: int = 1  # multiplies the time limits of runs
    report: Callable[[Scenario, Outcome, float], None] = lambda *_: None


@dataclass
class Worker:
    """Performs scenarios, and keeps a place for each launcher until a lab fails."""

    interrupted: threading.Event
    patience: int = 1
    places: dict[str, Place] = field(default_factory=dict)

    def perform(self, scenario: Scenario) -> Outcome | None:
        """Return None if the campaign was interrupted meanwhile."""
        try:
            if scenario.launcher not in self.places:
                self.places[scenario.launcher] = Place(scenario.launcher, self.patience)
            performance = Performance(scenario, self.places[scenario.launcher], self.interrupted)
            try:
                outcome = judge(scenario, performance.run())
            finally:
                performance.close()
        except Interrupted:
            return None
        except Exception as error:
            self._drop(scenario.launcher)
            message = f"{type(error).__name__}: {error}".splitlines()[0][:_LONGEST_ERROR]
            return Outcome(scenario.seed, scenario.launcher, error=message)
        if outcome.broken:
            self._drop(scenario.launcher)  # what went wrong may still be there
        return outcome

    def _drop(self, launcher: str) -> None:
        place = self.places.pop(launcher, None)
        if place is not None:
            place.close()

    def close(self) -> None:
        for launcher in list(self.places):
            self._drop(launcher)


def run_campaign(seeds: Iterator[int], settings: CampaignSettings) -> list[Outcome]:
    """Perform the scenarios of these seeds, until they, the time, or the number of faults are over.

    Ctrl-C kills the runs that are under way, which do not count, and ends the campaign.
    """
    outcomes: list[Outcome] = []
    lock, interrupted = threading.Lock(), threading.Event()
    deadline = None if settings.seconds is None else time.monotonic() + settings.seconds

    def is_over() -> bool:
        if interrupted.is_set():
            return True
        if deadline is not None and time.monotonic() > deadline:
            return True
        return settings.most_faults is not None and count_faults(outcomes) >= settings.most_faults

    def work() -> None:
        worker = Worker(interrupted, settings.patience)
        try:
            while True:
                with lock:
                    seed = None if is_over() else next(seeds, None)
                if seed is None:
                    return
                began = time.monotonic()
                scenario = make_scenario(seed, settings.launchers, settings.faults)
                outcome = worker.perform(scenario)
                if outcome is None:
                    return
                with lock:
                    outcomes.append(outcome)
                    settings.report(scenario, outcome, time.monotonic() - began)
        finally:
            worker.close()

    with ThreadPoolExecutor(settings.at_once) as pool:
        futures = [pool.submit(work) for _ in range(settings.at_once)]
        try:
            wait_for_futures(futures)
        except KeyboardInterrupt:
            interrupted.set()
    return outcomes


def count_faults(outcomes: Sequence[Outcome]) -> int:
    return sum(len(outcome.faults) for outcome in outcomes)
