"""What frameworks read from the environment when they are imported: memory, threads, GPUs, roles, the network, and the
place of compiled programs.
"""

import os
from pathlib import Path

import pytest
from jobs import make_config, make_job

from trainscale.worker.frameworks.environments import (
    choose_compiler_folder,
    make_jax_variables,
    make_keras_variables,
    make_mxnet_variables,
    make_network_variables,
    make_tensorflow_variables,
    make_torch_variables,
    open_cache,
)
from trainscale.worker.job import SCHEDULER, SERVER, WORKER, Device, Job
from trainscale.worker.sample import COLD, NONE, WARM, describe_compilation

GPU = Device("cuda", 0)
NAMED_BY_USERS = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TF_XLA_FLAGS", "TRITON_CACHE_DIR")
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
HOSTS = ("10.0.0.1", "10.0.0.1", "10.0.0.2")


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, in an environment that names nothing else."""
    for name in (*NAMED_BY_USERS, *PROXIES, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trainscale" / "compiled"


# ---- memory, threads and GPUs


@pytest.mark.parametrize("job", [make_job(device=GPU), make_job("ps", device=GPU), None], ids=["local", "ps", "probe"])
@pytest.mark.parametrize("framework", ["tensorflow", "jax", "keras-tensorflow", "keras-jax", "keras-torch"])
def test_memory_of_a_gpu_is_taken_as_it_is_needed(framework: str, job: Job | None) -> None:
    make = {"tensorflow": make_tensorflow_variables, "jax": make_jax_variables}.get(framework, make_keras_variables)
    variables = make(framework, job)
    if framework != "jax":  # Keras may import TensorFlow, whatever its backend
        assert variables["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    if framework.endswith("jax"):
        assert variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@pytest.mark.parametrize(("cores", "threads"), [((2, 3, 5), "3"), ((), None)])
def test_threads_are_as_many_as_the_cores_of_the_rank(cores: tuple[int, ...], threads: str | None) -> None:
    """Without cores of its own a rank leaves them to the framework."""
    job = make_job(device=Device("cpu", 0, cores))
    assert make_tensorflow_variables("tensorflow", job).get("TF_NUM_INTRAOP_THREADS") == threads
    assert make_mxnet_variables("mxnet", job).get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(("given", "seen"), [(None, "1"), ("", "1"), ("4,7", "7"), ("GPU-aa, GPU-bb", "GPU-bb")])
@pytest.mark.parametrize("make", [make_tensorflow_variables, make_mxnet_variables, make_jax_variables])
def test_a_rank_sees_its_own_gpu_among_those_it_was_given(
    monkeypatch: pytest.MonkeyPatch, make: object, given: str | None, seen: str
) -> None:
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert callable(make)
    assert make("", make_job(device=Device("cuda", 1)))["CUDA_VISIBLE_DEVICES"] == seen


def test_a_gpu_that_was_not_given_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with pytest.raises(ValueError, match="GPU 1 is not among CUDA_VISIBLE_DEVICES=4"):
        make_tensorflow_variables("tensorflow", make_job(device=Device("cuda", 1)))


@pytest.mark.parametrize(("kind", "role"), [("cpu", "worker"), ("cuda", "server")])
def test_a_tensorflow_process_that_computes_on_cores_sees_no_gpu(kind: str, role: str) -> None:
    job = make_job("ps", role=role, device=Device(kind))
    assert make_tensorflow_variables("tensorflow", job)["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_probe_of_tensorflow_changes_nothing_but_its_messages_and_memory() -> None:
    expected = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert make_tensorflow_variables("tensorflow", None) == expected


# ---- the network


DIRECTLY = {"no_grpc_proxy": "10.0.0.1,10.0.0.2"}


@pytest.mark.parametrize(
    ("interface", "environment", "variables"),
    [
        # NCCL would take eth10 for eth1 without the sign. test_frameworks_over_hosts.py tests the effect.
        ("eth1", {}, {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}),
        (None, {}, {}),
        (None, {"http_proxy": ""}, {}),
        *((None, {name: "http://proxy.example:3128"}, DIRECTLY) for name in PROXIES),
    ],
)
def test_libraries_are_told_the_interface_and_to_call_peers_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, interface: str | None, environment: dict[str, str], variables: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    job = make_job("allreduce", workers=3, addresses=HOSTS, interface=interface)
    assert make_network_variables(job) == variables


# ---- MXNet's cluster


def make_cluster_job(strategy: str, role: str = WORKER, rank: int = 0) -> Job:
    addresses, ports = tuple(f"10.0.0.{number}" for number in (1, 2, 3, 4)), (1001, 1002, 1003, 1004)
    return make_job(
        strategy, role=role, rank=rank, workers=2, servers=1, addresses=addresses, ports=ports, interface="lo"
    )


@pytest.mark.parametrize("strategy", ["local", "independent"])
def test_mxnet_without_servers_knows_no_cluster(strategy: str) -> None:
    variables = make_mxnet_variables("mxnet", make_cluster_job(strategy))
    assert not [name for name in variables if name.startswith("DMLC")]


def test_a_role_that_the_user_left_in_the_environment_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even an empty one makes MXNet wait for a cluster when it is imported."""
    monkeypatch.setenv("DMLC_ROLE", "")
    make_mxnet_variables("mxnet", None)
    assert "DMLC_ROLE" not in os.environ


