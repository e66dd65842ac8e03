"""The worker imports nothing of the rest of the package, because it is copied to other machines and run by other
interpreters. The controller never imports a framework.
"""

import ast
import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import trainscale

PACKAGE = Path(trainscale.__file__).parent
WORKER = PACKAGE / "worker"
FILES = sorted(path.relative_to(WORKER).as_posix() for path in WORKER.rglob("*.py"))
OLDEST = (3, 9)
# What the modules of each framework may import. Its environment.py runs before the framework is imported.
OF_FRAMEWORK = {
    "torch": {"torch", "torchvision", "timm"},
    "tensorflow": {"tensorflow"},
    "jax": {"jax", "jaxlib"},
    "keras": {"keras", "jax", "tensorflow", "torch"},
    "mxnet": {"mxnet"},
}
FRAMEWORKS = set().union(*OF_FRAMEWORK.values())
# What a rank imports for real data only, after it has chosen its cores, and what its loader processes are.
NEED_NUMPY = ("data/dataset.py", "data/loader.py")


def is_native(name: str) -> bool:
    """Return whether a file of the worker may import a framework at its top level."""
    parts = Path(name).parts
    return parts[0] == "frameworks" and len(parts) == 3 and parts[2] != "__init__.py"


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((WORKER / name).read_text(), name, feature_version=OLDEST)


