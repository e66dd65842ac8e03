"""The training loop, on a made-up device and a clock that moves only when the device works."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from jobs import make_config, make_job
from stub_adapter import StubAdapter

from trainscale.worker.inspection.usage import read_peak_bytes
from trainscale.worker.job import Measure
from trainscale.worker.sample import RankSample, Report
from trainscale.worker.training import loop
from trainscale.worker.training.rendezvous import Rendezvous

JOB = make_job(batch=4)
ENQUEUE = 0.125  # seconds that it takes to say what to do; powers of two, so that sums are exact


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeDevice(StubAdapter):
    """Steps last as long as told, one after the other; ``step`` returns before they are done."""

    def __init__(self, clock: Clock, seconds: Iterator[float], lag: int = 0, own_clock: bool = False) -> None:
        super().__init__(JOB)
        self.lag, self.steps, self.in_flight, self.most_in_flight = lag, 0, 0, 0
        self.log: list[str] = []
        self.has_drained = False
        self._clock, self._seconds, self._own_clock, self._free = clock, seconds, own_clock, 0.0

    def step(self, batch: Any) -> Any:
        self.steps += 1
        self._clock.now += ENQUEUE
        self._free = max(self._free, self._clock.now) + next(self._seconds)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.log.append(f"step {batch}")
        return self._free

    def wait(self, ticket: Any) -> None:
        self._clock.now = max(self._clock.now, ticket)
        self.in_flight -= 1

    def mark(self) -> Any:
        self.log.append("mark")
        return self._clock.now

    def seconds_between(self, tickets: Sequence[Any]) -> list[float] | None:
        assert self.in_flight == 0, "asked before all was done"
        return [b - a for a, b in itertools.pairwise(tickets)] if self._own_clock else None

    def loss(self) -> float:
        return 10.0 - self.steps

    def drain(self) -> None:
        """Reading a weight waits for all steps, and takes a little time itself, much more where it is compiled."""
        self._clock.now = max(self._clock.now, self._free) + ENQUEUE + (0.0 if self.has_drained else 4.0)
        self.has_drained = True


class FakeWitness:
    """Proves nothing, and takes no time."""

    def take_turn(self, *_: Any) -> Any:
        return contextlib.nullcontext()

    time_window = observe = take_turn


class FakeRendezvous:
    """Remembers after how many steps it was used. ``others`` are the values of the other ranks."""

    def __init__(self, device: FakeDevice, others: dict[str, list[Any]] | None = None, late: int = 0) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self._device = device
        self._others = others or {}
        self._late = late

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        assert self._device.in_flight == 0, "the device must be idle when the ranks meet"
        self.calls.append(("exchange", name, self._device.steps))
        return [value, *self._others.get(name, [])]

    def arrive(self, name: str, value: Any = None) -> None:
        self.calls.append(("arrive", name, self._device.steps))

    def has_everyone_arrived(self, name: str) -> bool:
        self.calls.append(("look", name, self._device.steps))
        self._late -= 1
        return self._late < 0


class FakeSource:
    """Batches 0, 1, 2, … for each of which the training waits a little."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def batches(self) -> Iterator[int]:
        for number in itertools.count():
            self.waited_seconds += ENQUEUE
            yield number

    def load_first_batch(self) -> int:
        return 0


class FakeHeartbeat:
    step = 0

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "told":
            self.told.append((name, value))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop, "clock", clock)
    return clock


def train(
    device: FakeDevice,
    measure: Measure,
    rendezvous: Any = None,
    heartbeat: Any = None,
    is_synchronous: bool = True,
) -> Report:
    config = make_config("allreduce" if is_synchronous else "independent")
    device.job = replace(JOB, measure=measure, config=config)
    rendezvous, heartbeat = rendezvous or FakeRendezvous(device), heartbeat or FakeHeartbeat()
    report = make_report()
    all_steps = loop.train(device, FakeSource(), rendezvous, heartbeat, FakeWitness(), report)  # type: ignore[arg-type]
    assert all_steps == device.steps
    return report


def train_sample(*arguments: Any, **options: Any) -> RankSample:
    return train(*arguments, **options).sample


