"""Environments of frameworks, in the user's data folder: definitions, states, creation by uv, removal."""

import ast
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path

from .. import __version__
from ..errors import InputError, TrainscaleError
from ..folders import find_data_folder
from ..worker.frameworks.catalog import FRAMEWORKS

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
FACTS = "trainscale-environment.json"

READY, OUTDATED, INCOMPLETE = "ready", "outdated", "incomplete"
BROKEN, OWN, ABSENT = "broken", "your own", "not there"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks; then the user must take care


@dataclass(frozen=True)
class Definition:
    name: str
    frameworks: tuple[str, ...]
    oldest: tuple[int, int] = (3, 11)  # the Pythons on which the pinned packages run
    newest: tuple[int, int] | None = None
    files: Path = REQUIREMENTS

    def find_requirements(self, cuda: bool) -> Path:
        return self.files / f"{self.name}{'.cuda' if cuda else ''}.txt"

    def read_requirements(self, cuda: bool) -> list[str]:
        lines = self.find_requirements(cuda).read_text().splitlines()
        return sorted(filter(None, (line.partition("#")[0].strip() for line in lines)))

    def compute_digest(self, cuda: bool) -> str:
        return hashlib.sha256("\n".join(self.read_requirements(cuda)).encode()).hexdigest()[:16]


_SINGLE = ("torch", "tensorflow", "jax", "keras-jax", "keras-tensorflow", "keras-torch")
DEFINITIONS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("main", _SINGLE),
        *(Definition(name, (name,)) for name in _SINGLE),
        Definition("mxnet", ("mxnet",), oldest=(3, 9), newest=(3, 12)),
    )
}


def find_environments_folder() -> Path:
    return find_data_folder() / "envs"


