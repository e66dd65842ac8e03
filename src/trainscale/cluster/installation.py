"""Creates an environment with uv: a virtual environment, then the pinned requirements.

uv keeps what it downloaded in its cache, so a second attempt after an interruption downloads only what is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import IO

from .. import __version__
from ..errors import InputError, TrainscaleError
from .environments import (
    FACTS,
    LOG,
    OUTDATED,
    OWN,
    READY,
    Definition,
    Environment,
    EnvironmentFacts,
    lock,
    measure_size_on_disk,
    read_environment,
)
from .package_index import make_uv_options, make_uv_variables, read_pip_settings

_STOP_SECONDS = 10.0  # how long uv may take to end after Ctrl-C
_PRINT_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


@dataclass
class InstallationProgress:
    """What the installation of an environment does now; ``detail`` names packages, with their sizes."""

    environment: str
    phase: str = "preparing"
    detail: str = ""
    began: float = field(default_factory=time.monotonic)
    _downloads: dict[str, str] = field(default_factory=dict)  # those under way: name and size

    def read_line(self, line: str) -> None:
        """Update the phase from one line of uv's output."""
        if match := re.match(r"\s*Downloading (\S+) \((.+)\)$", line):
            self._downloads[match[1]] = match[2]
            self._show_downloads()
        elif match := re.match(r"\s*Downloaded (\S+)$", line):
            self._downloads.pop(match[1], None)
            self._show_downloads()
        elif match := re.match(r"Prepared (\d+ packages?) ", line):
            self.phase, self.detail = "installing", match[1]
        elif line.startswith("Installed "):
            self.phase, self.detail = "compiling byte code", ""

    def _show_downloads(self) -> None:
        names = [f"{name} ({size})" for name, size in self._downloads.items()]
        if names:
            self.phase = "downloading"
            self.detail = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


Watch = Callable[[InstallationProgress], None]


def create(definition: Definition, cuda: bool | None, default_cuda: bool, base: str | None, watch: Watch) -> bool:
    """Create, continue or update an environment. Return False if there was nothing to do.

    ``cuda`` and ``base`` are the user's choice. Without one, an environment keeps its kind and its Python, and a new
    one gets ``default_cuda`` and the Python that runs trainscale.
    """
    progress = InstallationProgress(definition.name)

    def report_waiting() -> None:
        progress.phase = "waiting for another trainscale that creates it"
        watch(progress)

    with lock(definition.name, report_waiting) as lock_descriptor:
        before = read_environment(definition.name)
        if before.state == OWN:
            return False
        if before.facts is None and before.folder.is_dir() and any(before.folder.iterdir()):
            raise InputError(f"environment {definition.name}: {before.folder} holds other files; move them away")
        facts = _plan_facts(definition, before, cuda, default_cuda, base)
        if facts is None:
            return False
        if not (before.state in (READY, OUTDATED) and _is_same_kind(before, facts)):
            _clear(before.folder)
        _Installation(definition, before, facts, lock_descriptor, progress, watch).run()
    return True


def _plan_facts(
    definition: Definition, before: Environment, cuda: bool | None, default_cuda: bool, base: str | None
) -> EnvironmentFacts | None:
    """Return what is to be installed, or None where it is installed already."""
    known = before.facts or EnvironmentFacts()
    if cuda is None:
        cuda = default_cuda if known.cuda is None else known.cuda
    if before.state == READY and known.cuda == cuda and base is None:
        return None
    base = base or (known.base if known.base and Path(known.base).exists() else sys.executable)
    version = _check_python(base, definition)
    facts = EnvironmentFacts(False, __version__, cuda, base, version, definition.compute_digest(cuda))
    return None if before.state == READY and _is_same_kind(before, facts) else facts


def _is_same_kind(before: Environment, facts: EnvironmentFacts) -> bool:
    known = before.facts
    return known is not None and (known.cuda, known.python) == (facts.cuda, facts.python)


def _clear(folder: Path) -> None:
    """Remove what is there. A half-installed package would count as installed; uv's cache has what was downloaded."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _check_python(python: str, definition: Definition) -> str:
    """Return the version of a Python that this environment can be created from. Raise InputError for any other."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PRINT_VERSION], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InputError(f"--base: {python} is not a Python: {error.strerror}") from None
    version = done.stdout.strip()
    if done.returncode != 0 or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"{python} does not work: {message}\n  name another Python: --base PYTHON")
    number = tuple(int(part) for part in version.split(".")[:2])
    if number < definition.oldest or (definition.newest is not None and number > definition.newest):
        upper = f" to {'.'.join(map(str, definition.newest))}" if definition.newest else " or newer"
        raise InputError(
            f"environment {definition.name} needs Python {'.'.join(map(str, definition.oldest))}{upper}; {python} is"
            f" {version}\n  name another Python: trainscale env create {definition.name} --base PYTHON"
        )
    return version


