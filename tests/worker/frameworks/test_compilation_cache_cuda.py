"""Programs that are compiled for a real NVIDIA GPU in one trial and read in the next."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from trials import run_trial

from trainscale.worker.inspection.host import read_machine
from trainscale.worker.sample import COLD, WARM

GPUS = len(read_machine().gpus) if shutil.which("nvidia-smi") else 0
pytestmark = [pytest.mark.framework, pytest.mark.skipif(GPUS == 0, reason="there is no NVIDIA GPU here")]


@pytest.mark.parametrize(("framework", "compiled"), [("torch", True), ("jax", False)])
def test_the_second_trial_reads_what_the_first_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, compiled: bool
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"this Python has no {framework}")
    for name in ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    states, seconds = [], []
    for number, cache in enumerate((True, True, False)):
        record = run_trial(
            tmp_path / str(number),
            framework=framework,
            strategies=("local",),
            models=("resnet50:32",),
            image_size=224,
            classes=1000,
            device="cuda",
            compile=compiled,
            cache=cache,
            timeout_seconds=400.0,
            stall_seconds=300.0,
        ).record
        assert record.ok, record.failure
        states.append(record.compilation)
        seconds.append(max(rank.first_step_seconds for rank in record.ranks))
    print(framework, states, seconds)
    assert states == [COLD, WARM, COLD]
