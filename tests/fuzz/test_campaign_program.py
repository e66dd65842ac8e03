"""The program of the coverage-guided campaign knows every test of this folder, also where atheris is not installed."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.processes
def test_every_property_is_a_target() -> None:
    modules = [importlib.import_module(path.stem) for path in FOLDER.glob("test_fuzz_*.py")]
    properties = {
        name.removeprefix("test_")
        for module in modules
        for name in vars(module)
        if hasattr(vars(module)[name], "hypothesis")
    }
    assert len(properties) >= 20
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--help"],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    names = done.stdout.partition("TARGET  ")[2].partition("options:")[0]
    assert {name.strip() for name in names.split(",")} == properties


def test_a_target_takes_any_bytes() -> None:
    from test_fuzz_settings import test_hosts_files

    for data in (b"", b"\0" * 100, bytes(range(256)) * 8):
        test_hosts_files.hypothesis.fuzz_one_input(data)