def make_report() -> Report:
    return Report(RankSample(0, "here", 0, 0.0, ()))


def steady(seconds: float = 1.0) -> Iterator[float]:
    return itertools.repeat(seconds)


# ---- counts


@pytest.mark.parametrize(("warmup", "steps"), [(2, 2), (3, 5), (10, 100)])
def test_exactly_the_asked_steps_are_taken_each_on_the_next_batch(clock: Clock, warmup: int, steps: int) -> None:
    device = FakeDevice(clock, steady())
    report = train(device, Measure(warmup, steps))
    assert (report.warmup, len(report.sample.step_seconds)) == (warmup, steps)
    assert device.log.index("mark") == warmup  # the window begins after the last warm-up step
    assert [entry for entry in device.log if entry != "mark"] == [f"step {number}" for number in range(warmup + steps)]


# ---- the clock


def test_the_first_step_and_the_warm_up_are_not_in_the_window(clock: Clock) -> None:
    device = FakeDevice(clock, iter([64.0, 32.0, 16.0, 1.0, 2.0, 4.0]))
    window = train_sample(device, Measure(3, 3))
    assert window.first_step_seconds == 64.0 + ENQUEUE
    assert window.step_seconds == (1.0 + ENQUEUE, 2.0 + ENQUEUE, 4.0 + ENQUEUE)
    assert window.window_seconds == 7.0 + 3 * ENQUEUE


def test_step_times_add_up_to_the_window(clock: Clock) -> None:
    for lag in (0, 1, 3):
        window = train_sample(FakeDevice(clock, itertools.cycle([1.0, 2.0, 0.5]), lag), Measure(2, 10))
        assert sum(window.step_seconds) == window.window_seconds


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_waiting_behind_keeps_the_device_busy(clock: Clock, lag: int) -> None:
    device = FakeDevice(clock, steady(), lag)
    window = train_sample(device, Measure(2, 8))
    assert device.most_in_flight == lag + 1
    if not lag:
        return
    assert window.window_seconds == 8.0 + ENQUEUE  # only the first step waits for its own enqueueing
    assert window.step_seconds[1:] == (1.0,) * 7


def test_all_steps_are_done_when_the_window_ends(clock: Clock) -> None:
    device = FakeDevice(clock, steady(), lag=5)
    report = train(device, Measure(2, 3))  # fewer steps than may be in flight
    assert device.in_flight == 0
    assert (len(report.sample.step_seconds), report.sample.window_seconds) == (3, 3.0 + ENQUEUE)
    assert report.witness.unfinished_seconds == 0.0  # what verifies the window is compiled before it


def test_the_devices_own_clock_is_preferred_for_steps_and_not_for_the_window(clock: Clock) -> None:
    device = FakeDevice(clock, iter([1.0, 1.0, 1.0, 2.0, 4.0]), lag=5, own_clock=True)
    window = train_sample(device, Measure(2, 3))
    assert window.step_seconds == (1.0 + ENQUEUE, 2.0, 4.0)
    assert window.window_seconds == 7.0 + ENQUEUE


# ---- losses and system counters


def test_losses_are_those_of_the_first_step_and_of_the_last_measured_one(clock: Clock) -> None:
    device = FakeDevice(clock, steady())
    window = train_sample(device, Measure(3, 4), FakeRendezvous(device, late=5), is_synchronous=False)
    assert (window.first_loss, window.last_loss) == (9.0, 3.0)


def test_what_the_process_used_is_counted(clock: Clock) -> None:
    window = train_sample(FakeDevice(clock, steady()), Measure(2, 2))
    assert window.cpu_seconds >= 0
    assert window.involuntary_switches >= 0
    assert window.core_wait_seconds is None or window.core_wait_seconds >= 0
    assert read_peak_bytes() > 1024 * 1024


# ---- rendezvous the others


def test_ranks_meet_around_the_window_and_never_inside_it(clock: Clock) -> None:
    device = FakeDevice(clock, steady(), lag=2)
    rendezvous = FakeRendezvous(device)
    train(device, Measure(4, 6), rendezvous)
    assert rendezvous.calls == [("exchange", "pace", 2), ("exchange", "start", 4), ("arrive", "finished", 10)]


