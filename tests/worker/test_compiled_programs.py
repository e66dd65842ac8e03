"""Where ranks keep compiled programs, and which variables tell frameworks."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import make_config, make_job

from trainscale.worker.compiled_programs import COLD, NONE, WARM, choose_compiler_folder, describe_state, open_cache
from trainscale.worker.frameworks.jax.environment import environment as jax_environment
from trainscale.worker.frameworks.keras.environment import environment as keras_environment
from trainscale.worker.frameworks.tensorflow.environment import environment as tensorflow_environment
from trainscale.worker.frameworks.torch.environment import environment as torch_environment
from trainscale.worker.job import Job


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, where nothing names another."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TF_XLA_FLAGS", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trainscale" / "compiled"


def job_of(framework: str, compiled: bool = False, **values: object) -> Job:
    return make_job(config=make_config(framework=framework, compile=compiled), **values)


def test_a_rank_that_compiles_has_the_users_cache_folder(user_cache: Path) -> None:
    with open_cache(job_of("jax")) as job:
        assert job.compiled_folder == str(user_cache)
    assert user_cache.is_dir()


def test_a_rank_that_compiles_nothing_has_no_folder(user_cache: Path) -> None:
    for job in (job_of("torch"), job_of("mxnet"), job_of("torch", compiled=True, role="server")):
        with open_cache(job) as same:
            assert same == job
    assert not user_cache.exists()


def test_without_a_cache_the_folder_is_empty_and_removed_even_after_an_error(user_cache: Path) -> None:
    folders = []

    def fail() -> None:
        with open_cache(job_of("jax", keeps_compiled=False)) as job:
            folders.append(Path(job.compiled_folder))
            assert list(folders[0].iterdir()) == []
            (folders[0] / "program").touch()
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert not folders[0].exists()
    assert not user_cache.exists()


def test_a_folder_that_cannot_be_made_is_no_failure(user_cache: Path) -> None:
    user_cache.parent.parent.write_text("a file where a folder should be")
    with open_cache(job_of("jax")) as job:
        assert job.compiled_folder == ""
        assert "JAX_COMPILATION_CACHE_DIR" not in jax_environment("jax", job)


def test_every_framework_is_told_its_own_folder(user_cache: Path) -> None:
    with open_cache(job_of("jax")) as job:
        variables = jax_environment("jax", job)
        assert variables["JAX_COMPILATION_CACHE_DIR"] == f"{user_cache}/jax"
        assert variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
        assert keras_environment("keras-jax", job)["JAX_COMPILATION_CACHE_DIR"] == f"{user_cache}/jax"
    with open_cache(job_of("tensorflow", compiled=True)) as job:
        flag = f"--tf_xla_persistent_cache_directory={user_cache}/tensorflow"
        assert tensorflow_environment("tensorflow", job)["TF_XLA_FLAGS"] == flag
    with open_cache(job_of("torch", compiled=True)) as job:
        assert torch_environment("torch", job) == {"TORCHINDUCTOR_CACHE_DIR": f"{user_cache}/torch"}
    assert torch_environment("torch", None) == {}


def test_a_folder_that_the_user_named_stays_unless_nothing_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    monkeypatch.setenv("TF_XLA_FLAGS", "--other --tf_xla_persistent_cache_directory=/mine")
    with open_cache(job_of("jax")) as job:
        assert "JAX_COMPILATION_CACHE_DIR" not in jax_environment("jax", job)
    with open_cache(job_of("tensorflow", compiled=True)) as job:
        assert "TF_XLA_FLAGS" not in tensorflow_environment("tensorflow", job)
    with open_cache(job_of("jax", keeps_compiled=False)) as job:
        assert jax_environment("jax", job)["JAX_COMPILATION_CACHE_DIR"] == choose_compiler_folder(job, "jax")
    with open_cache(job_of("tensorflow", compiled=True, keeps_compiled=False)) as job:
        assert tensorflow_environment("tensorflow", job)["TF_XLA_FLAGS"].endswith(f"={job.compiled_folder}/tensorflow")
    with open_cache(job_of("torch", compiled=True, keeps_compiled=False)) as job:
        assert torch_environment("torch", job)["TRITON_CACHE_DIR"].startswith(job.compiled_folder)


@pytest.mark.parametrize(("needed", "cached", "state"), [(0, 0, NONE), (3, 3, WARM), (3, 2, COLD), (1, 0, COLD)])
def test_a_single_program_that_was_compiled_makes_a_rank_cold(needed: int, cached: int, state: str) -> None:
    assert describe_state(needed, cached) == state
