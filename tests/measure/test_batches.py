"""The search for the largest batch: which batch comes next, what a trial shows, what is remembered; with real trials
where the question is what running out of memory looks like.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from environments import python_for
from small_sets import write_mnist
from trials import SUPPORT

from trainscale.cluster.hosts import find_local_devices
from trainscale.errors import InputError, TrainscaleError
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure import batches
from trainscale.measure.batches import (
    FILE,
    Attempt,
    Search,
    apply_searches,
    choose_next_batch,
    compute_memory_share,
    find_batches,
    find_largest_to_try,
    read_batches,
    write_batches,
)
from trainscale.measure.context import RunContext
from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, OK, OUT_OF_MEMORY, Failure, RankSample, TrialRecord
from trainscale.spec.config import AUTO, Trial
from trainscale.spec.devices import AvailableDevices, Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.inspection.usage import count_available_bytes
from trainscale.worker.job import Device

GIB = 1024**3


def plan(cores: int = 4, hosts: int = 1, kind: str = "cpu", **settings: Any) -> Plan:
    devices = tuple(Device(kind, slot, (slot,) if kind == "cpu" else ()) for slot in range(cores))
    sites = tuple(Host(f"10.0.0.{n}", f"host{n}", devices=devices) for n in range(hosts))
    given = AvailableDevices(
        kind, sites, 1 if kind == "cpu" else 0, "", "NVIDIA H200" if kind == "cuda" else "", 139 * GIB
    )
    return make_plan(Experiment.of(**{"models": ("mnist",), "batch": AUTO, **settings}), given)


# ---- which batch comes next


def search(room: int, start: int, most: int = 65_536) -> list[int]:
    """All batches tried on a device that has room for so many images."""
    attempts: list[Attempt] = []
    while (batch := choose_next_batch(attempts, start, most)) is not None:
        attempts.append(Attempt(batch, batch <= room, 1.0))
        assert len(attempts) < 40
    return [attempt.batch for attempt in attempts]


@pytest.mark.parametrize(
    ("room", "start", "most", "tried"),
    [
        (700, 64, 65_536, [64, 128, 256, 512, 1024, 768, 640, 704, 672, 672]),
        (13, 2, 65_536, [2, 4, 8, 16, 12, 14, 13, 13]),  # below 64 it finds the very batch
        (5, 16, 65_536, [16, 8, 4, 6, 5, 5]),  # a start that does not fit is halved
        (0, 4, 65_536, [4, 2, 1]),
        (10**9, 64, 200, [64, 128, 200, 200]),  # a bound that still fits is tried, and none above it
        (10**9, 64, 32, [32, 32]),
    ],
)
def test_batches_are_doubled_then_bisected_and_confirmed(room: int, start: int, most: int, tried: list[int]) -> None:
    assert search(room, start, most) == tried


@pytest.mark.parametrize("start", [1, 2, 16, 100, 256, 1024])
@pytest.mark.parametrize("room", [1, 2, 3, 7, 63, 64, 65, 100, 511, 512, 3000, 40_000, 65_536])
def test_what_it_finds_fits_and_what_does_not_is_near(start: int, room: int) -> None:
    tried = search(room, start)
    fits, fails = [b for b in tried if b <= room], [b for b in tried if b > room]
    assert len(tried) <= 26
    assert tried.count(max(fits)) == 2
    if fails:
        assert min(fails) - max(fits) <= max(8 if max(fits) >= 64 else 1, max(fits) / 16)
    else:
        assert max(fits) == 65_536


def test_what_fits_only_once_does_not_fit() -> None:
    attempts = [Attempt(8, True, 1.0), Attempt(16, False, 1.0), Attempt(12, True, 1.0), Attempt(14, False, 1.0)]
    attempts += [Attempt(13, True, 1.0), Attempt(13, False, 1.0)]
    assert choose_next_batch(attempts, 8, 100) == 12
    search = Search(plan().configs[0], 100, "", tuple(attempts))
    assert search.largest.batch == 12
    assert search.smallest_failing.batch == 13


# ---- bounds and shares


def test_bounds_of_batches_and_shares_of_memory(tmp_path: Path) -> None:
    made = plan()
    assert find_largest_to_try(made, made.configs[0], (1, 2)) == (65_536, "the search goes no further")
    made = plan(max_batch=100)
    assert find_largest_to_try(made, made.configs[0], (1, 2)) == (100, "--max-batch")
    write_mnist(tmp_path, train=90, valid=30)
    made = plan(data=f"mnist:{tmp_path}", max_batch=100)
    assert find_largest_to_try(made, made.configs[0], (1, 2)) == (45, "the 90 training images of mnist on 2 devices")
    made = plan(data=f"mnist:{tmp_path}", epochs=1)
    assert find_largest_to_try(made, made.configs[0], (1,)) == (
        45,
        "the 90 training images of mnist, two steps an epoch",
    )
    made = plan(cores=4, hosts=2)
    assert compute_memory_share(made, made.configs[0], (1, 2, 4)) == pytest.approx(0.8 / 4)
    assert compute_memory_share(made, made.configs[0], (1, 8)) == pytest.approx(0.8 / 4)
    assert compute_memory_share(made, made.configs[0], (1,)) == pytest.approx(0.8)
    made = plan(kind="cuda")
    assert compute_memory_share(made, made.configs[0], (1, 4)) == 0.0


# ---- what is remembered


class Trials:
    """In place of real ones: room for so many images, and a record of what was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.tried: list[int] = []
        self.interrupt_at: int | None = None
        self.crash_at: int | None = None
        self.trials: list[Trial] = []
        monkeypatch.setattr(batches, "run_trial", self.run)

    def run(self, _: RunContext, trial: Trial, *__: object, **___: object) -> TrialRecord:
        batch = trial.config.batch
        if len(self.tried) == self.interrupt_at:
            raise KeyboardInterrupt
        self.tried.append(batch)
        self.trials.append(trial)
        if batch == self.crash_at:
            return TrialRecord(trial, CRASH, "", 1.0, failure=Failure(CRASH, "rank 0: no such kernel"))
        if batch > self.room:
            return TrialRecord(trial, OUT_OF_MEMORY, "", 1.0, failure=Failure(OUT_OF_MEMORY, "rank 0: no memory"))
        rank = RankSample(0, "here", batch, 1.0, (1.0,), host_peak_bytes=batch * 1000)
        return TrialRecord(trial, OK, "", 1.0, ranks=(rank,))

    def find(self, made: Plan, directory: Path, retry_failed: bool = False) -> dict[str, Search]:
        context = RunContext(made, LocalLauncher(), {}, retry_failed=retry_failed)
        return find_batches(context, directory, lambda _: None)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Trials]:
    return lambda room: Trials(monkeypatch, room)


