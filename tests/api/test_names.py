"""The public names of the package: what they are, that they stay, and that the import is light."""

import subprocess
import sys
from dataclasses import fields, is_dataclass

import pytest
from api_reference import public_object

import trainscale

FIELDS = {
    "BestChoice": "work devices configuration verdict value samples_per_second runner_up lead",
    "BestChoices": "by choices text",
    "ComparisonPoint": "series devices ratio verdict",
    "ExplainedPart": "series devices part share measured seconds",
    "Interval": "mean low high",
    "Run": "directory",
    "RunComparison": "verdict outcome points text",
    "RunExplanation": "verdicts parts text",
    "RunPoint": (
        "series devices hosts batch_per_device global_batch repeats status reason unit samples_per_second speedup"
        " efficiency efficiency_versus_local step_seconds jitter startup_seconds first_step_seconds input_overhead"
        " waiting_share valid_accuracy seconds_to_accuracy device_peak_bytes nvml_peak_bytes host_peak_bytes witness"
        " flags"
    ),
    "RunSeries": "title unit config points parameters versions parity headline",
}


def test_the_package_exports_exactly_these_names() -> None:
    others = {"InputError", "TrainscaleError", "TrialRow", "__version__"}
    assert set(trainscale.__all__) == {*FIELDS, *others, "best", "compare", "explain", "load", "run"}
    assert set(trainscale.__all__) <= set(dir(trainscale))


@pytest.mark.parametrize("name", FIELDS)
def test_the_fields_of_a_public_class_stay(name: str) -> None:
    """Programs of users read them: a new one may come, none may go."""
    public = {*dir(public_object(name)), *(field.name for field in fields(public_object(name)))}
    assert set(FIELDS[name].split()) - public == set()


@pytest.mark.parametrize("name", [name for name in trainscale.__all__ if name != "__version__"])
def test_every_public_name_is_documented_and_every_object_is_frozen(name: str) -> None:
    value = public_object(name)
    assert value.__doc__
    if is_dataclass(value):
        assert value.__dataclass_params__.frozen  # type: ignore[union-attr]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'trainscale' has no attribute 'laod'"):
        trainscale.laod  # noqa: B018


@pytest.mark.processes
def test_the_import_of_the_package_imports_nothing_else_and_its_names_neither_frames_nor_charts() -> None:
    program = (
        "import sys, trainscale; print([name for name in sys.modules if name.startswith('trainscale')])\n"
        "trainscale.load; trainscale.best\n"
        "print({'pandas', 'polars', 'pyarrow', 'altair', 'mlflow', 'wandb', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['trainscale']", "set()"]


@pytest.mark.processes
def test_run_is_the_function_also_after_the_folder_that_measures_was_imported() -> None:
    program = (
        "import trainscale.measure.order, trainscale\n"
        "try: trainscale.run(modles=['mnist'])\n"
        "except trainscale.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("run(): unknown setting 'modles'; did you mean 'models'")
