"""The causes that bench/verdicts.py plants: each slows training in one way, on real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainscale.launch.trial.state import TrialState
from trainscale.questions.explain import causes, explain
from trainscale.questions.explain.ranks import ANOTHER_PROGRAM, LIMIT
from trainscale.worker.job import Device

Watcher = Callable[[TrialState], None]
CALM: Watcher = lambda _: None  # noqa: E731


def take_priority(pid: int | str) -> None:
    """Give a process the priority of this one. Linux compares priorities only within a session, and then sessions."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)))


_SPIN = "while True: pass"
# Python runs this file when it starts. A loader process decodes a line of JSON for every batch.
_SLOW_LOADER = """
import json, sys, time
if sys.argv[-1:] == ["loader"]:
    _loads = json.loads
    def loads(*arguments, **options):
        time.sleep({seconds})
        return _loads(*arguments, **options)
    json.loads = loads
"""


@dataclass(frozen=True)
class Cause:
    """How a cause is planted, and which verdicts name it.

    ``cores`` are those of the workers. ``plant`` is entered while all trials of a repetition run; it gives a watcher of
    every trial.
    """

    expected: tuple[str, ...]
    models: tuple[str, ...]
    strategy: str = "allreduce"
    cores: tuple[int, ...] = (0, 1)
    settings: Mapping[str, Any] = field(default_factory=dict)
    plant: Callable[[Path], contextlib.AbstractContextManager[Watcher]] = lambda _: contextlib.nullcontext(CALM)
    link: str | None = None  # the rate of the links between hosts, which makes every worker a host of its own
    forks: bool = True  # ranks are forked from a process that has imported the framework

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(Device("cpu", index, (core,)) for index, core in enumerate(self.cores))


@contextlib.contextmanager
def another_program(_: Path) -> Iterator[Watcher]:
    """A program that computes all the time, on the core of the last worker."""
    process = subprocess.Popen(["taskset", "--cpu-list", "1", sys.executable, "-c", _SPIN])
    try:
        yield CALM
    finally:
        process.kill()
        process.wait()


class Stopped:
    """Stops the last of several workers for a share of the time, by signals."""

    period_seconds = 0.02

    def __init__(self, share: float = 0.5) -> None:
        self._share = share
        self._pids: set[int] = set()
        self._end = threading.Event()

    def __enter__(self) -> Watcher:
        return self._watch

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def _watch(self, state: TrialState) -> None:
        hello = state.workers[-1].hello
        if len(state.workers) > 1 and hello is not None and hello.pid not in self._pids:
            self._pids.add(hello.pid)
            threading.Thread(target=self._slow_down, args=(hello.pid,), daemon=True).start()

    def _slow_down(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            while not self._end.is_set():
                for number, share in ((signal.SIGSTOP, self._share), (signal.SIGCONT, 1 - self._share)):
                    os.kill(pid, number)
                    time.sleep(self.period_seconds * share)


@contextlib.contextmanager
def slow_loader(folder: Path) -> Iterator[Watcher]:
    """Every batch of a loader process comes 50 ms later."""
    (folder / "sitecustomize.py").write_text(_SLOW_LOADER.format(seconds=0.05))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) + (f":{before}" if before else "")
    try:
        yield CALM
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


_SMALL = {"image_size": 32, "classes": 10}


def _make_core_causes(images: int, ending: str = "") -> dict[str, Cause]:
    """Return the causes by which workers lack a core."""
    models = (f"nets:plain:{images}",)
    another, limit = (f"{explain.SLOW_RANK}: {reason}" for reason in (ANOTHER_PROGRAM, LIMIT))
    causes_by_name = {
        "another process on a worker's core": Cause((another,), models, settings=_SMALL, plant=another_program),
        "a worker with half a core": Cause((limit,), models, settings=_SMALL, plant=lambda _: Stopped()),
        "all workers on one core": Cause((causes.CONTENTION,), models, cores=(0, 0), settings=_SMALL),
    }
    return {f"{name}{ending}": cause for name, cause in causes_by_name.items()}


CAUSES: dict[str, Cause] = {
    "a link of 100 Mbit/s": Cause(
        (causes.COMMUNICATION, causes.CROSSING), ("inception-bn-28-small:4",), link="100mbit", forks=False
    ),
    **_make_core_causes(256),
    **_make_core_causes(64, ", short steps"),
    "a loader slower by 50 ms": Cause(
        (causes.INPUT,),
        ("nets:plain:16",),
        settings={**_SMALL, "data": "cifar10", "loaders": 1},
        plant=slow_loader,
        forks=False,
    ),
    "one server for four workers": Cause((causes.SERVERS,), ("mnist:2",), strategy="ps:1", cores=(0, 1, 0, 1)),
    "a network too small to scale": Cause((explain.TOO_SMALL,), ("mnist:1",)),
    "nothing": Cause((explain.NOTHING, explain.NOISE), ("nets:plain:1024",), settings=_SMALL, forks=False),
}