def test_a_search_goes_on_where_it_stopped(trials: Callable[[int], Trials], tmp_path: Path) -> None:
    device, made = trials(100), plan()
    first = device.find(made, tmp_path)
    count = len(device.tried)
    assert device.find(made, tmp_path) == first == read_batches(tmp_path)
    assert len(device.tried) == count
    device, made = trials(100), plan()
    device.find(made, tmp_path / "whole")
    whole, device.tried = device.tried, []
    device.interrupt_at = 2
    with pytest.raises(KeyboardInterrupt):
        device.find(made, tmp_path / "cut")
    assert len(read_batches(tmp_path / "cut")[made.configs[0].key].attempts) == 2
    device.interrupt_at = None
    device.find(made, tmp_path / "cut")
    assert device.tried == whole


def test_another_failure_ends_the_search(trials: Callable[[int], Trials], tmp_path: Path) -> None:
    device = trials(1000)
    device.crash_at = 256
    with pytest.raises(TrainscaleError) as caught:
        device.find(plan(), tmp_path)
    message = str(caught.value)
    assert (
        "torch mnist allreduce: the search for the largest batch ended at 256: crash: rank 0: no such kernel" in message
    )
    assert "batch 128 fits: --max-batch 128" in message
    assert [attempt.batch for attempt in read_batches(tmp_path)[plan().configs[0].key].attempts] == [64, 128]


