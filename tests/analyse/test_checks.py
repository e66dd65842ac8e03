"""Each sanity check fires on what it is for, and stays silent on a clean point."""

from dataclasses import replace

import pytest
from factories import (
    curve,
    failed_record,
    learning_config,
    learning_record,
    make_config,
    make_rank,
    make_record,
    record_at,
)

from trainscale.analyse.series import build_series
from trainscale.record.trial import MachineLoad, TrialRecord


def flags(records: list[TrialRecord], devices: int = 1) -> str:
    """All flags of the point at a device count, in one text. Three repeats hide the flag for one."""
    (series,) = build_series(records)
    return "\n".join(next(point.flags for point in series.points if point.devices == devices))


def repeats(record: TrialRecord) -> list[TrialRecord]:
    return [replace(record, trial=replace(record.trial, repeat=repeat)) for repeat in range(3)]


def test_a_clean_point_has_no_flags() -> None:
    records = curve(make_config(), {1: 100.0, 2: 190.0}, repeats=5, spread=0.002)
    assert flags(records, 1) == flags(records, 2) == ""


RANK = make_rank(0, [0.1] * 10, 32)
TARGET = learning_config(until_accuracy=0.9)
LEARNT = learning_record()
NOT_FINITE = replace(LEARNT, epochs=(*LEARNT.epochs[:-1], replace(LEARNT.epochs[-1], valid_loss=None)))
DIGESTS = [make_rank(rank, [0.1] * 10, 32, weights_digest=f"digest {rank}") for rank in range(2)]


@pytest.mark.parametrize(
    ("records", "devices", "flag"),
    [
        (repeats(make_record(ranks=[replace(RANK, window_seconds=1 / 0.9)])), 1, "90\u202f% of the measured window"),
        (
            repeats(make_record(devices=4, ranks=[make_rank(rank, [0.1] * 10, 32) for rank in range(3)])),
            4,
            "3 workers reported where 4 were asked for",
        ),
        (
            repeats(make_record(make_config(scaling="strong", batch=32), devices=3)),
            3,
            "30 images were trained per step, not the global batch of 32",
        ),
        (curve(make_config(), {1: 100.0, 2: 230.0}, repeats=5, spread=0.002), 2, "115\u202f% is above 100\u202f%"),
        (curve(make_config(), {1: 100.0, 2: 206.0}), 2, "above"),
        (repeats(make_record(devices=2, ranks=DIGESTS)), 2, "2 different sets of weights"),
        (repeats(make_record(ranks=[make_rank(0, [0.1] * 10, 32, last_loss=None)])), 1, "loss is not finite"),
        (
            repeats(make_record(machine=MachineLoad(other_cores=0.73))),
            1,
            "busy with something else: up to 0.7 cores in 3 of 3 repeats",
        ),
        (curve(make_config(), {1: 100.0}, repeats=3, spread=0.05), 1, "wider than ±5\u202f%"),
        ([record_at(100.0)], 1, "measured once only"),
        (
            [record_at(100.0, repeat=0), record_at(100.1, repeat=1), failed_record(repeat=2)],
            1,
            "1 of 3 repeats failed, the last with oom: CUDA out of memory",
        ),
        (repeats(make_record(notes=("rank 0 lost\x1b[31m 2 lines",))), 1, "rank 0 lost 2 lines"),
        (
            repeats(learning_record(overhead=0.2, waiting=0.18)),
            1,
            "input-bound: it waits for images 18\u202f% of the time, 20\u202f% slower than on images that stay on the"
            " device; more --loaders",
        ),
        (repeats(learning_record(waiting=0.06)), 1, "waits for images 6\u202f% of the time; more"),
        (
            repeats(learning_record(overhead=0.08)),
            1,
            "8\u202f% slower than on images that stay on the device, though images are ready in time",
        ),
        (repeats(learning_record(overhead=0.08)), 1, "--no-augment"),
        ([learning_record(overhead=0.12)], 1, "input-bound"),
        (repeats(learning_record(valid=(0.1, 0.104))), 1, "has not learnt: a validation accuracy of 0.104"),
        (
            [learning_record(TARGET, valid=(0.91,)), learning_record(TARGET, repeat=1, valid=(0.5, 0.89))],
            1,
            "accuracy of 0.9 was not reached in 1 of 2 repeats",
        ),
        (repeats(NOT_FINITE), 1, "loss is not finite"),
    ],
    ids=[
        "step times", "a world of the wrong size", "a global batch", "above its interval", "above without an interval",
        "weights that differ", "a loss that is not finite",
        "a busy machine", "a wide interval", "a single repeat", "failed repeats",
        "notes, once and printable",
        "waiting and slower", "waiting alone", "slower", "what helps then", "one repeat", "guesses",
        "an accuracy that was not reached", "a loss of an epoch",
    ],
)  # fmt: skip
def test_a_check_fires_on(records: list[TrialRecord], devices: int, flag: str) -> None:
    assert flag in flags(records, devices)


@pytest.mark.parametrize(
    ("records", "devices", "flag"),
    [
        (curve(make_config(), {1: 100.0, 2: 200.5}, repeats=5, spread=0.01), 2, "above"),
        (curve(make_config(), {1: 100.0, 2: 203.0}), 2, "above"),
        (repeats(make_record(make_config(strategy="independent"), devices=2, ranks=DIGESTS)), 2, ""),
        (repeats(make_record(machine=MachineLoad(other_cores=0.15))), 1, ""),
        (repeats(make_record(machine=MachineLoad())), 1, ""),
        ([failed_record()], 1, ""),
        (repeats(make_record(ranks=[replace(RANK, window_seconds=1.04)])), 1, ""),
        (repeats(LEARNT), 1, ""),
        (repeats(learning_record(overhead=0.04)), 1, "input-bound"),
        ([learning_record(overhead=0.08)], 1, "input-bound"),
        ([learning_record(repeat=n, overhead=share) for n, share in enumerate((-0.3, 0.1, 0.4))], 1, "input-bound"),
        (repeats(learning_record(valid=(0.1, 0.12))), 1, "has not learnt"),
    ],
    ids=["chance", "chance in one repeat", "weights of independent ranks", "a quiet machine", "load", "no result",
         "a window", "a clean training", "a small overhead", "one repeat", "an uncertain overhead", "learning"],
)  # fmt: skip
def test_a_check_stays_silent_on(records: list[TrialRecord], devices: int, flag: str) -> None:
    text = flags(records, devices)
    assert flag not in text if flag else text == ""
