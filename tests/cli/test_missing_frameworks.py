"""A framework that is missing, whose environment is broken, or that dies at import: one message, and the others run."""

import csv
import io
import sys
from pathlib import Path

import pytest
from command import trainscale

pytestmark = pytest.mark.framework

ARGUMENTS = ("--models", "mnist:4", "--strategies", "local", "--device", "cpu", "--devices", "1", "--warmup", "2",
         "--steps", "2", "--repeats", "1", "-o", "out")  # fmt: skip


def python_with(folder: Path, module: str) -> str:
    """This interpreter, with an ``mxnet`` that does what ``module`` says."""
    (folder / "site" / "mxnet").mkdir(parents=True)
    (folder / "site" / "mxnet" / "__init__.py").write_text(module)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder / "site"} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def broken_environment(folder: Path) -> str:
    """The Python that an environment was made from is gone."""
    script = folder / "python"
    script.write_text("#!/nowhere/python3\n")
    script.chmod(0o755)
    return str(script)


CASES = {
    "missing": (lambda _: sys.executable, "no module 'mxnet' in this Python; get it with: trainscale env create mxnet"),
    "broken": (broken_environment, "cannot start "),
    "raises": (lambda f: python_with(f, "raise ImportError('libfoo.so: no such file')"), "libfoo.so: no such file"),
    "dies": (lambda f: python_with(f, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), "SIGSEGV"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in ("broken", "dies") else ()) for case in CASES]
)
def test_the_others_run_and_the_reason_is_told_once_and_kept_as_a_row(case: str, tmp_path: Path) -> None:
    make, reason = CASES[case]
    done = trainscale(
        tmp_path, "run", "--frameworks", "torch,mxnet", "--python", f"mxnet={make(tmp_path)}", *ARGUMENTS, columns=200
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("framework 'mxnet'") == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "results.csv").read_text())))
    statuses = [(row["framework"], row["status"]) for row in rows]
    assert statuses == [("torch", "ok"), ("mxnet", "missing")]  # in the order of the request
    assert reason in next(row["reason"] for row in rows if row["framework"] == "mxnet")


def test_when_none_can_be_had_nothing_is_written(tmp_path: Path) -> None:
    done = trainscale(tmp_path, "run", "--frameworks", "mxnet", "--python", f"mxnet={sys.executable}", *ARGUMENTS)
    assert done.returncode == 2
    assert "framework 'mxnet': no module 'mxnet' in this Python" in done.stderr
    assert not (tmp_path / "out").exists()