def test_attempts_are_the_runs_work_on_one_device(trials: Callable[[int], Trials], tmp_path: Path) -> None:
    write_mnist(tmp_path, train=90, valid=30)
    device = trials(100)
    made = plan(data=f"mnist:{tmp_path}", epochs=3, strategies=("ps:2",), precision="bf16")
    device.find(made, tmp_path)
    for trial in device.trials:
        config = trial.config
        assert (trial.devices, config.epochs, config.strategy_label) == (1, 0, "ps:2")
        assert (config.data, config.precision) == ("mnist", "bf16")


def test_the_plan_gets_the_batches_that_were_found_each_once(trials: Callable[[int], Trials], tmp_path: Path) -> None:
    made = plan(models=("mnist", "alexnet:4"), batch=AUTO)
    searches = trials(100).find(made, tmp_path)
    assert [config.batch for config in apply_searches(made, searches).configs] == [100 // 8 * 8, 4]
    assert apply_searches(made, {}) == made
    made = plan(models=("mnist:auto", "mnist:96"), batch=None)
    settled = apply_searches(made, trials(100).find(made, tmp_path))
    assert [config.batch for config in settled.configs] == [96]


def test_what_fits_with_no_batch_is_a_row_for_every_point(trials: Callable[[int], Trials], tmp_path: Path) -> None:
    device, made = trials(0), plan()
    with open_journal(tmp_path / "run", RunInfo({})) as journal:
        for _ in range(2):  # the second time, nothing is searched or recorded again
            settled = batches.settle_batches(RunContext(made, LocalLauncher(), {}), journal, lambda _: None)
            assert settled.plan.configs == ()
            assert [(r.trial.devices, r.status) for r in journal.records] == [(1, "oom"), (2, "oom"), (4, "oom")]
    failure = journal.records[0].failure
    assert failure.message == "not even a batch of 1 fits: rank 0: no memory"
    device.room = 100
    (anew,) = device.find(made, tmp_path / "run", retry_failed=True).values()
    assert anew.largest is not None


def test_a_file_of_a_newer_version_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    write_batches(tmp_path, {})
    document = json.loads((tmp_path / FILE).read_text())
    for content, message in ((json.dumps({**document, "schema": 99}), "newer"), ("{", "cannot be read")):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(InputError, match=message):
            read_batches(tmp_path)


# ---- real trials


def attempt(network: str, batch: int, folder: Path, monkeypatch: pytest.MonkeyPatch, gib: float = 2.0) -> Attempt:
    """One real trial of a worker that may allocate so much."""
    monkeypatch.chdir(SUPPORT)
    experiment = Experiment.of(
        models=(f"nets:{network}",), batch=AUTO, strategies=("local",), image_size=16, classes=10
    )
    made = make_plan(experiment, find_local_devices(read_machine(), experiment))
    share, pythons = gib * GIB / count_available_bytes(), {"torch": python_for("torch")}
    context = RunContext(made, LocalLauncher(), pythons, logs=folder)
    return batches.try_batch(context, Search(made.configs[0], 100, ""), batch, share)


@pytest.mark.alone
@pytest.mark.framework
def test_a_real_worker_beyond_its_limit_is_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = attempt("hungry", 1, tmp_path, monkeypatch)
    assert fits.fits
    assert fits.host_peak_bytes is not None
    fails = attempt("hungry", 4, tmp_path, monkeypatch)
    assert not fails.fits
    assert "can't allocate memory" in fails.message
    assert fails.memory_limit_bytes == pytest.approx(2 * GIB, rel=0.1)  # of what is free, which changes


@pytest.mark.alone
@pytest.mark.framework
def test_a_real_worker_that_aborts_is_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = attempt("aborts", 4, tmp_path, monkeypatch)
    assert not fails.fits
    assert "was ended by SIGABRT with no more than" in fails.message


@pytest.mark.framework
def test_a_real_worker_that_crashes_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainscaleError, match="no kernel for so many images"):
        attempt("crashes", 4, tmp_path, monkeypatch)
