"""Performs a scenario: types the command, lets each fault happen at its moment, and observes what follows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab import CONTROLLER as AT_CONTROLLER

from . import faults
from .judge import CLEAN_SECONDS, Hit, Observation, complete_lines, rank_hosts_of, rows
from .places import EXIT_CODE, Place, Target
from .scenario import PlannedFault, Scenario

_LONGEST_RUN = 400.0  # in seconds, times the patience of the place
_POLL_SECONDS = 0.1
_DISK_BYTES = 24 << 20
_AFTER_THE_END = float("inf")


class Interrupted(Exception):
    """The campaign was interrupted, so the run that is under way is not observed to its end."""


class Performance:
    """One scenario at one place."""

    def __init__(self, scenario: Scenario, place: Place, interrupted: threading.Event) -> None:
        self.scenario, self.place, self._interrupted = scenario, place, interrupted
        name = f"run-{scenario.seed}-{time.monotonic_ns()}"
        folder = place.lab.shared / name
        self._has_small_disk = any(item.fault.deed == faults.FULL_DISK for item in scenario.faults)
        if self._has_small_disk:
            folder.mkdir()
            size = f"size={_DISK_BYTES}"
            place.lab.administer(AT_CONTROLLER, ["mount", "-t", "tmpfs", "-o", size, "none", str(folder)])
        self._folder = folder
        self._view = place.lab.file(AT_CONTROLLER, folder)  # the controller may have mounted a disk there
        place.prepare(self._view)
        self._log = place.lab.folder / f"{name}.log"
        self._rank_hosts: dict[int, str] = {}
        self._hits: list[Hit] = []
        self._later: list[tuple[float, Callable[[], None]]] = []  # what ends a fault, and when
        self._before = b""
        self._popen: subprocess.Popen[Any] | None = None

    def run(self) -> Observation:
        place, scenario = self.place, self.scenario
        argv = place.command(scenario.strategy, scenario.trials)
        self._popen = place.start(self._folder, argv, self._log)
        for item in scenario.faults:
            if not self._await_moment(item) or not self._inject(item):
                break
        exit_code = self._await_end()
        self._end_faults()
        left = self._find_left()
        after, output = self._journal(), self._log.read_text(errors="replace")
        place.repair()
        final_code, final_output = self._complete(argv, after)
        final = self._journal()
        rank_hosts = {**self._rank_hosts, **rank_hosts_of(final)}
        return Observation(
            hits=[replace(hit, rank_hosts=rank_hosts) for hit in self._hits],
            before=self._before,
            after=after,
            final=final,
            exit_code=exit_code,
            output=output,
            left=left,
            final_exit_code=final_code,
            final_output=final_output,
            trials=scenario.trials,
        )

    def close(self) -> None:
        if self._popen is not None and self._is_running():
            self._kill()
        if self._has_small_disk:
            with contextlib.suppress(Exception):
                self.place.lab.administer(AT_CONTROLLER, ["umount", "--lazy", str(self._folder)])

    # Moments

    def _await_moment(self, item: PlannedFault) -> bool:
        """Return False if the run ended before."""
        moment = item.moment
        rows_needed = self._hits[-1].rows_before + 1 if self._hits else 0

        def has_come() -> bool:
            if moment.trial is None:
                return True
            if len(complete_lines(self._journal()).splitlines()) < rows_needed:
                return False
            ranks = self._observe_ranks()
            return any(target.rank is not None for target in ranks) if moment.train else bool(ranks)

        return self._wait(has_come) and self._sleep(moment.seconds)

    def _observe_ranks(self) -> list[Target]:
        targets = self.place.targets(faults.RANK, faults.SERVER)
        self._rank_hosts |= {target.rank: target.host for target in targets if target.rank is not None}
        return targets

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Return whether the condition holds before the run ends."""
        deadline = time.monotonic() + _LONGEST_RUN * self.place.patience
        while self._is_running() and time.monotonic() < deadline:
            self._end_faults(time.monotonic())
            if condition():
                return True
            self._pause(_POLL_SECONDS)
        return False

    def _sleep(self, seconds: float) -> bool:
        self._pause(seconds)
        return self._is_running()

    def _pause(self, seconds: float) -> None:
        if self._interrupted.wait(seconds):
            raise Interrupted

    def _is_running(self) -> bool:
        assert self._popen is not None
        return self._popen.poll() is None

    def _kill(self) -> None:
        assert self._popen is not None
        os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    # Faults

    def _inject(self, item: PlannedFault) -> bool:
        """Return False if there was nobody to hit before the run ended."""
        hits: list[Hit] = []

        def try_once() -> bool:
            journal = self._journal()
            target = self._act(item)
            if target is not None:
                self._before = journal
                hits.append(Hit(item.fault, len(complete_lines(journal).splitlines()), target.host, target.rank))
            return target is not None

        self._wait(try_once)
        self._hits += hits
        return bool(hits)

    def _act(self, item: PlannedFault) -> Target | None:
        """Let the fault happen. Return whom it hit, or None if there is nobody to hit now."""
        fault, place = item.fault, self.place
        if fault.deed == faults.SCANCEL:
            place.cancel()
            return Target(0, "")
        if fault.deed == faults.FULL_DISK:
            fill_disk(self._view / "filler")
            return Target(0, AT_CONTROLLER)
        if fault.role == faults.HOST:
            return self._act_on_host(item)
        targets = self._targets(fault.role)
        if fault.deed in (faults.HANG, faults.PRINT, faults.PRINT_LINES):
            targets = [target for target in targets if target.rank is not None]
        if not targets:
            return None
        target = targets[item.target % len(targets)]
        if fault.deed in faults.SIGNALS:
            return self._signal(item, target)
        return target if self._order(target, fault.deed) else None

    def _order(self, target: Target, deed: str) -> bool:
        """Tell a rank what to do. It knows its process id only as its host counts."""
        try:
            status = Path(f"/proc/{target.pid}/status").read_text()
        except OSError:
            return False
        own_pid = re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)
        assert own_pid
        (self._view / "control" / f"{target.host}-{own_pid[1]}").write_text(deed)
        return True

    def _targets(self, role: str) -> list[Target]:
        if role == faults.CONTROLLER:
            assert self._popen is not None
            with contextlib.suppress(OSError, IndexError):
                return [Target(self.place.controller(self._popen), AT_CONTROLLER)]
            return []
        return sorted(self.place.targets(role), key=lambda target: (target.host, target.pid))

    def _signal(self, item: PlannedFault, target: Target) -> Target | None:
        try:
            os.kill(target.pid, faults.SIGNALS[item.fault.deed])
        except ProcessLookupError:
            return None
        if item.fault.deed == faults.STOP and item.fault.role == faults.CONTROLLER:
            self._do_later(item, lambda: os.kill(target.pid, signal.SIGCONT))
        if item.fault.deed == faults.STOP and item.fault.role == faults.KEEPER:
            # Nobody else can end a stopped keeper of another host. It must end when it goes on.
            self._later.append((_AFTER_THE_END, lambda: os.kill(target.pid, signal.SIGCONT)))
        return target

    def _act_on_host(self, item: PlannedFault) -> Target:
        lab, deed = self.place.lab, item.fault.deed
        name = self.place.hosts()[item.target % len(self.place.hosts())]
        if deed in (faults.CUT, faults.CUT_SHORTLY):
            lab.link(name, up=False)
            if deed == faults.CUT_SHORTLY:
                self._do_later(item, lambda: lab.link(name, up=True))
        else:
            assert deed in (faults.POWER_OFF, faults.SHUT_DOWN)
            lab.kill(name, silent=deed == faults.POWER_OFF)
        return Target(0, name)

    def _do_later(self, item: PlannedFault, end: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + 0.5 + item.target % 30 / 10, end))

    def _end_faults(self, now: float = _AFTER_THE_END) -> None:
        """End the faults whose time has come. Links come back when the run has ended, at the latest."""
        for moment, end in [later for later in self._later if later[0] <= now]:
            with contextlib.suppress(ProcessLookupError):
                end()
            self._later.remove((moment, end))
        if now == _AFTER_THE_END:
            for name in self.place.lab.hosts:
                if self.place.lab.has_power(name):
                    self.place.lab.link(name, up=True)
            (self._view / "filler").unlink(missing_ok=True)
            # A host that boots again counts its processes from 1: a later rank may have the id of one that was told.
            for order in (self._view / "control").iterdir():
                order.unlink()

    # Ends

    def _await_end(self) -> int | None:
        """Return the exit code of the command that was typed last, or None if it had to be killed."""
        assert self._popen is not None
        self._wait(lambda: False)
        if self._is_running():
            self._kill()
            return None
        noted = self._view / EXIT_CODE
        if not noted.exists():
            return self._popen.wait()
        code = int(noted.read_text())
        noted.unlink()
        return -signal.SIGKILL if code == 128 + signal.SIGKILL else code

    def _journal(self) -> bytes:
        try:
            return (self._view / "out" / "trials.jsonl").read_bytes()
        except OSError:
            return b""

    def _find_left(self) -> list[str]:
        """Wait until nothing runs, is locked or grows any more, and return what still does."""
        deadline = time.monotonic() + CLEAN_SECONDS
        while True:
            sizes = file_sizes(self._view)
            left = self.place.left()
            if is_locked(self._view / "out" / "trials.jsonl"):
                left.append("the journal is locked")
            if file_sizes(self._view) != sizes:
                left.append("files still grow")
            if not left or time.monotonic() > deadline:
                break
            self._pause(0.3)
        killed = any(hit.fault.role == faults.CONTROLLER and hit.fault.deed == faults.KILL for hit in self._hits)
        if not killed:
            left += [f"the temporary {path.name}" for path in (self._view / "tmp").glob("trainscale*")]
        return left

    def _complete(self, argv: list[str], journal: bytes) -> tuple[int | None, str]:
        """Type the same command again."""
        failed = any(row["status"] != "ok" for row in rows(journal))
        log = self._log.with_suffix(".again")
        self._popen = self.place.start(self._folder, [*argv, *(["--retry-failed"] if failed else [])], log)
        return self._await_end(), log.read_text(errors="replace")


def fill_disk(path: Path) -> None:
    """Take all space of a disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def file_sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            sizes[str(path)] = path.stat().st_size
    return sizes
