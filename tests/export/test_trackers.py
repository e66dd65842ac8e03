"""MLflow and Weights & Biases themselves. `make test-all` installs them: they are 60 packages."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_runs import two_series, write_run

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# Neither package may call home from a test.
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_ERROR_REPORTING": "false"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "first", two_series())
    return tmp_path


def export(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "trainscale", "export", "first", *arguments]
    environment = {**os.environ, **QUIET}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- MLflow


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    """A server on the loopback interface, with a database and artifacts in a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db",
        "--artifacts-destination", str(tmp_path / "artifacts"),
    ]  # fmt: skip
    environment = {**os.environ, **QUIET}
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=tmp_path)
        try:
            wait_until_it_answers(f"{address}/health", server, tmp_path / "server.log")
            yield address
        finally:
            server.terminate()
            server.wait(30)


def wait_until_it_answers(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 200
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)


def test_mlflow_gets_each_series_as_a_run_and_none_twice(folder: Path, mlflow_server: str) -> None:
    assert export(folder, "--to", "mlflow", "-o", mlflow_server, "--project", "scaling") == (
        f"{mlflow_server}: 2 runs added to the experiment scaling\n"
    )
    assert export(folder, "--to", "mlflow", "-o", mlflow_server, "--project", "scaling").endswith(
        "0 runs added to the experiment scaling (2 were there already)\n"
    )
    program = f"""
import mlflow
client = mlflow.MlflowClient({mlflow_server!r})
runs = client.search_runs([client.get_experiment_by_name("scaling").experiment_id])
assert len(runs) == 2, runs
(run,) = (run for run in runs if run.data.tags["trainscale.series"] == "AlexNet · torch · allreduce")
assert run.data.params["strategy"] == "allreduce" and run.data.params["version_torch"] == "2.9.1", run.data.params
history = client.get_metric_history(run.info.run_id, "images_per_second")
assert sorted((point.step, round(point.value)) for point in history) == [(1, 100), (2, 190), (4, 300)], history
assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["trials.csv"]
assert run.info.status == "FINISHED", run.info
"""
    environment = {**os.environ, **QUIET}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_that_does_not_answer_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "trainscale", "export", "first", "--to", "mlflow", "-o", address]
    environment = {**os.environ, **QUIET, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"trainscale: --to mlflow: {address}: " in done.stderr
    assert "Traceback" not in done.stderr


# ---- Weights & Biases


def test_wandb_writes_an_offline_run_for_each_series(folder: Path) -> None:
    printed = export(folder, "--to", "wandb", "--project", "scaling")
    assert printed.startswith(".: 2 offline runs; these commands send them:\n")
    runs = [folder / line.split()[-1] for line in printed.splitlines()[1:]]
    program = f"""
import json
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore
for path in {[str(next(run.glob("*.wandb"))) for run in runs]!r}:
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            print(record.run.project, record.run.display_name, sep="|")
        elif record.WhichOneof("record_type") == "history":
            items = {{item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}}
            print(items["devices"], round(items["images_per_second"]), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(dict.fromkeys(done.stdout.splitlines())) == [
        "scaling|first: AlexNet · torch · allreduce",
        "1|100",
        "2|190",
        "4|300",
        "scaling|first: AlexNet · torch · ps:1",
        "2|150",
    ]
