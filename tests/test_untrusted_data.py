"""No data that others wrote can run a program: nothing of it is unpickled, evaluated, or given to a shell."""

import ast
import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainscale
from trainscale.worker.data.published_files import _ArrayUnpickler

SOURCES = Path(trainscale.__file__).parent
# The published CIFAR-10 files are pickles. A reader with a list of the few names that such a file may use reads them.
READER = "worker/data/published_files.py"
FORBIDDEN = {"pickle.load", "pickle.loads", "marshal.loads", "shelve.open", "yaml.load", "yaml.unsafe_load",
             "dill.load", "joblib.load", "os.system", "os.popen", "eval", "exec"}  # fmt: skip


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield path, call and name of the function, for every call in the package."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield path.relative_to(SOURCES).as_posix(), node, ast.unparse(node.func)


def test_no_function_is_called_that_runs_what_it_reads_and_no_command_is_a_line_for_a_shell() -> None:
    for path, call, name in calls():
        assert name not in FORBIDDEN, f"{path}:{call.lineno}"
        if name.startswith("subprocess."):
            assert all(keyword.arg != "shell" for keyword in call.keywords), f"{path}:{call.lineno}"


def test_weights_and_arrays_are_loaded_without_pickles() -> None:
    for path, call, name in calls():
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name.endswith("torch.load"):
            assert options.get("weights_only") == "True", f"{path}:{call.lineno}"
        assert options.get("allow_pickle", "False") == "False", f"{path}:{call.lineno}"


def test_only_the_reader_with_a_list_of_names_reads_pickles() -> None:
    importing = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and any(alias.name == "pickle" for alias in node.names)
    }
    assert importing == {READER}
    text = (SOURCES / READER).read_text()
    uses = {ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert {use for use in uses if use.startswith("pickle.")} <= {"pickle.Unpickler", "pickle.UnpicklingError"}
    assert text.count("class _ArrayUnpickler(pickle.Unpickler)") == text.count("(pickle.Unpickler)") == 1


class Malicious:
    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._file,)


def test_a_malicious_file_in_place_of_a_published_one_runs_nothing(tmp_path: Path) -> None:
    content = pickle.dumps({b"labels": [1], b"data": Malicious(tmp_path / "ran")})
    with pytest.raises(pickle.UnpicklingError):
        _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    assert not (tmp_path / "ran").exists()
    pickle.loads(content)
    assert (tmp_path / "ran").exists()  # what the reader prevents
