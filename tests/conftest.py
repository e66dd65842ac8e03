"""Fixtures that all tests share, and checks that tests carry the markers of what they need."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import tiers

from lab import Lab, Slurm, missing_requirement

pytest_plugins = ["pytester"]
TENTHS_BY_MARKER = {"hosts": 40, "installs": 40, "framework": 30, "browser": 20, "": 1}  # of a second
SERVERS_BETWEEN_FILES = 3
FRAMEWORK_MODULES = {"torch", "tensorflow", "jax", "keras", "mxnet"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check all tests, before any are deselected, and put the files with the longest tests first.

    pytest-xdist hands out files in this order, so the short ones fill the gaps at the end.
    """
    unmarked = [
        item.nodeid
        for item in items
        if "make_lab" in getattr(item, "fixturenames", ()) and item.get_closest_marker("hosts") is None
    ]
    if unmarked:
        raise pytest.UsageError("these tests start hosts and must be marked hosts:\n  " + "\n  ".join(unmarked))
    expected: Counter[Path] = Counter()
    for item in items:
        expected[item.path] += _expected_tenths(item)
    items.sort(key=lambda item: (-expected[item.path], item.path))


def pytest_sessionstart() -> None:
    tiers.watch_processes()


def pytest_collection_finish() -> None:
    """Let the garbage collector skip all that is there before the first test, and look for garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _expected_tenths(item: pytest.Item) -> int:
    """Return roughly what a test takes, in tenths of a second. A slow one does not count, because few runs have it."""
    if item.get_closest_marker("slow"):
        return 0
    return max(tenths for marker, tenths in TENTHS_BY_MARKER.items() if not marker or item.get_closest_marker(marker))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    tiers.set_current(item)


@pytest.fixture(autouse=True)
def _needs_are_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that imports a framework into this process, or starts a process, without the marker for it."""
    before = FRAMEWORK_MODULES & sys.modules.keys()
    yield
    tiers.require_process_marker()
    if (FRAMEWORK_MODULES & sys.modules.keys()) - before:
        tiers.require("framework")


@pytest.fixture(autouse=True, scope="module")
def _end_framework_servers() -> Iterator[None]:
    """End most of the processes that hold frameworks in memory. The next file may use the others."""
    yield
    if "forked_frameworks" in sys.modules:
        sys.modules["forked_frameworks"].close_servers(SERVERS_BETWEEN_FILES)


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork ranks of PyTorch that this process starts on this machine from a process that has imported it."""
    from forked_frameworks import server_for_commands
    from forked_keepers import LocalLauncher, keeper_opener

    server = server_for_commands()
    if server is not None:
        monkeypatch.setattr(LocalLauncher, "open", keeper_opener(server))


@pytest.fixture(autouse=True, scope="module")
def _restore_catalogs() -> Iterator[None]:
    """Remove what the tests of a file added to the catalogs of frameworks, models and launchers."""
    from trainscale.launch.launchers.target import LAUNCHERS
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.models import catalog

    tables: list[dict] = [LAUNCHERS, FRAMEWORKS, catalog._BY_NAME]
    copies = [dict(table) for table in tables]
    yield
    for table, copy in zip(tables, copies, strict=True):
        table.clear()
        table.update(copy)
    catalog._index_names.cache_clear()


@pytest.fixture(scope="module")
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Return a function that creates labs, which live until the end of the test file; skip where none can run.

    The tests of a file share one lab of four hosts, or of as many as its ``LAB_HOSTS`` says.
    """
    if reason := missing_requirement():
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Lab(*arguments, **options))


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], request: pytest.FixtureRequest) -> Lab:
    return make_lab(getattr(request.module, "LAB_HOSTS", 4))


@pytest.fixture(scope="module")
def slurm(lab: Lab) -> Slurm:
    """Start Slurm on this file's lab, with two simulated GPUs per host."""
    if reason := missing_requirement(slurm=True):
        pytest.skip(reason)
    return lab.slurm(gpus=2)