@pytest.mark.parametrize(("role", "rank"), [(WORKER, 1), (SERVER, 2), (SCHEDULER, 3)])
@pytest.mark.parametrize("strategy", ["ps", "ps-async"])
def test_every_process_of_mxnets_cluster_knows_its_role_and_the_scheduler(strategy: str, role: str, rank: int) -> None:
    variables = make_mxnet_variables("mxnet", make_cluster_job(strategy, role, rank))
    assert variables["DMLC_ROLE"] == role
    assert (variables["DMLC_PS_ROOT_URI"], variables["DMLC_PS_ROOT_PORT"]) == ("10.0.0.4", "1004")
    assert (variables["DMLC_NUM_WORKER"], variables["DMLC_NUM_SERVER"]) == ("2", "1")
    assert (variables["DMLC_INTERFACE"], variables["DMLC_NODE_HOST"]) == ("lo", f"10.0.0.{rank + 1}")
    assert variables["PORT"] == str(1001 + rank)


# ---- compiled programs


def job_of(framework: str, compiled: bool = False, **values: object) -> Job:
    return make_job(config=make_config(framework=framework, compile=compiled), **values)


def test_a_rank_that_compiles_has_the_users_cache_folder_and_no_other_rank(user_cache: Path) -> None:
    for job in (job_of("torch"), job_of("mxnet"), job_of("torch", compiled=True, role="server")):
        with open_cache(job) as same:
            assert same == job
    assert not user_cache.exists()
    with open_cache(job_of("jax")) as job:
        assert job.compiled_folder == str(user_cache)
    assert user_cache.is_dir()


def test_without_a_cache_the_folder_is_empty_and_removed_even_after_an_error(user_cache: Path) -> None:
    with (  # noqa: PT012
        pytest.raises(ValueError, match="in a step"),
        open_cache(job_of("jax", keeps_compiled=False)) as job,
    ):
        folder = Path(job.compiled_folder)
        assert list(folder.iterdir()) == []
        (folder / "program").touch()
        raise ValueError("in a step")
    assert not folder.exists()
    assert not user_cache.exists()


def test_a_folder_that_cannot_be_made_is_no_failure(user_cache: Path) -> None:
    user_cache.parent.parent.write_text("a file where a folder should be")
    with open_cache(job_of("jax")) as job:
        assert job.compiled_folder == ""
        assert "JAX_COMPILATION_CACHE_DIR" not in make_jax_variables("jax", job)


def test_every_framework_is_told_its_own_folder(user_cache: Path) -> None:
    with open_cache(job_of("jax")) as job:
        variables = make_jax_variables("jax", job)
        assert variables["JAX_COMPILATION_CACHE_DIR"] == f"{user_cache}/jax"
        assert variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
        assert make_keras_variables("keras-jax", job)["JAX_COMPILATION_CACHE_DIR"] == f"{user_cache}/jax"
    with open_cache(job_of("tensorflow", compiled=True)) as job:
        flag = f"--tf_xla_persistent_cache_directory={user_cache}/tensorflow"
        assert make_tensorflow_variables("tensorflow", job)["TF_XLA_FLAGS"] == flag
    with open_cache(job_of("torch", compiled=True)) as job:
        assert make_torch_variables("torch", job) == {"TORCHINDUCTOR_CACHE_DIR": f"{user_cache}/torch"}
    assert make_torch_variables("torch", None) == {}


def test_a_folder_that_the_user_named_stays_unless_nothing_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    monkeypatch.setenv("TF_XLA_FLAGS", "--other --tf_xla_persistent_cache_directory=/mine")
    with open_cache(job_of("jax")) as job:
        assert "JAX_COMPILATION_CACHE_DIR" not in make_jax_variables("jax", job)
    with open_cache(job_of("tensorflow", compiled=True)) as job:
        assert "TF_XLA_FLAGS" not in make_tensorflow_variables("tensorflow", job)
    with open_cache(job_of("jax", keeps_compiled=False)) as job:
        assert make_jax_variables("jax", job)["JAX_COMPILATION_CACHE_DIR"] == choose_compiler_folder(job, "jax")
    with open_cache(job_of("tensorflow", compiled=True, keeps_compiled=False)) as job:
        assert make_tensorflow_variables("tensorflow", job)["TF_XLA_FLAGS"].endswith(
            f"={job.compiled_folder}/tensorflow"
        )
    with open_cache(job_of("torch", compiled=True, keeps_compiled=False)) as job:
        assert make_torch_variables("torch", job)["TRITON_CACHE_DIR"].startswith(job.compiled_folder)


@pytest.mark.parametrize(("needed", "cached", "state"), [(0, 0, NONE), (3, 3, WARM), (3, 2, COLD), (1, 0, COLD)])
def test_a_single_program_that_was_compiled_makes_a_rank_cold(needed: int, cached: int, state: str) -> None:
    assert describe_compilation(needed, cached) == state
