"""Markers select the tiers of tests: every marker that is registered is used, and the tiers name no other."""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Markers of pytest and its plug-ins, which need not be registered.
BUILT_IN = {"parametrize", "skipif", "usefixtures", "timeout", "filterwarnings", "xdist_group"}


def registered_markers() -> set[str]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    return {line.partition(":")[0] for line in options["markers"]}


def used_markers() -> Iterator[str]:
    """Every NAME of a ``pytest.mark.NAME`` in the test files."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark":
                yield node.attr


def test_every_used_marker_is_registered_and_every_registered_marker_is_used() -> None:
    assert set(used_markers()) - BUILT_IN == registered_markers()


def test_the_makefile_selects_by_registered_markers_only() -> None:
    expressions = re.findall(r'-m "([^"]+)"', (ROOT / "Makefile").read_text())
    assert expressions
    for expression in expressions:
        assert set(re.findall(r"\w+", expression)) - {"not", "and", "or"} <= registered_markers(), expression


def run_with_our_conftest(pytester: pytest.Pytester) -> pytest.RunResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "tests", ROOT / "tests/support"))))
        return pytester.runpytest_subprocess("-p", "conftest", "-p", "no:cacheprovider")


@pytest.mark.processes
def test_a_test_that_starts_hosts_without_the_marker_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_unmarked(lab): pass")
    done = run_with_our_conftest(pytester)
    done.stderr.fnmatch_lines(["*these tests start hosts and must be marked hosts*", "*test_unmarked*"])


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "marker", "outcome", "missing"),
    [
        ("from environments import python_for; python_for('torch')", "", "failed", "framework"),
        ("sys.modules['mxnet'] = sys", "", "errors", "framework"),
        ("sys.modules['mxnet'] = sys", "@pytest.mark.framework", "passed", ""),
        ("subprocess.run(['true'])", "", "errors", "processes"),
        ("subprocess.run(['true'])", "@pytest.mark.processes", "passed", ""),
        ("subprocess.run(['true'])", "@pytest.mark.hosts", "passed", ""),
    ],
)
def test_a_test_that_uses_a_framework_or_starts_a_process_without_the_marker_fails(
    body: str, marker: str, outcome: str, missing: str, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  framework\n  processes\n  hosts")
    pytester.makepyfile(f"import subprocess, sys, pytest\n{marker}\ndef test_example():\n    {body}\n")
    done = run_with_our_conftest(pytester)
    assert done.parseoutcomes()[outcome] == 1
    if missing:
        done.stdout.fnmatch_lines([f"*must be marked: @pytest.mark.{missing}*"])
