"""Programs that real frameworks compile in one trial and read in the next, in processes of their own."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
from trials import TrialOutcome, run_trial

from trainscale.worker.sample import COLD, NONE, WARM

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TF_XLA_FLAGS", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trainscale" / "compiled"


def train(folder: Path, framework: str, strategy: str = "local", **settings: object) -> TrialOutcome:
    options: Any = {"models": ("plain-graph:8",), "timeout_seconds": 280.0, "stall_seconds": 200.0, **settings}
    outcome = run_trial(folder, framework=framework, strategies=(strategy,), **options)
    assert outcome.record.ok, outcome.record.failure
    return outcome


def digests(outcome: TrialOutcome) -> set[str | None]:
    return {rank.weights_digest for rank in outcome.record.ranks}


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


COMPILED = {"compile": True}


@pytest.mark.parametrize(
    ("framework", "strategy", "settings"),
    [
        ("jax", "local", {}),
        ("jax", "allreduce", {"devices": 2}),
        ("keras-jax", "local", {}),
        ("tensorflow", "local", COMPILED),
        slow("keras-tensorflow", "local", COMPILED),
        slow("torch", "local", COMPILED),
        slow("jax", "sharded", {"devices": 2}),
        slow("keras-jax", "allreduce", {"devices": 2}),
        slow("tensorflow", "allreduce", {**COMPILED, "devices": 2}),
        slow("torch", "allreduce", {**COMPILED, "devices": 2}),
    ],
)
def test_the_second_trial_reads_what_the_first_compiled_and_computes_the_same(
    tmp_path: Path, user_cache: Path, framework: str, strategy: str, settings: dict[str, object]
) -> None:
    first = train(tmp_path / "first", framework, strategy, **settings)
    files = {path for path in user_cache.rglob("*") if path.is_file()}
    second = train(tmp_path / "second", framework, strategy, **settings)
    assert [first.record.compilation, second.record.compilation] == [COLD, WARM]
    assert {rank.compilation for rank in second.record.ranks} == {WARM}
    assert digests(first) == digests(second)
    assert files
    assert not [path for path in files if path.name.startswith(".") and path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("framework", "settings"), [("jax", {}), slow("tensorflow", COMPILED), slow("torch", COMPILED)]
)
def test_without_a_cache_every_trial_compiles(
    tmp_path: Path, user_cache: Path, framework: str, settings: dict[str, object]
) -> None:
    trials = [train(tmp_path / str(number), framework, cache=False, **settings) for number in range(2)]
    assert [trial.record.compilation for trial in trials] == [COLD, COLD]
    assert not user_cache.exists()


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_what_compiles_nothing_says_so(tmp_path: Path, framework: str) -> None:
    assert train(tmp_path, framework).record.compilation == NONE


def test_ranks_that_write_at_once_and_a_damaged_file_do_no_harm(tmp_path: Path, user_cache: Path) -> None:
    """Both ranks of ``independent`` compile the same programs, with the same keys, at the same time."""
    settings = {"strategy": "independent", "devices": 2}
    assert train(tmp_path / "first", "jax", **settings).record.compilation == COLD
    largest = max((user_cache / "jax").glob("*-cache"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    assert train(tmp_path / "damaged", "jax", **settings).record.compilation == COLD
    assert train(tmp_path / "again", "jax", **settings).record.compilation == WARM


@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize(("framework", "compiled"), [("torch", True), ("jax", False)])
def test_on_a_gpu_the_second_trial_reads_what_the_first_compiled(
    tmp_path: Path, framework: str, compiled: bool
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"this Python has no {framework}")
    sizes = {"models": ("resnet50:32",), "image_size": 224, "classes": 1000}
    states, seconds = [], []
    for number, cache in enumerate((True, True, False)):
        settings = {**sizes, "device": "cuda", "compile": compiled, "cache": cache, "timeout_seconds": 400.0}
        record = train(tmp_path / str(number), framework, stall_seconds=300.0, **settings).record
        states.append(record.compilation)
        seconds.append(max(rank.first_step_seconds for rank in record.ranks))
    print(framework, states, seconds)
    assert states == [COLD, WARM, COLD]
