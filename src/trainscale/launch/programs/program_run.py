"""Runs a user's program on many hosts: starts every process, shows what they print, ends all when one fails or the
workers are done. Whatever happens, none is left.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...worker.job import WORKER
from ..connections.event_reader import EventReader
from ..connections.keeper import KeeperConnection, ready, stop_all
from ..launchers.base import ITS_PYTHON, ITS_START, Launcher, Task, plan
from .assignment import Program, ports_needed

INTERRUPTED, TIMED_OUT = 130, 124  # exit codes; the second as of the program `timeout`
_LOST = 1

_PATIENCE_AFTER_FAILURE = 3.0  # for the others to say what they saw, and to end by themselves
_PATIENCE_AFTER_WORKERS = 5.0  # for servers to notice that all workers have left
_PATIENCE_AFTER_SIGNAL = 10.0  # for a program that was told to end: it may have something to save
_FOREVER_SECONDS = 10 * 365 * 86400.0
_PING_SECONDS = 5.0
_SILENCE_SECONDS = 120.0

Show = Callable[[Program, str, bool], None]  # a line that it printed, and whether as an error
Tell = Callable[[str], None]  # a word of ours
Jobs = Callable[[Mapping[str, list[int]]], Sequence[dict[str, Any]]]


class ProgramRun:
    """What has happened so far. It is over when all workers have ended, or the chief alone where there is one."""

    def __init__(self, programs: Sequence[Program], show: Show, tell: Tell, chief: bool = False) -> None:
        self.programs = programs
        self.code = 0
        self.reason = ""
        self.ending = False  # what ends from now on does so because it was told to
        self.tell = tell
        self._show = show
        self._leaders = [n for n, program in enumerate(programs) if program.role == WORKER and not (chief and n)]
        self._left = set(range(len(programs)))
        self._parts: dict[tuple[int, str], str] = {}

    @property
    def over(self) -> bool:
        return bool(self.reason) or not self._left.intersection(self._leaders)

    @property
    def empty(self) -> bool:
        return not self._left

    @property
    def left(self) -> list[Program]:
        return [self.programs[number] for number in sorted(self._left)]

    def hear(self, event: dict[str, Any]) -> None:
        if event["kind"] == "log":
            self._print(event)
        elif event["kind"] == "exit" and event.get("rank") in self._left:
            self._left.discard(event["rank"])
            self._note_end(self.programs[event["rank"]], int(event["code"]))

    def lose(self, host: str, complaints: tuple[str, ...]) -> None:
        gone = {number for number in self._left if self.programs[number].host.host == host}
        self._left -= gone
        if gone:
            words = next((line.strip() for line in reversed(complaints) if line.strip()), "no word from there any more")
            self.fail(_LOST, f"{host} is lost: {words}")

    def fail(self, code: int, reason: str) -> None:
        """The first failure counts."""
        if not self.reason and not self.ending:
            self.code, self.reason = code, reason
            self.tell(reason)

    def _note_end(self, program: Program, code: int) -> None:
        if code == 0:
            return
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        self.fail(128 - code if code < 0 else code, f"{program.name} on {program.host.host} {how}")

    def _print(self, event: dict[str, Any]) -> None:
        """A long line comes in parts. Of what a progress bar wrote over itself, the last counts."""
        rank, stream = event.get("rank"), event.get("stream", "stdout")
        if not isinstance(rank, int) or not 0 <= rank < len(self.programs):
            return
        text = self._parts.pop((rank, stream), "") + event["text"]
        if event.get("more"):
            self._parts[rank, stream] = text
        else:
            self._show(self.programs[rank], text.rstrip("\r").rpartition("\r")[2], stream == "stderr")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_programs(launcher: Launcher, stage: ProgramRun, jobs: Jobs, timeout_seconds: float | None = None) -> int:
    """The exit code: of the first program that failed, or 0. ``jobs`` says what each program shall do once ports are
    known. KeyboardInterrupt is passed on to the programs.
    """
    keepers: list[KeeperConnection] = []
    try:
        keepers = launcher.open(list(ports_needed(stage.programs)))
        tasks = jobs(ready(keepers, ports_needed(stage.programs)))
        ears = EventReader(keepers, stage.hear, stage.lose)
        company = _Company(keepers, ears, stage, remote=not launcher.local)
        pulse = _Pulse([] if launcher.local else keepers)
        company.begin(tasks)
        try:
            pulse.start()
            company.accompany(timeout_seconds)
            company.wind_down()
        except KeyboardInterrupt:
            company.interrupt()
            return INTERRUPTED
        finally:
            stage.ending = True
            pulse.stop()
            for keeper in keepers:
                keeper.close()
            ears.last_words()
    finally:
        stop_all(keepers)
    return stage.code


class _Pulse(threading.Thread):
    """Signs of life for keepers on other machines. Not from where lines are shown: a person who looks at them page by
    page keeps that waiting.
    """

    def __init__(self, keepers: Sequence[KeeperConnection]) -> None:
        super().__init__(name="pulse", daemon=True)
        self._keepers = keepers
        self._over = threading.Event()

    def run(self) -> None:
        while self._keepers and not self._over.wait(_PING_SECONDS):
            for keeper in self._keepers:
                keeper.write(b"\n")

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(_PING_SECONDS)


class _Company:
    """The keepers, and the time that passes with them."""

    def __init__(self, keepers: Sequence[KeeperConnection], ears: EventReader, stage: ProgramRun, remote: bool) -> None:
        self._keepers, self._ears, self._stage, self._remote = keepers, ears, stage, remote

    def begin(self, jobs: Sequence[dict[str, Any]]) -> None:
        for keeper in self._keepers:
            tasks = [
                Task(number, [ITS_PYTHON, ITS_START, "program"], json.dumps(job))
                for number, (program, job) in enumerate(zip(self._stage.programs, jobs, strict=True))
                if program.host.host == keeper.host
            ]
            keeper.write(plan(tasks, _FOREVER_SECONDS, _SILENCE_SECONDS if self._remote else None))

    def accompany(self, timeout_seconds: float | None) -> None:
        """Until something fails, the leaders are done, or time is up."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._listening and not self._stage.over:
            if until is not None and time.monotonic() > until:
                self._stage.fail(TIMED_OUT, f"time is up after {timeout_seconds:g} s")
                return
            self._ears.hear()
        if not self._stage.over:  # keepers that took this machine for dead
            self._stage.fail(_LOST, "the hosts ended their programs: they had no sign of life from here")

    def wind_down(self) -> None:
        """The others may end by themselves, then are told to; whoever does not is ended by the keepers."""
        self._wait(_PATIENCE_AFTER_FAILURE if self._stage.reason else _PATIENCE_AFTER_WORKERS)
        if not self._listening:
            return
        self._stage.tell(f"ending what goes on: {', '.join(program.label for program in self._stage.left)}")
        self._signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Ctrl-C, for every program. Once more is for the impatient."""
        try:
            self._stage.tell("interrupted; waiting for the programs to end (Ctrl-C again: do not wait)")
            self._signal(signal.SIGINT)
        except KeyboardInterrupt:
            return

    def _signal(self, number: signal.Signals) -> None:
        self._stage.ending = True
        for keeper in self._keepers:
            keeper.write(json.dumps({"signal": int(number)}).encode() + b"\n")
        self._wait(_PATIENCE_AFTER_SIGNAL)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._listening and time.monotonic() < until:
            self._ears.hear()

    @property
    def _listening(self) -> bool:
        return self._ears.open and not self._stage.empty
