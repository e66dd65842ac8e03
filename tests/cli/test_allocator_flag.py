"""``trainscale run --allocator`` in real processes: what the ranks have, and what the run records."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import trainscale

from trainscale.worker.config import ALLOCATORS

pytestmark = pytest.mark.framework

QUICK = ("--models", "mnist:4", "--devices", "1", "--steps", "2", "--warmup", "2", "--repeats", "1", "-o", "out")


def measured(folder: Path, *flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what run.json says about the allocator, and the trial's record."""
    done = trainscale(folder, "run", *QUICK, *flags)
    assert done.returncode == 0, done.stderr
    (line,) = (folder / "out" / "trials.jsonl").read_text().splitlines()
    return json.loads((folder / "out" / "run.json").read_text())["provenance"]["allocator"], json.loads(line)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD", *ALLOCATORS["tuned"]):
        monkeypatch.delenv(name, raising=False)


def test_ranks_have_the_tuned_settings_except_where_the_host_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "131072")
    provenance, record = measured(tmp_path)
    assert record["allocator"] == {**ALLOCATORS["tuned"], "MALLOC_TOP_PAD_": "131072"}
    assert provenance == {"setting": "tuned", **record["allocator"]}
    assert "allocator" not in record["config"]


def test_ranks_have_the_systems_settings_on_request_and_that_is_another_run(tmp_path: Path) -> None:
    provenance, record = measured(tmp_path, "--allocator", "system")
    assert record["allocator"] == {}
    assert provenance == {"setting": "system"}
    assert record["config"]["allocator"] == "system"
    refused = trainscale(tmp_path, "run", *QUICK)
    assert refused.returncode == 2
    assert "allocator" in refused.stderr
