"""A broken installation is found before anything is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainscale import cli
from trainscale.errors import TrainscaleError
from trainscale.report import check_can_report


def test_a_complete_installation_passes() -> None:
    check_can_report()


@pytest.mark.parametrize("library", ["altair", "vl_convert", "scipy.special"])
def test_a_library_that_cannot_be_imported_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # what import does with a module that is not there
    with pytest.raises(TrainscaleError, match=rf"{library} cannot be imported .*; nothing was measured"):
        check_can_report()


def test_a_run_ends_before_it_measures_or_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    output = tmp_path / "run"
    assert cli.main(["run", "--models", "mnist:8", "--devices", "1", "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert "the library altair cannot be imported" in error
    assert "Traceback" not in error
    assert not output.exists()


@pytest.mark.processes
def test_where_memory_did_not_suffice_the_limit_is_named(tmp_path: Path) -> None:
    """The libraries need some 500 MB of addresses, so one of them cannot be loaded."""
    command = f"ulimit -v 300000; exec {sys.executable} -m trainscale run --models mnist:8 --output {tmp_path}/run"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "limited to 292 MiB of addresses, which may not suffice: ulimit -v unlimited" in done.stderr
    assert "install trainscale again" not in done.stderr
