"""The tidy table has one row for each trial. This file is the one place that defines its columns: name, type, unit and
meaning. Files, frames and docs/export.md are made from it; rows.py computes the values.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import get_args, get_type_hints

from ..analyse.columns import column


@dataclass(frozen=True)
class TableColumn:
    """``kind`` is str, int, float or bool. An optional column may have no value in a row."""

    name: str
    kind: type
    unit: str
    meaning: str
    is_optional: bool


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial, good or failed: one config on one device count, once, in fresh processes."""

    run: str = column("name of the run's directory")
    trial: str = column("key of the trial, unique within the run")
    series: str = column("title of the series, unique within the run")
    started: str = column("when the trial began, UTC")
    status: str = column("ok, or why there is no result")
    reason: str | None = column("the first line of the failure's message")
    flags: str = column("what the checks of its point found, joined by semicolons")

    framework: str = column("framework")
    model: str = column("network")
    strategy: str = column("how gradients are exchanged")
    servers: int = column("parameter servers; -1: the same number on every host with workers")
    server_placement: str = column("servers beside the workers or apart from them")
    servers_per_host: int = column("servers on each host; 0: spread")
    scaling: str = column("weak: the batch per device is fixed; strong: the global batch is")
    batch_per_device: int = column("samples of a step on each device", "samples")
    global_batch: int = column("samples of a step on all devices", "samples")
    precision: str = column("number format of the arithmetic")
    layout: str = column("order of the dimensions of images")
    compile: bool = column("whether the framework compiled the network")
    data: str = column("source of the samples")
    augment: bool = column("whether training images were randomly changed")
    loaders: int = column("loader processes of each rank; 0: chosen")
    image_size: int = column("height and width of an image", "pixels")
    channels: int = column("channels of an image")
    classes: int = column("classes of the labels")
    device: str = column("cpu or cuda")
    cores_per_device: int = column("cores of a CPU slot")
    ranks_per_gpu: int = column("workers that share a GPU")
    placement: str = column("how workers fill the hosts")
    deterministic: bool = column("whether deterministic operations were requested")
    allocator: str = column("setting of the C library's memory allocator")
    epochs: int = column("epochs to train; 0: speed is measured in steps")
    until_accuracy: float | None = column("validation accuracy at which training stops", "share")
    learning_rate: float = column("learning rate at the start")
    momentum: float = column("momentum of the optimizer")
    weight_decay: float = column("weight decay of the optimizer")
    schedule: str = column("how the learning rate changes")
    warmup_epochs: float = column("epochs in which the learning rate rises", "epochs")

    devices: int = column("workers")
    hosts: int = column("machines")
    repeat: int = column("number of the repeat, from 0")
    short: bool = column("whether it is a short trial of a search")
    warmup: int = column("steps before the window")
    steps: int = column("steps in the window")
    unit: str = column("what the network calls a sample")
    samples: int | None = column("samples that all ranks trained on in the window", "samples")
    parameters: int | None = column("trainable values of the network")

    compilation: str | None = column("cold: programs were compiled; warm: a cache had them; none: there were none")

    seconds: float = column("the whole trial, from the start of its processes to their end", "s")
    window_seconds: float | None = column("the longest window of a rank", "s")
    step_seconds: float | None = column("median step; a synchronous one lasts as long as its slowest rank", "s")
    startup_seconds: float | None = column("from the start of the slowest process to its first step", "s")
    first_step_seconds: float | None = column("the first step of the slowest rank", "s")
    training_seconds: float | None = column("all epochs and the first step, without validation", "s")

    samples_per_second: float | None = column("throughput of the whole cluster", "samples/s")
    samples_per_second_per_device: float | None = column("throughput divided by devices", "samples/s")
    jitter: float | None = column("robust standard deviation of the throughput from step to step", "samples/s")
    input_overhead: float | None = column("throughput that reading and preparing samples cost", "share")
    waiting_share: float | None = column("part of the window in which no samples were ready", "share")
    energy_joules_per_sample: float | None = column("energy of a sample, of all GPUs or of all processors", "J")
    train_accuracy: float | None = column("accuracy of the last epoch on training samples", "share")
    valid_accuracy: float | None = column("accuracy after the last epoch on validation samples", "share")

    device_peak_bytes: int | None = column("memory by the framework's allocator, largest over ranks", "bytes")
    device_peak_bytes_sum: int | None = column("the same, sum over ranks", "bytes")
    nvml_peak_bytes: int | None = column("memory by the GPUs' driver, largest over ranks", "bytes")
    nvml_peak_bytes_sum: int | None = column("the same, sum over ranks", "bytes")
    host_peak_bytes: int | None = column("memory of the process on its host, largest over ranks", "bytes")
    host_peak_bytes_sum: int | None = column("the same, sum over ranks", "bytes")
    loaders_peak_bytes: int | None = column("memory of a rank's loader processes, largest over ranks", "bytes")

    gpu_watts: float | None = column("mean power of the GPUs in the window, sum over ranks", "W")
    gpu_celsius_max: int | None = column("highest temperature of a GPU in the window", "°C")
    gpu_limited_share: float | None = column("part of the window in which a GPU's clock was limited, largest", "share")

    parity: str | None = column("whether the framework trains the same network as the others")
    witness: str | None = column("whether the trial did its work")
    other_cores: float | None = column("cores that other programs used during the trial", "cores")
    cpu_pressure: float | None = column("part of the trial in which a process waited for a core", "share")

    cpu: str | None = column("processor of the machine")
    cores: int | None = column("cores of the machine")
    memory_gib: float | None = column("memory of the machine", "GiB")
    gpus: int | None = column("GPUs of the machine")
    gpu: str | None = column("name of its first GPU")
    gpu_driver: str | None = column("version of the GPUs' driver")
    system: str | None = column("operating system")
    framework_version: str | None = column("version of the framework")
    versions: str = column("all versions that rank 0 reported, name and version")
    trainscale_version: str | None = column("version of trainscale")
    trainscale_commit: str | None = column("commit of trainscale, if it ran from a checkout")
    run_date: str | None = column("when the run began, UTC")
    command: str | None = column("command that began the run")


def _collect_columns() -> tuple[TableColumn, ...]:
    hints = get_type_hints(TrialRow)
    declared = []
    for item in fields(TrialRow):
        kinds = [kind for kind in get_args(hints[item.name]) or (hints[item.name],) if kind is not type(None)]
        optional = len(get_args(hints[item.name])) > 1
        declared.append(TableColumn(item.name, kinds[0], item.metadata["unit"], item.metadata["meaning"], optional))
    return tuple(declared)


COLUMNS = _collect_columns()
