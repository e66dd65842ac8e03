"""Makes an environment: a venv, then pip with pinned requirements, watched, logged, and continued where it stopped."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import InputError, TrainscaleError
from .environments import FACTS, LOG, OWN, READY, Definition, Environment, lock, read_environment, size_on_disk

_TICK_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0  # for pip to tidy up after Ctrl-C
_ASK_PYTHON = "import sys, venv, ensurepip; print('%d.%d.%d' % sys.version_info[:3])"


@dataclass
class Progress:
    """What goes on, for whoever watches. ``what`` is a package, with its size where pip knows it."""

    name: str
    began: float = field(default_factory=time.monotonic)
    phase: str = "preparing"
    what: str = ""
    bytes: int = 0

    def read(self, line: str) -> None:
        """Pip's own words, turned into phases."""
        if match := re.match(r"Collecting (\S+?)(?:[\s;(]|$)", line):
            self.phase, self.what = "collecting", match[1]
        elif match := re.match(r"\s+Downloading (\S+?)-\d\S*(?: \((.+)\))?$", line):
            self.phase, self.what = "downloading", f"{match[1]} ({match[2]})" if match[2] else match[1]
        elif line.startswith("Installing collected packages:"):
            count = line.count(",") + 1
            self.phase, self.what = "installing", f"{count} package{'s' if count > 1 else ''}"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


Watch = Callable[[Progress], None]


def create(definition: Definition, cuda: bool | None, default_cuda: bool, base: str | None, watch: Watch) -> bool:
    """Make it, continue it or bring it up to date; False when nothing was to be done.

    ``cuda`` and ``base`` are what was asked for. Unasked, an environment stays of its kind and its Python; a new one is
    by ``default_cuda`` and this interpreter.
    """
    progress = Progress(definition.name)

    def waiting() -> None:
        progress.phase = "waiting for another trainscale that makes it"
        watch(progress)

    with lock(definition.name, waiting) as descriptor:
        before = read_environment(definition.name)
        if before.state == OWN:
            return False
        if before.folder.is_dir() and not before.facts and any(before.folder.iterdir()):
            raise InputError(f"environment {definition.name}: {before.folder} holds other files; move them away")
        known = before.facts
        wants_cuda = bool(known.get("cuda", default_cuda)) if cuda is None else cuda
        same_kind = known.get("cuda") == wants_cuda
        if before.state == READY and same_kind and base is None:
            return False
        maker = base or str(known.get("base") or sys.executable)
        if base is None and not Path(maker).exists():
            maker = sys.executable
        version = _ask(maker, definition)
        same_python = known.get("python") == version and Path(before.python).exists()
        if before.state == READY and same_kind and same_python:
            return False
        _Making(definition, before, wants_cuda, maker, version, descriptor, progress, watch).run(
            keep=same_kind and same_python
        )
    return True


