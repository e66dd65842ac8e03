"""Environments in which frameworks run: the definitions, the state of each one on this machine, and their removal.

An environment is a folder with its own Python, in the user's data folder. installation.py creates environments;
launch/inspection/pythons.py decides which one serves a trial.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..folders import find_data_folder
from ..worker.frameworks.catalog import FRAMEWORKS

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
FACTS, LOG = "trainscale-environment.json", "trainscale-create.log"

READY, OUTDATED, INCOMPLETE, BROKEN, OWN, ABSENT = "ready", "outdated", "incomplete", "broken", "your own", "not there"
USABLE = (READY, OUTDATED, OWN)
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks; then the user must take care


@dataclass(frozen=True)
class Definition:
    """An environment that can be created: its frameworks, its range of Pythons, and the folder of its requirements."""

    name: str
    frameworks: tuple[str, ...]
    oldest: tuple[int, int] = (3, 11)  # the Pythons on which the pinned packages run
    newest: tuple[int, int] | None = None
    files: Path = REQUIREMENTS

    def find_requirements(self, cuda: bool) -> Path:
        return self.files / f"{self.name}{'.cuda' if cuda else ''}.txt"

    def compute_digest(self, cuda: bool) -> str:
        """Return a digest of the requirements; comments and order do not count."""
        lines = read_requirement_lines(self.find_requirements(cuda))
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


_SINGLE = ("torch", "tensorflow", "jax", "keras-jax", "keras-tensorflow", "keras-torch")
DEFINITIONS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("main", _SINGLE),
        *(Definition(name, (name,)) for name in _SINGLE),
        Definition("mxnet", ("mxnet",), oldest=(3, 9), newest=(3, 12)),
    )
}


def read_requirement_lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def find_environments_folder() -> Path:
    return find_data_folder() / "envs"


@dataclass(frozen=True)
class EnvironmentFacts:
    """What the installation wrote into the environment's folder. Files of older versions may lack fields."""

    complete: bool = False
    trainscale: str = ""  # the version that created it
    cuda: bool | None = None  # whether its packages are for NVIDIA GPUs
    base: str = ""  # the Python from which it was created
    python: str = ""  # the version of that Python
    digest: str = ""  # of the requirements that were installed
    packages: dict[str, str] = field(default_factory=dict)  # versions by normalised name
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Environment:
    """An environment in its present state. It has no facts where trainscale did not create it."""

    name: str
    folder: Path
    state: str
    facts: EnvironmentFacts | None

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def is_usable(self) -> bool:
        return self.state in USABLE

    def has(self, modules: tuple[str, ...]) -> bool:
        """Tell from the files whether these modules are installed; nothing is imported and no process is started."""
        folders = list(self.folder.glob("lib/python*/site-packages"))
        return all(
            any((folder / module / "__init__.py").exists() or (folder / f"{module}.py").exists() for folder in folders)
            for module in modules
        )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that are installed; for an environment that is not usable yet, those of its definition."""
        if self.is_usable:
            return tuple(name for name, framework in FRAMEWORKS.items() if self.has(framework.imports))
        return DEFINITIONS[self.name].frameworks if self.name in DEFINITIONS else ()

    @property
    def packages(self) -> dict[str, str]:
        """The versions of the frameworks and numpy, without the packages that these depend on."""
        modules = {module for framework in FRAMEWORKS.values() for module in framework.imports}
        main = re.compile(rf"(numpy|({'|'.join(map(re.escape, sorted(modules)))})(-cpu|-cu\d+)?)")
        packages = self.facts.packages if self.facts else {}
        return {name: version for name, version in packages.items() if main.fullmatch(name)}

    @property
    def bytes(self) -> int:
        return (self.facts.bytes if self.facts else 0) or measure_size_on_disk(self.folder)


def read_environment(name: str) -> Environment:
    folder = find_environments_folder() / name
    facts = _read_facts(folder)
    return Environment(name, folder, _find_state(name, folder, facts), facts)


def _find_state(name: str, folder: Path, facts: EnvironmentFacts | None) -> str:
    has_python = (folder / "bin" / "python").exists()  # False also for a link to an interpreter that is gone
    if facts is None:
        # The installation writes the facts first. A Python without facts was put, or linked, there by the user.
        return OWN if has_python else INCOMPLETE if os.path.lexists(folder) else ABSENT
    if not facts.complete:
        return INCOMPLETE
    if not has_python:
        return BROKEN
    definition = DEFINITIONS.get(name)
    return READY if definition is None or definition.compute_digest(bool(facts.cuda)) == facts.digest else OUTDATED


def list_environments() -> list[Environment]:
    """Return the environments on this machine, in the order of the definitions; others come last."""
    try:
        names = {path.name for path in find_environments_folder().iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return []
    defined = [name for name in DEFINITIONS if name in names]
    return [read_environment(name) for name in (*defined, *sorted(names.difference(defined)))]


def _read_facts(folder: Path) -> EnvironmentFacts | None:
    import msgspec

    try:
        return msgspec.json.decode((folder / FACTS).read_bytes(), type=EnvironmentFacts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return EnvironmentFacts()  # unreadable facts count as incomplete


def remove(environment: Environment) -> int:
    """Remove the environment and return its size in bytes. Of a link, only the link is removed."""
    with lock(environment.name):
        if environment.folder.is_symlink():
            environment.folder.unlink()
            return 0
        size = measure_size_on_disk(environment.folder)
        # Renamed first: an interrupted removal must not leave something that looks like an environment.
        removed = environment.folder.with_name(f".removed-{environment.name}-{os.getpid()}")
        environment.folder.rename(removed)
        for folder in find_environments_folder().glob(".removed-*"):
            shutil.rmtree(folder, ignore_errors=folder != removed)
    return size


@contextmanager
def lock(name: str, on_wait: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the lock of an environment, so that nobody else creates or removes it. Yield the descriptor of the lock.

    If another process holds the lock: with ``on_wait``, call it once and wait; without it, raise InputError.
    """
    find_environments_folder().mkdir(parents=True, exist_ok=True)
    descriptor = os.open(find_environments_folder() / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is None:
                raise InputError(f"environment {name}: another trainscale is creating it now") from None
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield descriptor
    finally:
        os.close(descriptor)


def measure_size_on_disk(folder: Path) -> int:
    """Return the bytes of all files below a folder. Links are not followed; files that vanish do not count."""
    total, folders = 0, [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