@dataclass
class _Installation:
    """One attempt to install one environment, under its lock."""

    definition: Definition
    environment: Environment
    facts: EnvironmentFacts
    lock_descriptor: int
    progress: InstallationProgress
    watch: Watch
    _variables: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        folder, python = self.environment.folder, self.environment.python
        requirements = self.definition.find_requirements(bool(self.facts.cuda))
        folder.mkdir(parents=True, exist_ok=True)
        self._write_facts()  # first of all: until the end, the folder says that it is incomplete
        uv, settings = _find_uv(), read_pip_settings()
        # TMPDIR: /tmp may be small, and without a cache uv downloads to it.
        self._variables = {**make_uv_variables(settings), "TMPDIR": str(folder)}
        with (folder / LOG).open("a", encoding="utf-8") as log:
            print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {requirements.name}", file=log, flush=True)
            self._run("preparing", [uv, "venv", "--allow-existing", "--python", self.facts.base, str(folder)], log)
            # For users who add packages of their own. Some systems' Pythons have no ensurepip, then there is no pip.
            self._run("preparing", [python, "-I", "-m", "ensurepip"], log, may_fail=True)
            install = [uv, "pip", "install", "--python", python, "--compile-bytecode", *make_uv_options(settings)]
            self._run("resolving", [*install, "-r", str(requirements)], log)
        seconds = round(self.progress.seconds, 1)
        self.facts = replace(
            self.facts,
            complete=True,
            packages=_list_packages(folder),
            bytes=measure_size_on_disk(folder),
            seconds=seconds,
        )
        self._write_facts()

    def _write_facts(self) -> None:
        new = self.environment.folder / f".{FACTS}.new"
        new.write_text(json.dumps(asdict(self.facts), indent=1) + "\n")
        new.replace(self.environment.folder / FACTS)

    def _run(self, phase: str, command: list[str], log: IO[str], may_fail: bool = False) -> None:
        self.progress.phase, self.progress.detail = phase, ""
        self.watch(self.progress)
        lines: list[str] = []
        with _run_child_process(command, self.environment.folder, self._variables, self.lock_descriptor) as child:
            assert child.stdout is not None
            for line in child.stdout:
                print(line.rstrip("\n"), file=log, flush=True)
                lines.append(line.rstrip("\n"))
                self.progress.read_line(lines[-1])
                self.watch(self.progress)
        if child.returncode != 0 and not may_fail:
            reason = find_failure_reason(lines, child.returncode)
            raise TrainscaleError(
                f"environment {self.definition.name} could not be created: {reason}\n"
                f"  the log: {self.environment.folder / LOG}\n"
                f"  to continue: trainscale env create {self.definition.name}"
            )


def _find_uv() -> str:
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
    if program is None:
        raise InputError("trainscale env create needs uv, which is not installed\n  pip install uv")
    return program


@contextmanager
def _run_child_process(
    command: list[str], folder: Path, variables: dict[str, str], lock_descriptor: int
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a session of its own, so that Ctrl-C reaches only this process, which then ends the child.

    The child keeps the lock: if this process is killed, nobody else begins before the child has ended. It runs in the
    environment's folder, because uv would read the pyproject.toml of the current one.
    """
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock_descriptor,),
    )
    try:
        yield child
        child.wait()
    except BaseException:
        _stop(child)
        raise
    finally:
        assert child.stdout is not None
        child.stdout.close()


def _stop(child: subprocess.Popen[str]) -> None:
    """End the child's process group: SIGINT first, so that it removes its temporary files, then SIGKILL."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(_STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def find_failure_reason(lines: list[str], exit_code: int) -> str:
    """Return uv's error and its root cause in one line."""
    start = next((number for number, line in enumerate(lines) if re.match(r"\s*(error:|×)", line)), None)
    if start is None:
        return next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {exit_code} and no message")
    messages: list[str] = []
    for line in lines[start:]:
        if not line.strip():
            break  # hints follow
        match = re.match(r"\s*(?:error:|×|╰─▶|├─▶|cause:|Caused by:)\s*(.*)", line)
        if match or not messages:
            messages.append((match[1] if match else line).strip())
        else:
            messages[-1] += " " + line.strip(" │")
    reason = ": ".join(dict.fromkeys((messages[0].rstrip(":"), messages[-1])))
    is_network = any(re.search(r"error sending request|dns error|tcp connect error", message) for message in messages)
    return f"no connection to the package index: {reason}" if is_network else reason


def _list_packages(folder: Path) -> dict[str, str]:
    """Return the versions of the installed packages by normalised name, without importing anything."""
    versions = {}
    for site in folder.glob("lib/python*/site-packages"):
        for distribution in metadata.distributions(path=[str(site)]):
            versions[re.sub(r"[-_.]+", "-", distribution.name).lower()] = distribution.version
    return dict(sorted(versions.items()))