def _ask(python: str, definition: Definition) -> str:
    """The version of an interpreter that can make this environment; an error that says what to do if it cannot."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK_PYTHON], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InputError(f"--base: {python} is no Python: {error.strerror}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        lacks = "ensurepip" in last or "venv" in last
        hint = "install it (on Debian and Ubuntu: apt install python3-venv), or " if lacks else ""
        raise InputError(f"{python} cannot make an environment: {last}\n  {hint}name another Python: --base PYTHON")
    version = done.stdout.strip()
    number = tuple(int(part) for part in version.split(".")[:2])
    if number < definition.oldest or (definition.newest is not None and number > definition.newest):
        upper = f" to {'.'.join(map(str, definition.newest))}" if definition.newest else " or newer"
        raise InputError(
            f"environment {definition.name} needs Python {'.'.join(map(str, definition.oldest))}{upper}; {python} is"
            f" {version}\n  name another Python: trainscale env create {definition.name} --base PYTHON"
        )
    return version


class _Making:
    """One making of one environment, under its lock."""

    def __init__(
        self,
        definition: Definition,
        before: Environment,
        cuda: bool,
        base: str,
        version: str,
        lock: int,
        progress: Progress,
        watch: Watch,
    ) -> None:
        self.definition, self.folder, self.python = definition, before.folder, before.python
        self.lock, self.progress, self.watch = lock, progress, watch
        self.requirements = definition.requirements(cuda)
        self.facts: dict[str, Any] = {
            "complete": False,
            "trainscale": __version__,
            "cuda": cuda,
            "base": base,
            "python": version,
            "digest": definition.digest(cuda),
        }
        self.downloads = before.folder / ".downloads"

    def run(self, keep: bool) -> None:
        """``keep`` continues what is there; otherwise it is made from nothing."""
        if not keep and self.folder.is_symlink():
            self.folder.unlink()
        elif not keep and self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        # First of all: from here to the end the folder says of itself that it is not to be used.
        self._write()
        try:
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {self.requirements.name}", file=log, flush=True)
                if keep:
                    _drop_half_installed(self.folder)
                self._step("preparing", [self.facts["base"], "-I", "-m", "venv", str(self.folder)], log)
                self._step("collecting", self._pip(), log)
        finally:
            shutil.rmtree(self.downloads, ignore_errors=True)
        self.facts["packages"] = _packages(self.folder)
        self.facts["bytes"] = size_on_disk(self.folder)
        self.facts["seconds"] = round(self.progress.seconds, 1)
        self.facts["complete"] = True
        self._write()

    def _write(self) -> None:
        whole = self.folder / f".{FACTS}.new"
        whole.write_text(json.dumps(self.facts, indent=1) + "\n")
        whole.replace(self.folder / FACTS)

    def _pip(self) -> list[str]:
        return [
            self.python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-user",
            "--no-warn-script-location", "--progress-bar", "off", "-r", str(self.requirements),
        ]  # fmt: skip

    def _step(self, phase: str, command: list[str], log: Any) -> None:
        self.progress.phase, self.progress.what = phase, ""
        self.watch(self.progress)
        self.downloads.mkdir(exist_ok=True)
        lines: list[str] = []
        with _child(command, self._variables(), self.lock) as child:
            for line in _lines_and_ticks(child, self._tick):
                print(line, file=log, flush=True)
                lines.append(line)
                self.progress.read(line)
                self.watch(self.progress)
        if child.returncode != 0:
            raise TrainscaleError(
                f"environment {self.definition.name} could not be made: {reason(lines, child.returncode)}\n"
                f"  the whole log: {self.folder / LOG}\n"
                f"  to go on from here: trainscale env create {self.definition.name}"
            )

    def _variables(self) -> dict[str, str]:
        """Pip downloads into the environment's own folder: its size then tells the progress, and /tmp may be small."""
        unwanted = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_LOG")
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        return {**kept, "TMPDIR": str(self.downloads)}

    def _tick(self) -> None:
        self.progress.bytes = size_on_disk(self.folder)
        self.watch(self.progress)


@contextmanager
def _child(command: list[str], environment: dict[str, str], lock: int) -> Iterator[subprocess.Popen[str]]:
    """Runs in a session of its own, so that Ctrl-C reaches this process alone, which then ends the child in order.

    The child keeps the lock: should this process be killed, nobody else begins before the child is done.
    """
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),
    )
    try:
        yield child
        child.wait()
    except BaseException:
        _end(child)
        raise
    finally:
        assert child.stdout is not None
        child.stdout.close()


def _end(child: subprocess.Popen[str]) -> None:
    """SIGINT first: pip then takes back what it had half installed. Then whatever is left of its group."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(_PATIENCE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def _lines_and_ticks(child: subprocess.Popen[str], tick: Callable[[], None]) -> Iterator[str]:
    """The child's lines as they come; ``tick`` is called now and then, seldom where it takes long (a network disk)."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                lines.put(line.rstrip("\n"))
        except ValueError:
            pass  # closed under its reader, after an interruption
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    due = 0.0
    while True:
        if time.monotonic() >= due:
            began = time.monotonic()
            tick()
            now = time.monotonic()
            due = now + max(_TICK_SECONDS, 10 * (now - began))
        try:
            line = lines.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            continue
        if line is None:
            return
        yield line


def reason(lines: list[str], code: int) -> str:
    """The last line that says why, out of all that pip wrote."""
    broken = [match[1] for line in lines if (match := re.search(r"connection broken by '?(\w+)", line))]
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in said if line.startswith("ERROR:")]
    words = errors[-1] if errors else said[-1] if said else f"exit code {code} without a word"
    return f"no connection to the package index ({broken[-1]}): {words}" if broken else words


def _packages(folder: Path) -> dict[str, str]:
    """Versions by normalised name, without importing anything."""
    found = {}
    for site in folder.glob("lib/python*/site-packages"):
        for one in metadata.distributions(path=[str(site)]):
            found[re.sub(r"[-_.]+", "-", one.name).lower()] = one.version
    return dict(sorted(found.items()))


def _drop_half_installed(folder: Path) -> None:
    """After an interruption pip would take a package for installed of which only some files are there. Its record goes,
    so that pip installs it again.
    """
    for site in folder.glob("lib/python*/site-packages"):
        for info in site.glob("*.dist-info"):
            if not _whole(metadata.Distribution.at(info), site):
                shutil.rmtree(info)


def _whole(one: metadata.Distribution, site: Path) -> bool:
    if one.read_text("METADATA") is None or not one.read_text("RECORD"):
        return False
    for file in one.files or ():
        try:
            size = (site / file).stat().st_size
        except OSError:
            return False
        # Byte code carries no size, nor do scripts: those are written anew with this Python's path.
        if file.size is not None and file.size != size:
            return False
    return True
