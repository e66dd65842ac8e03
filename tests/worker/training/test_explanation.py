"""Exchanges alone and other batches, on a made-up device and a clock that moves only when the device works."""

from collections.abc import Callable
from typing import Any

import pytest
from jobs import make_job
from stub_adapter import StubAdapter
from test_loop import Clock, FakeHeartbeat

from trainscale.worker.frameworks.base import Adapter
from trainscale.worker.job import Job
from trainscale.worker.training import loop
from trainscale.worker.training.rendezvous import Rendezvous

LATENCY, RATE = 0.001, 1e8


class ExchangingDevice(StubAdapter):
    """Steps take a millisecond for each sample; an exchange has a latency and a rate."""

    takes_any_batch = True

    def __init__(self, clock: Clock, job: Job) -> None:
        super().__init__(job)
        self._clock = clock
        self.exchanged: list[int] = []
        self.refused_size = 0
        self.first_seconds = 0.0  # that the first exchange of a size takes longer
        self.refused_batch = 0

    def step(self, batch: int) -> None:
        if batch == self.refused_batch:
            raise RuntimeError("not with this batch")
        self._clock.now += 0.001 * batch

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        if size == self.refused_size:
            return None

        def exchange() -> None:
            self._clock.now += 0.0 if size in self.exchanged else self.first_seconds
            self.exchanged.append(size)
            self._clock.now += LATENCY + size / RATE

        return exchange


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ExchangingDevice:
    clock = Clock()
    monkeypatch.setattr(loop, "clock", clock)
    return ExchangingDevice(clock, make_job(batch=16))


def exchanges(device: ExchangingDevice, parameters: int, window_seconds: float = 50.0) -> Any:
    rendezvous = Rendezvous("127.0.0.1", 0, 0, 1)
    return loop.measure_exchanges(device, parameters, rendezvous, FakeHeartbeat(), window_seconds)  # type: ignore[arg-type]


def test_sizes_go_up_to_the_gradients_of_the_network(device: ExchangingDevice) -> None:
    times = exchanges(device, 500_000)
    assert [time.bytes for time in times] == [4096, 65536, 2**20, 2_000_000]
    for time in times:
        assert time.seconds == pytest.approx(time.count * (LATENCY + time.bytes / RATE))
        assert device.exchanged.count(time.bytes) == time.count + 1  # one before, which is not timed


def test_a_large_size_is_repeated_less_often_and_left_out_if_it_would_take_too_long(device: ExchangingDevice) -> None:
    first, *_, last = exchanges(device, 6_000_000)
    assert (first.count, last.bytes) == (20, 24_000_000)
    assert last.count < 20
    assert exchanges(device, 500_000_000)[-1].bytes == 25 * 2**20  # 2 GB at 100 MB/s would take 20 s


def test_a_slow_start_of_a_small_exchange_does_not_end_the_sweep(device: ExchangingDevice) -> None:
    """What an exchange of 4 KiB takes is latency and set-up, which do not grow with the size."""
    device.first_seconds = 2.0
    times = exchanges(device, 500_000, window_seconds=1.0)
    assert [time.bytes for time in times] == [4096, 65536, 2**20, 2_000_000]


def test_sizes_that_an_adapter_does_not_exchange_are_left_out(
    device: ExchangingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.refused_size = 65536
    assert 65536 not in [time.bytes for time in exchanges(device, 500_000)]
    monkeypatch.setattr(ExchangingDevice, "make_exchange", Adapter.make_exchange)
    assert exchanges(device, 500_000) == ()


def test_a_half_and_a_quarter_of_the_batch_are_timed(device: ExchangingDevice) -> None:
    times = loop.measure_batches(device, FakeHeartbeat(), 10.0)  # type: ignore[arg-type]
    assert [time.batch for time in times] == [8, 4]
    assert [time.seconds / time.steps for time in times] == pytest.approx([0.008, 0.004])


@pytest.mark.parametrize(("batch", "others"), [(1, [2, 4]), (3, [6, 12]), (4, [2, 1])])
def test_small_batches_are_doubled(device: ExchangingDevice, batch: int, others: list[int]) -> None:
    device.job = make_job(batch=batch)
    assert [time.batch for time in loop.measure_batches(device, FakeHeartbeat(), 10.0)] == others  # type: ignore[arg-type]


def test_a_network_may_refuse_a_batch_and_one_that_would_be_compiled_is_not_asked(
    device: ExchangingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.refused_batch = 4
    (time,) = loop.measure_batches(device, FakeHeartbeat(), 10.0)  # type: ignore[arg-type]
    assert time.batch == 8
    monkeypatch.setattr(ExchangingDevice, "takes_any_batch", False)
    assert loop.measure_batches(device, FakeHeartbeat(), 10.0) == ()  # type: ignore[arg-type]
