"""One GPU of those that a process may see."""

from __future__ import annotations

import pytest

from trainscale.worker.pinning import find_visible_gpu


@pytest.mark.parametrize(
    ("shown", "index", "name"), [("", 2, "2"), ("3,5", 1, "5"), ("GPU-a, GPU-b", 1, "GPU-b"), ("7", 0, "7")]
)
def test_an_index_counts_among_the_gpus_that_are_shown(
    shown: str, index: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert find_visible_gpu(index) == name


def test_a_gpu_that_is_not_shown_is_an_error_not_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with pytest.raises(ValueError, match="GPU 2 is not among CUDA_VISIBLE_DEVICES=3,5"):
        find_visible_gpu(2)
