"""Batch sizes by device."""

from __future__ import annotations

import pytest

from trainscale.spec.choices import CPU, GIB, GPUS, choose_defaults
from trainscale.worker import models


@pytest.mark.parametrize(
    ("name", "memory", "inception", "alexnet"),
    [("Tesla K80", 11 * GIB, 32, 512), ("GRID K520", 4 * GIB, 8, 128)],
)
def test_the_defaults_of_the_aws_instances_are_chosen_by_the_name_of_the_device(
    name: str, memory: int, inception: int, alexnet: int
) -> None:
    row = choose_defaults("cuda", name, memory)
    assert (row.choose_batch("inceptionv3"), row.choose_batch("alexnet")) == (inception, alexnet)


@pytest.mark.parametrize(
    ("name", "gib", "row"),
    [
        ("NVIDIA H200", 139, "GPU, 64 GiB and more"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "GPU, 32 GiB and more"),
        ("Tesla T4", 15, "GPU, 14 GiB and more"),
        ("Quadro P400", 2, "GPU, smaller"),
        ("NVIDIA GB10", 0, "GPU, smaller"),  # nvidia-smi does not tell its memory
    ],
)
def test_the_defaults_of_modern_gpus_are_chosen_by_memory(name: str, gib: float, row: str) -> None:
    assert choose_defaults("cuda", name, int(gib * GIB)).device == row


def test_a_cpu_has_its_own_defaults_whatever_its_name() -> None:
    assert choose_defaults("cpu", "K80", 512 * GIB) is CPU


def test_more_memory_never_means_a_smaller_batch() -> None:
    by_memory = sorted((row for row in GPUS if not row.name_parts), key=lambda row: row.least_memory_bytes)
    for name in models.list_names():
        batches = [row.choose_batch(name) for row in by_memory]
        assert batches == sorted(batches), name


def test_the_defaults_name_only_models_that_exist() -> None:
    named = {name for row in (*GPUS, CPU) for name in row.batches}
    assert named <= set(models.list_names())