def test_ranks_that_do_not_wait_for_each_other_go_on_until_everybody_is_done(clock: Clock) -> None:
    device = FakeDevice(clock, steady())
    rendezvous = FakeRendezvous(device, late=4)
    window = train_sample(device, Measure(2, 3), rendezvous, is_synchronous=False)
    assert device.steps == 5 + 4
    assert len(window.step_seconds) == 3  # what comes after is not counted
    assert window.window_seconds == 3.0 + 3 * ENQUEUE
    assert rendezvous.calls[2:4] == [("arrive", "finished", 5), ("look", "finished", 5)]


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_ranks_in_step_and_one_worker_alone_take_no_step_more(clock: Clock, is_synchronous: bool) -> None:
    device = FakeDevice(clock, steady())
    alone = Rendezvous("nowhere.invalid", 1, 0, 1)
    train(device, Measure(2, 3), FakeRendezvous(device, late=100) if is_synchronous else alone, None, is_synchronous)
    assert device.steps == 5


# ---- a time limit


@pytest.mark.parametrize(
    ("measure", "pace", "others", "warmup", "steps"),
    [
        (Measure(10, 100, 1000.0), 1.0, [], 10, 100),  # room for all
        (Measure(10, 100, 50.0), 1.0, [], 10, 40),  # a fifth for the warm-up
        (Measure(10, 100, 20.0), 1.0, [], 4, 16),
        (Measure(10, 100, 5.0), 1.0, [], 2, 3),  # the least that can be measured
        (Measure(10, 100, 0.25), 1.0, [], 2, 3),
        (Measure(10, 100, 5.0, least_steps=20), 1.0, [], 2, 20),  # more than the time affords
        (Measure(10, 7, 5.0, least_steps=20), 1.0, [], 2, 7),
        (Measure(10, 100, 80.0), 1.0, [4.0], 4, 16),  # the slowest rank decides for all
        (Measure(10, 100, 80.0), 4.0, [1.0], 4, 16),
    ],
)
def test_with_a_time_limit_the_counts_are_upper_limits(
    clock: Clock, measure: Measure, pace: float, others: list[float], warmup: int, steps: int
) -> None:
    device = FakeDevice(clock, itertools.chain([500.0], steady(pace - ENQUEUE)))  # the slow first step does not count
    report = train(device, measure, FakeRendezvous(device, {"pace": others}))
    assert (report.warmup, len(report.sample.step_seconds)) == (warmup, steps)


# ---- real images


def test_waiting_for_images_is_counted_in_the_window_alone(clock: Clock) -> None:
    window = train_sample(FakeDevice(clock, steady(), lag=1), Measure(4, 6))
    assert window.waited_seconds == 6 * ENQUEUE


@pytest.mark.parametrize(("steps", "taken"), [(2, 3), (40, 20), (10_000, 200)])
def test_steps_on_a_batch_that_stays_are_timed_after_two_that_are_not(clock: Clock, steps: int, taken: int) -> None:
    device = FakeDevice(clock, steady(1.0 - ENQUEUE))
    sample = make_report().sample
    sample.step_seconds = (1.0,) * steps
    loop.measure_resident(device, FakeSource(), FakeRendezvous(device), FakeHeartbeat(), sample)  # type: ignore[arg-type]
    assert (sample.resident_steps, sample.resident_seconds) == (taken, float(taken))
    assert device.log == ["step 0"] * 2 + ["mark"] + ["step 0"] * taken


# ---- how far it is


def test_the_heartbeat_is_told_every_phase_and_step(clock: Clock) -> None:
    heartbeat = FakeHeartbeat()
    train(FakeDevice(clock, steady(), lag=1), Measure(4, 3), heartbeat=heartbeat)
    phases = [value for name, value in heartbeat.told if name == "phase"]
    assert phases == ["first step", "warm-up", "measure", "finish"]
    measured = heartbeat.told[heartbeat.told.index(("phase", "measure")) :]
    assert [value for name, value in measured if name == "step"] == [0, 1, 2, 3]
