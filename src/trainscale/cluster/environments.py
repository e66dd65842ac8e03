"""The environments in which frameworks run: which there can be, which there are, in what state, and their removal.

An environment is a folder with a Python of its own, in the user's data directory. Making one is installation.py's work;
which one serves a trial is decided in launch/inspection/pythons.py.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..worker.frameworks.catalog import FRAMEWORKS

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
FACTS, LOG = "trainscale-environment.json", "trainscale-create.log"

READY, OUTDATED, INCOMPLETE, BROKEN, OWN, ABSENT = "ready", "outdated", "incomplete", "broken", "your own", "not there"
USABLE = (READY, OUTDATED, OWN)
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some clusters' file systems; then the user must take care


@dataclass(frozen=True)
class Definition:
    """An environment that can be made: for which frameworks, from which Pythons, and where its requirements are."""

    name: str
    frameworks: tuple[str, ...]
    oldest: tuple[int, int] = (3, 11)  # Python; what the pinned packages run on
    newest: tuple[int, int] | None = None
    files: Path = REQUIREMENTS

    def requirements(self, cuda: bool) -> Path:
        return self.files / f"{self.name}{'.cuda' if cuda else ''}.txt"

    def digest(self, cuda: bool) -> str:
        """Of what would be installed now; comments and order do not count."""
        lines = requirement_lines(self.requirements(cuda))
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


_ALONE = ("torch", "tensorflow", "jax", "keras-jax", "keras-tensorflow", "keras-torch")
DEFINITIONS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("main", _ALONE),
        *(Definition(name, (name,)) for name in _ALONE),
        Definition("mxnet", ("mxnet",), oldest=(3, 9), newest=(3, 12)),
    )
}


def requirement_lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def home() -> Path:
    """Where environments live. An empty or relative XDG_DATA_HOME counts as none, as its specification asks."""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "trainscale" / "envs"


@dataclass(frozen=True)
class Environment:
    """One as it is now. ``facts`` is what its making wrote down: kind, Python, packages, bytes."""

    name: str
    folder: Path
    state: str
    facts: dict[str, Any]

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def usable(self) -> bool:
        return self.state in USABLE

    def has(self, modules: tuple[str, ...]) -> bool:
        """Whether these modules are installed in it, by their files: nothing is imported, no process is started."""
        folders = list(self.folder.glob("lib/python*/site-packages"))
        return all(
            any((folder / module / "__init__.py").exists() or (folder / f"{module}.py").exists() for folder in folders)
            for module in modules
        )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Those that it serves; for one that cannot be used yet, those that it is for."""
        if self.usable:
            return tuple(name for name, framework in FRAMEWORKS.items() if self.has(framework.imports))
        return DEFINITIONS[self.name].frameworks if self.name in DEFINITIONS else ()

    @property
    def packages(self) -> dict[str, str]:
        """Versions of what it was made for, not of all that this needs."""
        modules = {module for framework in FRAMEWORKS.values() for module in framework.imports}
        main = re.compile(rf"(numpy|({'|'.join(map(re.escape, sorted(modules)))})(-cpu|-cu\d+)?)")
        return {name: version for name, version in self.facts.get("packages", {}).items() if main.fullmatch(name)}

    @property
    def bytes(self) -> int:
        return int(self.facts.get("bytes") or size_on_disk(self.folder))


def read_environment(name: str) -> Environment:
    folder = home() / name
    facts = read_facts(folder)
    return Environment(name, folder, _state(name, folder, facts), facts or {})


def _state(name: str, folder: Path, facts: dict[str, Any] | None) -> str:
    python = (folder / "bin" / "python").exists()  # false also for a link to an interpreter that is gone
    if facts is None:
        # Making one writes its facts first. A Python without them was put, or linked, there by the user.
        return OWN if python else INCOMPLETE if os.path.lexists(folder) else ABSENT
    if not facts.get("complete"):
        return INCOMPLETE
    if not python:
        return BROKEN
    definition = DEFINITIONS.get(name)
    return (
        READY if definition is None or definition.digest(bool(facts.get("cuda"))) == facts.get("digest") else OUTDATED
    )


def there() -> list[Environment]:
    """All that exist, in the order in which they are offered; those that this version does not define come last."""
    try:
        found = {path.name for path in home().iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return []
    return [
        read_environment(name)
        for name in (*(name for name in DEFINITIONS if name in found), *sorted(found - {*DEFINITIONS}))
    ]


def read_facts(folder: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads((folder / FACTS).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}  # unreadable: as good as incomplete
    return facts if isinstance(facts, dict) else {}


def remove(environment: Environment) -> int:
    """Bytes that are free again. What is a link to somewhere else goes as a link."""
    with lock(environment.name):
        if environment.folder.is_symlink():
            environment.folder.unlink()
            return 0
        size = size_on_disk(environment.folder)
        # Renamed first: a removal that is interrupted must not leave something that looks like an environment.
        away = environment.folder.with_name(f".removed-{environment.name}-{os.getpid()}")
        environment.folder.rename(away)
        for leftover in home().glob(".removed-*"):
            shutil.rmtree(leftover, ignore_errors=leftover != away)
    return size


@contextmanager
def lock(name: str, waiting: Callable[[], None] | None = None) -> Iterator[int]:
    """While held, nobody else makes or removes this environment. Gives the descriptor, which a child may keep.

    Where another holds it: with ``waiting``, that is called once and then waited; without, it is an error.
    """
    home().mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home() / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                raise InputError(f"environment {name}: another trainscale is making it now") from None
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield descriptor
    finally:
        os.close(descriptor)


def size_on_disk(folder: Path) -> int:
    """Bytes of all files, links not followed. What vanishes meanwhile does not count."""
    total, left = 0, [str(folder)]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
