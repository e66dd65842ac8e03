"""Made-up records: as small as a test wants them, with steps that add up to their windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainscale.record.run import RunInfo
from trainscale.record.trial import OK, OUT_OF_MEMORY, Epoch, Failure, MachineLoad, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial

# MXNet's README, 16 × p2.16xlarge, dist_device_sync: images/s of the whole cluster (facts/originals.md, 10).
MXNET_LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MXNET = {
    ("alexnet", 512): (457.07, 870.43, 1514.8, 2852.5, 4244.18, 7945.57, 15840.52, 31334.88, 61938.36),
    ("inceptionv3", 32): (30.4, 59.61, 117.9, 233.39, 447.61, 882.57, 1761.24, 3416.2, 6660.98),
    ("resnet152", 32): (20.08, 38.76, 77.01, 153.07, 298.03, 595.53, 1179.86, 2333.47, 4630.42),
}


def make_config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "framework": "torch",
        "model": "alexnet",
        "batch": 32,
        "strategy": "allreduce",
        "image_size": 224,
        "classes": 1000,
    }
    return Config(**{**values, **changes})


def make_rank(rank: int, step_seconds: Sequence[float], samples_per_step: int, **changes: Any) -> RankSample:
    """A rank whose window is exactly the sum of its steps."""
    sample = RankSample(
        rank=rank,
        host="localhost",
        samples=samples_per_step * len(step_seconds),
        window_seconds=sum(step_seconds),
        step_seconds=tuple(step_seconds),
        startup_seconds=2.5,
        first_step_seconds=0.4,
        first_loss=6.9,
        last_loss=6.5,
        weights_digest="same",
        host_peak_bytes=600 * 1024**2,
        cpu_seconds=1.0,
    )
    return replace(sample, **changes)


def make_record(
    config: Config | None = None,
    devices: int = 1,
    repeat: int = 0,
    ranks: Sequence[RankSample] | None = None,
    **changes: Any,
) -> TrialRecord:
    """A good trial; without ``ranks``, ten steps of 0.1 s on every device."""
    config = config or make_config()
    if ranks is None:
        ranks = [make_rank(rank, [0.1] * 10, config.batch_per_device(devices)) for rank in range(devices)]
    record = TrialRecord(
        trial=Trial(config, devices, repeat),
        status=OK,
        started="2026-01-02T03:04:05+00:00",
        seconds=12.0,
        warmup=2,
        steps=len(ranks[0].step_seconds) if ranks else 0,
        ranks=tuple(ranks),
        versions={"torch": "2.9.1", "python": "3.11.9"},
        parameters=61_100_840,
        machine=MachineLoad(other_cores=0.01),
    )
    return replace(record, **changes)


def record_at(
    samples_per_second: float, config: Config | None = None, devices: int = 1, repeat: int = 0, **changes: Any
) -> TrialRecord:
    """A good trial of a given cluster-wide speed."""
    config = config or make_config()
    batch = config.batch_per_device(devices)
    step = batch * devices / samples_per_second
    ranks = [make_rank(rank, [step * factor for factor in (0.98, 1.0, 1.02)], batch) for rank in range(devices)]
    return make_record(config, devices, repeat, ranks, **changes)


def learning_config(**changes: Any) -> Config:
    """inception-bn-28-small on CIFAR-10, as MXNet's example trained it."""
    values: dict[str, Any] = {
        "model": "inception-bn-28-small",
        "batch": 128,
        "image_size": 28,
        "classes": 10,
        "data": "cifar10",
        "epochs": 4,
        "learning_rate": 0.1,
        "schedule": "cosine",
    }
    return make_config(**{**values, **changes})


def make_epoch(number: int, seconds: float, train: float, valid: float, samples: int = 49_920, **changes: Any) -> Epoch:
    epoch = Epoch(number, seconds, samples, 1 - train, train, 1 - valid, valid, 10_000, 0.0, seconds / 10)
    return replace(epoch, **changes)


def learning_record(
    config: Config | None = None,
    devices: int = 1,
    repeat: int = 0,
    valid: Sequence[float] = (0.5, 0.7, 0.8, 0.82),
    seconds: float = 40.0,
    overhead: float = 0.02,
    waiting: float = 0.0,
    **changes: Any,
) -> TrialRecord:
    """A trial of as many epochs as there are validation accuracies, ``seconds`` each, with a resident window that makes
    the input overhead what is asked for. Training accuracies are 0.05 above; the first step takes 2 s.
    """
    config = config or learning_config(epochs=len(valid))
    epochs = [make_epoch(number, seconds, min(1.0, share + 0.05), share) for number, share in enumerate(valid, 1)]
    batch, steps = config.batch_per_device(devices), 10 * len(valid)
    window = seconds * len(valid)
    ranks = [
        make_rank(
            rank,
            [window / steps] * steps,
            batch,
            first_step_seconds=2.0,
            waited_seconds=waiting * window,
            resident_steps=20,
            resident_seconds=20 * window / steps * (1 - overhead),
        )
        for rank in range(devices)
    ]
    return make_record(config, devices, repeat, ranks, warmup=1, epochs=tuple(epochs), **changes)


def failed_record(
    config: Config | None = None,
    devices: int = 1,
    repeat: int = 0,
    kind: str = OUT_OF_MEMORY,
    message: str = "CUDA out of memory. Tried to allocate 2.00 GiB",
    tail: Sequence[str] = ("step 3", "RuntimeError: CUDA out of memory"),
) -> TrialRecord:
    failure = Failure(kind, message, rank=0, tail=tuple(tail))
    return make_record(config, devices, repeat, ranks=(), status="failed", failure=failure, versions={})


def curve(
    config: Config, speeds: Mapping[int, float | None], repeats: int = 1, spread: float = 0.0
) -> list[TrialRecord]:
    """A series' records, interleaved as a run makes them.

    A speed of None is a point that fails; ``spread`` is the relative distance between neighbouring repeats.
    """
    records = []
    for repeat in range(repeats):
        for devices, speed in speeds.items():
            if speed is None:
                records.append(failed_record(config, devices, repeat))
            else:
                offset = 1 + spread * (repeat - (repeats - 1) / 2)
                records.append(record_at(speed * offset, config, devices, repeat))
    return records


def mxnet_records() -> list[TrialRecord]:
    """The published MXNet curves, replayed as records."""
    records = []
    for (model, batch), speeds in MXNET.items():
        config = make_config(framework="mxnet", model=model, batch=batch, strategy="ps", servers=16, device="cuda")
        records += curve(config, dict(zip(MXNET_LADDER, speeds, strict=True)))
    return records


def make_run(**provenance: Any) -> RunInfo:
    return RunInfo(
        spec={"models": ["alexnet"], "ladder": [1, 2]},
        provenance={
            "date": "2026-01-02T03:04:05+00:00",
            "command": "trainscale run --models alexnet:32",
            "machine": {"cpu": "A CPU", "cores": 2, "memory_bytes": 8 * 1024**3, "gpus": []},
            "versions": {"trainscale": "0.1.0", "python": "3.11.9"},
            **provenance,
        },
    )
