"""Help is fast: it imports none of the libraries that compute, decode or draw."""

import subprocess
import sys

import pytest

HEAVY = {"altair", "boto3", "jinja2", "msgspec", "numpy", "platformdirs", "scipy", "vl_convert"}


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help"), ("report", "--help")])
def test_help_imports_no_heavy_library(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainscale", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "trainscale" in imported
    assert not imported & HEAVY