@dataclass(frozen=True)
class EnvironmentFacts:
    """What the installation wrote into the folder. Files of older versions may lack fields."""

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
    """An environment; without facts if trainscale did not create it."""

    name: str
    folder: Path
    state: str
    facts: EnvironmentFacts | None

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def is_usable(self) -> bool:
        return self.state in (READY, OUTDATED, OWN)

    def has(self, modules: tuple[str, ...]) -> bool:
        folders = list(self.folder.glob("lib/python*/site-packages"))
        return all(
            any((folder / file).exists() for folder in folders for file in (f"{module}/__init__.py", f"{module}.py"))
            for module in modules
        )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The installed frameworks; of an environment that is not usable, those of its definition."""
        if self.is_usable:
            return tuple(name for name, framework in FRAMEWORKS.items() if self.has(framework.imports))
        return DEFINITIONS[self.name].frameworks if self.name in DEFINITIONS else ()

    @property
    def packages(self) -> dict[str, str]:
        modules = {module for framework in FRAMEWORKS.values() for module in framework.imports}
        main = re.compile(rf"(numpy|({'|'.join(map(re.escape, sorted(modules)))})(-cpu|-cu\d+)?)")
        packages = self.facts.packages if self.facts else {}
        return {name: version for name, version in packages.items() if main.fullmatch(name)}

    @property
    def bytes(self) -> int:
        return (self.facts.bytes if self.facts else 0) or measure_size_on_disk(self.folder)


def read_environment(name: str) -> Environment:
    import msgspec

    folder = find_environments_folder() / name
    has_python = (folder / "bin" / "python").exists()  # False also for a link to an interpreter that is gone
    try:
        facts = msgspec.json.decode((folder / FACTS).read_bytes(), type=EnvironmentFacts)
    except FileNotFoundError:
        # The installation writes the facts first. A Python without facts was put, or linked, there by the user.
        state = OWN if has_python else INCOMPLETE if os.path.lexists(folder) else ABSENT
        return Environment(name, folder, state, None)
    except (OSError, msgspec.DecodeError):
        facts = EnvironmentFacts()  # unreadable facts count as incomplete
    state = INCOMPLETE if not facts.complete else READY if has_python else BROKEN
    if state == READY and name in DEFINITIONS and DEFINITIONS[name].compute_digest(bool(facts.cuda)) != facts.digest:
        state = OUTDATED
    return Environment(name, folder, state, facts)


def list_environments() -> list[Environment]:
    try:
        names = {path.name for path in find_environments_folder().iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return []
    defined = [name for name in DEFINITIONS if name in names]
    return [read_environment(name) for name in (*defined, *sorted(names.difference(defined)))]


# ---- creation and removal


def create(definition: Definition, cuda: bool | None, default_cuda: bool, base: str | None) -> bool:
    """Create, continue or update an environment. Return False if there was nothing to do.

    Without ``cuda`` and ``base``, an environment keeps its kind and its Python, and a new one gets ``default_cuda``
    and the Python that runs trainscale.
    """
    with lock(definition.name, waits=True):
        before = read_environment(definition.name)
        if before.state == OWN:
            return False
        folder, known = before.folder, before.facts or EnvironmentFacts()
        if before.facts is None and folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"environment {definition.name}: {folder} holds other files; move them away")
        if cuda is None:
            cuda = default_cuda if known.cuda is None else known.cuda
        if before.state == READY and known.cuda == cuda and base is None:
            return False
        base = base or (known.base if known.base and Path(known.base).exists() else sys.executable)
        print_version = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
        done = subprocess.run([base, "-I", "-c", print_version], capture_output=True, text=True, errors="replace")
        version = done.stdout.strip()
        if done.returncode != 0 or not re.fullmatch(r"\d+\.\d+\.\d+", version):
            message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise InputError(f"{base} does not work: {message}\n  name another Python: --base PYTHON")
        number, newest = tuple(int(part) for part in version.split(".")[:2]), definition.newest
        if number < definition.oldest or (newest is not None and number > newest):
            upper = f" to {'.'.join(map(str, newest))}" if newest else " or newer"
            need = f"environment {definition.name} needs Python {'.'.join(map(str, definition.oldest))}{upper}"
            raise InputError(f"{need}; {base} is {version}\n  name another Python: --base PYTHON")
        facts = EnvironmentFacts(False, __version__, cuda, base, version, definition.compute_digest(cuda))
        is_same_kind = (known.cuda, known.python) == (facts.cuda, facts.python)
        if before.state == READY and is_same_kind:
            return False
        if before.state not in (READY, OUTDATED) or not is_same_kind:
            _clear(folder)  # a half-installed package would count as installed
        began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        _write_facts(folder, facts)  # first of all: until the end, the folder says that it is incomplete
        _install(definition, before, facts)
        found = metadata.distributions(path=[str(site) for site in folder.glob("lib/python*/site-packages")])
        packages = {re.sub(r"[-_.]+", "-", package.name).lower(): package.version for package in found}
        facts = replace(facts, complete=True, packages=dict(sorted(packages.items())))
        seconds = round(time.monotonic() - began, 1)
        _write_facts(folder, replace(facts, bytes=measure_size_on_disk(folder), seconds=seconds))
    return True


def _install(definition: Definition, environment: Environment, facts: EnvironmentFacts) -> None:
    try:
        import uv

        program = str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        raise InputError("trainscale env create needs uv, which is not installed\n  pip install uv") from None
    requirements = str(definition.find_requirements(bool(facts.cuda)))
    variables, no_index = find_package_index(os.environ)
    install = [program, "pip", "install", "--python", environment.python, "--compile-bytecode", *no_index]
    commands = [
        [program, "venv", "--allow-existing", "--quiet", "--python", facts.base, str(environment.folder)],
        # For users who add packages of their own. Some systems' Pythons have no ensurepip, then there is no pip.
        [environment.python, "-I", "-m", "ensurepip"],
        [*install, "-r", requirements],
    ]
    for command in commands:
        output = None if command[0] == program else subprocess.DEVNULL
        # In the folder: uv would read the pyproject.toml of the current one, and /tmp may be small. In a session of
        # its own: an interruption reaches this process alone, which ends uv and what uv started.
        child = subprocess.Popen(
            command,
            cwd=environment.folder,
            env={**variables, "TMPDIR": str(environment.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGINT)
            child.wait()
            raise
        if child.returncode != 0 and command[0] == program:
            name, code = definition.name, child.returncode
            failure = f"environment {name} could not be created: uv ended with exit code {code}; its message is above"
            raise TrainscaleError(f"{failure}\n  to continue: trainscale env create {name}")


# The variable of uv for each setting of pip.
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}


def find_package_index(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return variables and options by which uv finds packages as pip does; uv's own win."""
    own = environment.keys() & {"UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"}
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    settings = {}
    for section in ("global", "install", ":env:"):  # in pip's order: the last one wins
        for key, value in re.findall(rf"^{section}\.([\w-]+)=('.*'|\".*\")$", done.stdout, re.MULTILINE):
            if not own or key in ("trusted-host", "cert", "proxy"):
                settings[key] = str(ast.literal_eval(value)).split()
    # pip compares the versions of all indexes; uv would take those of the first that has the package.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for key in settings.keys() & _UV_VARIABLES:
        variables[_UV_VARIABLES[key]] = ("," if key == "find-links" else " ").join(settings[key])
    return {**variables, **environment}, ["--no-index"] if settings.get("no-index") in (["1"], ["true"]) else []


def _write_facts(folder: Path, facts: EnvironmentFacts) -> None:
    new = folder / f".{FACTS}.new"
    new.write_text(json.dumps(asdict(facts), indent=1) + "\n")
    new.replace(folder / FACTS)


def remove(environment: Environment) -> int:
    """Remove the environment and return its size. Of a link, only the link is removed."""
    with lock(environment.name):
        size = 0 if environment.folder.is_symlink() else measure_size_on_disk(environment.folder)
        _clear(environment.folder)
    return size


def _clear(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        # Renamed first: an interrupted removal must not leave what looks like an environment.
        removed = folder.with_name(f".removed-{folder.name}-{os.getpid()}")
        folder.rename(removed)
        shutil.rmtree(removed)


@contextmanager
def lock(name: str, waits: bool = False) -> Iterator[None]:
    """If another process has the lock, wait for it or raise InputError."""
    find_environments_folder().mkdir(parents=True, exist_ok=True)
    with (find_environments_folder() / f".{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"environment {name}: another trainscale is creating it now") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def measure_size_on_disk(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may be creating or removing it
            total += path.lstat().st_blocks * 512
    return total
