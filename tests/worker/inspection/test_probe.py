"""What is said of a framework that cannot be asked: one line, whatever went wrong."""

import sys
from pathlib import Path

import pytest

from trainscale.worker.events import find_explaining_line
from trainscale.worker.inspection.probe import ProbeRequest, run_probes

TENSORFLOW = """tensorflow does not import: ImportError: Traceback (most recent call last):
  File "site-packages/tensorflow/python/pywrap_tensorflow.py", line 73, in <module>
    from tensorflow.python._pywrap_tensorflow_internal import *
ImportError: libcudart.so.12: cannot open shared object file


Failed to load the native TensorFlow runtime."""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("jax does not import: OSError: no libjax\nand more", "jax does not import: OSError: no libjax"),
        (
            TENSORFLOW,
            "tensorflow does not import: ImportError: ImportError: libcudart.so.12: cannot open shared object file",
        ),
    ],
)
def test_a_message_is_cut_to_the_line_that_says_the_most(text: str, line: str) -> None:
    assert find_explaining_line(text) == line


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\nkill -SEGV $$\n", "the Python of jax was ended by SIGSEGV"),
        ("#!/bin/sh\necho 'wrong\xff' >&2\nexit 3\n", "the Python of jax ended with exit code 3: wrong\ufffd"),
        ("no interpreter's beginning", ": Exec format error"),
        (None, "cannot start "),
    ],
    ids=["dies", "ends", "no program", "gone"],
)
def test_an_interpreter_that_cannot_answer_is_a_reason(script: str | None, reason: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_bytes(script.encode("latin-1"))
        python.chmod(0o755)
    facts = run_probes({"jax": str(python)}, [ProbeRequest("jax")])["jax"]
    assert facts.is_available is False
    assert reason in facts.reason


@pytest.mark.framework
def test_a_package_that_the_images_need_is_named_with_what_gets_it() -> None:
    facts, other = (
        run_probes({"torch": sys.executable}, [ProbeRequest("torch", needs=needs)])["torch"]
        for needs in (["PIL", "no_such_module"], ["PIL"])
    )
    assert not facts.is_available
    assert facts.reason.startswith("no_such_module is not in this Python, and these images need it")
    assert facts.install_command == f"{sys.executable} -m pip install no_such_module"
    assert other.is_available
