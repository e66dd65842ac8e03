"""Batch sizes by device."""

from __future__ import annotations

import pytest

from trainscale.spec.defaults import CPU, GIB, TABLE, batch_for, row_for
from trainscale.worker import models


@pytest.mark.parametrize(
    ("name", "memory", "inception", "alexnet"),
    [("Tesla K80", 11 * GIB, 32, 512), ("GRID K520", 4 * GIB, 8, 128)],
)
def test_the_seeds_rows_are_chosen_by_the_devices_name(name: str, memory: int, inception: int, alexnet: int) -> None:
    row = row_for("cuda", name, memory)
    assert (batch_for("inceptionv3", row), batch_for("alexnet", row)) == (inception, alexnet)


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
def test_modern_gpus_go_by_memory(name: str, gib: float, row: str) -> None:
    assert row_for("cuda", name, int(gib * GIB)).device == row


def test_a_cpu_has_its_own_row_whatever_its_name() -> None:
    assert row_for("cpu", "K80", 512 * GIB) is CPU


def test_more_memory_never_means_a_smaller_batch() -> None:
    by_memory = sorted((row for row in TABLE if not row.matches), key=lambda row: row.least_memory_bytes)
    for name in models.names():
        batches = [batch_for(name, row) for row in by_memory]
        assert batches == sorted(batches), name


def test_the_table_names_only_models_that_exist() -> None:
    named = {name for row in (*TABLE, CPU) for name in row.batches}
    assert named <= set(models.names())
