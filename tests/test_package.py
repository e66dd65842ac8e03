"""The package as a whole: its version, its public names, its errors, and the direction of its imports."""

import ast
import importlib
import re
from importlib import metadata
from pathlib import Path

import pytest

import trainscale
from audit import EXPLAINED
from trainscale import errors
from trainscale.errors import InputError, TrainscaleError, explain_unknown

PACKAGE = Path(trainscale.__file__).parent
MODULES = sorted(
    ".".join(["trainscale", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)
# A program that runs in a Python with Ray; no other module imports it.
RAY_CLIENT = "trainscale.launch.launchers.ray_client"
WITHOUT_A_FRAMEWORK = [
    name
    for name in MODULES
    if (".frameworks." not in name or name.count(".") == 3 or name.endswith(".environment")) and name != RAY_CLIENT
]


def test_the_version_and_the_command_are_those_of_the_installed_package() -> None:
    (script,) = (entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "trainscale")
    assert script.value == "trainscale.cli:main"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", trainscale.__version__)
    assert metadata.version("trainscale") == trainscale.__version__


def test_every_module_can_be_imported_and_has_a_docstring_and_the_names_in_its_all() -> None:
    problems = {}
    for name in WITHOUT_A_FRAMEWORK:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            problems[name] = f"{type(error).__name__}: {error}"
            continue
        if module.__file__ and Path(module.__file__).read_text().strip() and not module.__doc__:
            problems[name] = "has no docstring"
        exported = getattr(module, "__all__", [])
        missing = [each for each in exported if not hasattr(module, each)]
        if missing or len(set(exported)) < len(exported):
            problems[name] = f"missing: {missing}, or named twice"
    assert problems == {}


def test_the_models_package_exports_exactly_these_names() -> None:
    from trainscale.worker import models

    assert set(models.__all__) == {
        "BATCH_NORM_EPS", "BATCH_NORM_MOMENTUM", "CROSS_ENTROPY", "IMAGES", "KINDS", "MODELS", "Builder", "Graph",
        "Head", "Layer", "ModelInfo", "Parameter", "Samples", "ShapeError", "TrainingDefaults", "build",
        "initial_weights", "list_names", "resolve", "find_samples", "find_training_defaults",
    }  # fmt: skip


# A folder imports only from folders before it. `launch` and `analyse` share `record`. `run` uses all of them, and the
# report and the command line use `run`. `cluster` gives the plan its available devices, so it imports `spec`.
# `questions` word their answers with the numbers, tables and charts of `report`; its documents show those answers, so
# they come after them. runs.py, which `import trainscale` offers, and the commands use all of them.
DOCUMENTS = "report/details.py"
DOCUMENT_FILES = (DOCUMENTS, "report/pages.py", "report/outputs.py")
SHOWS_ITSELF = "analyse/series.py"  # its functions import report when a notebook shows a series
ORDER = [
    "worker", "spec", "cluster", "record", "analyse", "launch", "measure", "report", "questions", DOCUMENTS, "export",
    "cli",
]  # fmt: skip


def find_layer(path: str) -> str:
    """Return which entry of ORDER a file of the package belongs to."""
    return DOCUMENTS if path.startswith(DOCUMENT_FILES) else path.split("/")[0]


@pytest.mark.parametrize("layer", ORDER)
def test_a_folder_imports_only_from_folders_before_it(layer: str) -> None:
    wrong = []
    for path in sorted((PACKAGE / layer.split("/")[0]).rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if find_layer(name) != layer:
            continue
        tree = ast.parse(path.read_text())
        for node in tree.body if name == SHOWS_ITSELF else ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                target = "/".join([*name.split("/")[: -node.level], *(node.module or "").split(".")])
                other = find_layer(f"{target}/" if (PACKAGE / target).is_dir() else f"{target}.py")
                if other in ORDER and ORDER.index(other) > ORDER.index(layer):
                    wrong.append(f"{name}:{node.lineno} imports {other}")
    assert wrong == []


def test_every_folder_is_in_the_order() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {layer for layer in ORDER if layer != DOCUMENTS}


def test_errors_carry_their_exit_codes_and_the_tree_in_the_docstring_names_them() -> None:
    defined = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(name in (errors.__doc__ or "") for name in defined)
    assert (TrainscaleError.exit_code, InputError.exit_code) == (1, 2)
    assert issubclass(InputError, TrainscaleError)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("alexnte", "unknown model 'alexnte'; did you mean 'alexnet'?\n  valid: alexnet, vgg16, vgg19"),
        ("ALEXNET2", "unknown model 'ALEXNET2'; did you mean 'alexnet'?\n  valid: alexnet, vgg16, vgg19"),
        ("vgg18", "unknown model 'vgg18'; did you mean 'vgg16' or 'vgg19'?\n  valid: alexnet, vgg16, vgg19"),
        ("qqq", "unknown model 'qqq'\n  valid: alexnet, vgg16, vgg19"),
    ],
)
def test_the_message_for_an_unknown_name_has_near_and_valid_names(value: str, message: str) -> None:
    error = explain_unknown("model", value, ["alexnet", "vgg16", "vgg19"])
    assert isinstance(error, InputError)
    assert str(error) == message
    assert str(explain_unknown("key", "stepz", ["steps"], "a.toml:3")).startswith("a.toml:3: unknown key 'stepz'; did")
    three = str(explain_unknown("x", "aaaa", ["aaab", "aaac", "aaad"]))
    assert re.search(r"did you mean 'aaa[bcd]', 'aaa[bcd]' or 'aaa[bcd]'\?\n", three)


def test_every_finding_that_the_audit_explains_is_in_a_file_that_exists() -> None:
    """Otherwise a file that was moved makes `make audit` fail, and an explanation may stay for ever."""
    assert [file for file, _ in EXPLAINED if not (PACKAGE / file).is_file()] == []