def imports(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
    """Yield the absolute name and line of every import in a file of the worker."""
    package = ["trainscale", "worker", *Path(name).parent.parts]
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0:
            yield child.module or "", child.lineno
        elif isinstance(child, ast.ImportFrom):
            parent = package[: len(package) - (child.level - 1)]
            yield ".".join([*parent, *((child.module or "").split(".") if child.module else [])]), child.lineno


def at_import(node: ast.AST) -> ast.AST:
    """Return a copy without what does not run when the module is imported: functions, and blocks for type checkers."""

    class Prune(ast.NodeTransformer):
        def visit_FunctionDef(self, function: ast.FunctionDef) -> None:
            return None

        visit_AsyncFunctionDef = visit_FunctionDef

        def visit_If(self, condition: ast.If) -> ast.AST | None:
            if isinstance(condition.test, ast.Name) and condition.test.id == "TYPE_CHECKING":
                return None
            return self.generic_visit(condition)

    return Prune().visit(copy.deepcopy(node))


def test_worker_files_are_written_for_the_oldest_python() -> None:
    assert {"training/rank.py", "keeper/keeper.py", "models/catalog.py", "frameworks/torch/adapter.py"} <= set(FILES)
    errors = []
    for name in FILES:
        try:
            tree(name)
        except SyntaxError as error:
            errors.append(f"{name}:{error.lineno} {error.msg}")
    assert errors == []


def may_import(name: str, module: str) -> bool:
    """Return whether a file may import a module when it is imported itself."""
    top = module.split(".")[0]
    if top == "trainscale":
        return f"{module}.".startswith("trainscale.worker.")
    return is_native(name) or top in sys.stdlib_module_names or (top == "numpy" and name in NEED_NUMPY)


def may_use(name: str, module: str) -> bool:
    """Return whether a file may import a module when it is used."""
    top = module.split(".")[0]
    frameworks = OF_FRAMEWORK[Path(name).parts[1]] if is_native(name) else set()
    on_demand = {"data/folder.py": {"PIL"}, "witness/reference.py": {"torch"}}.get(name, set())
    return top in sys.stdlib_module_names | {"trainscale", "numpy"} | frameworks | on_demand


def test_worker_files_import_only_the_worker_the_standard_library_and_in_time_numpy_and_their_framework() -> None:
    strangers = [
        f"{name}:{line} imports {module}"
        for name in FILES
        for allows, node in ((may_import, at_import(tree(name))), (may_use, tree(name)))
        for module, line in imports(node, name)
        if not allows(name, module) or (module.split(".")[0] == "trainscale" and not may_import(name, module))
    ]
    assert strangers == []


def test_worker_files_use_no_argument_that_the_oldest_python_lacks() -> None:
    newer = {("zip", "strict"), ("dataclass", "slots"), ("dataclass", "kw_only"), ("field", "kw_only")}
    used = [
        f"{name}:{call.lineno} passes {keyword.arg} to {call.func.id}"
        for name in FILES
        for call in ast.walk(tree(name))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        for keyword in call.keywords
        if (call.func.id, keyword.arg) in newer
    ]
    assert used == []


# ---- in separate interpreters


def python_3_9() -> str | None:
    candidates = [shutil.which("python3.9"), *sorted(Path.home().glob(".pyenv/versions/3.9*/bin/python"))]
    for candidate in filter(None, candidates):
        works = subprocess.run(
            [str(candidate), "-c", "import sys; assert sys.version_info[:2] == (3, 9)"],
            capture_output=True,
            check=False,
        )
        if works.returncode == 0:
            return str(candidate)
    return None


_IMPORT_ALL = """
import importlib, json, sys, types
package = types.ModuleType("trainscale")
package.__path__ = [sys.argv[1]]
sys.modules["trainscale"] = package
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
from trainscale.worker import models
print(json.dumps([models.build("alexnet").parameter_count, sorted(n.split(".")[0] for n in sys.modules)]))
"""


@pytest.mark.processes
def test_a_copied_worker_imports_under_the_oldest_python_alone(tmp_path: Path) -> None:
    python = python_3_9()
    if python is None:
        pytest.skip("there is no Python 3.9 here")
    shutil.copytree(WORKER, tmp_path / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    names = [
        ".".join(["trainscale", "worker", *Path(name).with_suffix("").parts]).removesuffix(".__init__")
        for name in FILES
        if not is_native(name) and name not in NEED_NUMPY
    ]
    done = subprocess.run(
        [python, "-I", "-c", _IMPORT_ALL, str(tmp_path), json.dumps(names)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parameters, loaded = json.loads(done.stdout)
    assert parameters == 61_100_840
    assert not {"numpy", "torch"} & set(loaded)


@pytest.mark.processes
def test_start_py_works_wherever_the_worker_was_copied_to(tmp_path: Path) -> None:
    copy = tmp_path / "a folder" / "worker"
    shutil.copytree(WORKER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    plan = json.dumps({"deadline_seconds": 60, "tasks": []}) + "\n"
    done = subprocess.run(
        [python_3_9() or sys.executable, "-I", str(copy / "start.py"), "keeper"],
        input=plan, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"kind":"end"' in done.stdout
    command = [sys.executable, str(copy / "start.py"), "cook"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "usage: start.py rank|keeper|look|links|probe|parity|expectation|program|loader"


_RUN = """
import json, os, sys
import trainscale.cli
argv = json.loads(sys.argv[1])
devnull = sys.stdout = open(os.devnull, "w")
try:
    code = trainscale.cli.main(argv)
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def loaded_by(*argv: str, cwd: Path) -> set[str]:
    """Return the top-level modules that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(argv)], capture_output=True, text=True, check=True, cwd=cwd
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.processes
@pytest.mark.parametrize("command", ["plan", "models", "frameworks"])
def test_a_listing_imports_no_framework_and_no_chart_library(command: str, tmp_path: Path) -> None:
    heavy = loaded_by(command, cwd=tmp_path) & {"torch", "numpy", "altair", "vl_convert", "jinja2"}
    assert heavy == ({"jinja2"} if command == "plan" else set())  # the order of a plan is a template


@pytest.mark.processes
def test_a_report_imports_no_framework(tmp_path: Path) -> None:
    from trainscale.record.journal import open_journal
    from trainscale.record.run import RunInfo
    from trainscale.record.trial import RankSample, TrialRecord
    from trainscale.spec.config import Config, Trial

    with open_journal(tmp_path / "run", RunInfo({"steps": 2})) as journal:
        trial = Trial(Config("torch", "mnist", 8, "allreduce", 28, 10), 1, 0)
        sample = RankSample(0, "here", 16, 1.0, (0.5, 0.5))
        journal.append(TrialRecord(trial, "ok", "2026-01-02T03:04:05+00:00", 3.0, steps=2, ranks=(sample,)))
    assert loaded_by("report", "run", cwd=tmp_path) & FRAMEWORKS == set()  # scipy brings numpy


def test_no_file_of_the_controller_imports_a_framework_anywhere() -> None:
    imports_of_frameworks = [
        f"{path}:{child.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if WORKER not in path.parents
        for child in ast.walk(ast.parse(path.read_text()))
        if (isinstance(child, ast.Import) and {alias.name.split(".")[0] for alias in child.names} & FRAMEWORKS)
        or (isinstance(child, ast.ImportFrom) and not child.level and (child.module or "").split(".")[0] in FRAMEWORKS)
    ]
    assert imports_of_frameworks == []
