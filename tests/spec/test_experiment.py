"""An experiment from flags and a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from trainscale.errors import InputError, TrainscaleError
from trainscale.launch.launchers.settings import RaySettings, SlurmSettings, YarnSettings
from trainscale.launch.launchers.target import list_launcher_groups
from trainscale.spec.experiment import Experiment, make_experiment, read_experiment_file
from trainscale.spec.groups import (
    ClusterSettings,
    TrainingSettings,
    WorkSettings,
)
from trainscale.spec.settings import SettingGroup, setting, whole


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "experiment.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_experiment_file(path)
    return str(caught.value)


def test_without_flags_and_file_all_settings_have_their_defaults() -> None:
    assert make_experiment({}) == Experiment()


def test_a_file_gives_settings_and_keys_may_have_hyphens(write) -> None:
    path = write('models = ["mnist:8"]\nmax-devices = 2\nstall_timeout = "10s"\n')
    assert make_experiment({}, path) == Experiment.of(models=("mnist:8",), max_devices=2, stall_timeout=10.0)


def test_flags_win_over_the_file_and_the_file_over_the_defaults(write) -> None:
    path = write("steps = 20\nwarmup = 5\n")
    made = make_experiment({"steps": 30}, path).measurement
    assert (made.steps, made.warmup, made.repeats) == (30, 5, 5)


def test_the_file_that_make_run_uses_is_read() -> None:
    example = Path(__file__).parents[2] / "examples" / "this_machine.toml"
    made = make_experiment({}, example)
    assert made.work.models == ("alexnet", "inceptionv3")
    assert made.measurement.budget is not None


def test_an_unknown_key_is_named_with_file_and_the_nearest(write) -> None:
    path = write("# a comment\nsteps = 20\n\nmodles = ['mnist']\n")
    message = refusal(path)
    assert message.startswith(f"{path}: unknown key 'modles'; did you mean 'models'")
    assert "valid: models, frameworks" in message


@pytest.mark.parametrize("text", ["[care]\ntimeout = 5\n", "care.timeout = 5\n", '"care" = 5\n', "[[care]]\na = 1\n"])
def test_an_unknown_key_is_refused_in_every_spelling(write, text: str) -> None:
    path = write(text)
    assert refusal(path).startswith(f"{path}: unknown key 'care'")


def test_a_wrong_type_is_named_with_file_and_key(write) -> None:
    path = write("steps = 20\nwarmup = true\n")
    assert refusal(path) == f"{path}: warmup: True is not valid; valid: a whole number, 2 or more"


def test_a_file_that_is_not_toml_is_named_with_its_line(write) -> None:
    path = write("steps = 20\nwarmup = \n")
    message = refusal(path)
    assert message.startswith(f"{path}: not TOML: ")
    assert "line 2" in message


def test_a_file_that_is_not_text_is_refused(write) -> None:
    path = write(b"steps = \xff\xfe\n")
    assert refusal(path) == f"{path}: this experiment file is not UTF-8 text"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert refusal(path) == f"{path}: cannot read this experiment file: No such file or directory"


def test_a_directory_is_no_experiment_file(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: cannot read this experiment file: Is a directory"


def test_budget_and_repeats_exclude_each_other() -> None:
    with pytest.raises(InputError, match="budget and repeats exclude each other"):
        make_experiment({"budget": 60.0, "repeats": 3})


def test_a_flag_wins_over_what_it_excludes_in_the_file(write) -> None:
    by_budget = make_experiment({"budget": 60.0}, write("repeats = 3\ndevices = [1, 2]\n"))
    measurement, devices = by_budget.measurement, by_budget.resources.devices
    assert (measurement.budget, measurement.repeats, devices) == (60.0, 5, (1, 2))
    by_repeats = make_experiment({"repeats": 3, "max_devices": 4}, write('budget = "5m"\ndevices = [1, 2]\n'))
    measurement, devices = by_repeats.measurement, by_repeats.resources.devices
    assert (measurement.budget, measurement.repeats, devices) == (None, 3, None)


def test_devices_and_max_devices_exclude_each_other() -> None:
    with pytest.raises(InputError, match="devices and max devices exclude each other"):
        make_experiment({"devices": (1, 2), "max_devices": 2})


# An experiment file as it was written before settings had groups.
FLAT_FILE = """
models = ["alexnet:8", "mnist:auto"]
frameworks = "torch,jax"
image-size = 64
augment = false
epochs = 3
learning_rate = 0.05
python = { torch = "python3" }
devices = [1, 2]
hosts = "nodes"
setup = ["module load cuda", "ulimit -l unlimited"]
partition = "gpu"
sbatch = "--constraint=a100"
yarn = ["-container_memory 8192"]
ray_address = "head:6379"
repeats = 2
stall-timeout = 30
timeout = "1h30m"
"""


def test_a_file_written_before_there_were_groups_is_read_as_before(write) -> None:
    made = make_experiment({}, write(FLAT_FILE), launcher_groups=list_launcher_groups())
    assert made.work == WorkSettings(
        models=("alexnet:8", "mnist:auto"), frameworks=("torch", "jax"), image_size=64, augment=False
    )
    assert made.training == TrainingSettings(epochs=3, learning_rate=0.05)
    ((name, path),) = made.resources.python or ()
    assert name == "torch"
    assert path.startswith("/")
    assert made.resources.devices == (1, 2)
    assert made.cluster == ClusterSettings(hosts="nodes", setup=("module load cuda", "ulimit -l unlimited"))
    assert made.select_settings(SlurmSettings) == SlurmSettings(partition="gpu", sbatch=("--constraint=a100",))
    assert made.select_settings(YarnSettings).yarn == ("-container_memory 8192",)
    assert made.select_settings(RaySettings).ray_address == "head:6379"
    assert made.measurement.repeats == 2
    assert (made.safety.stall_timeout, made.safety.timeout) == (30.0, 5400.0)


def test_a_file_may_have_a_table_for_each_group(write) -> None:
    grouped = """
seed = 7
[work]
models = ["alexnet:8"]
[training]
epochs = 3
learning-rate = 0.05
[slurm]
partition = "gpu"
"""
    flat = """
seed = 7
models = ["alexnet:8"]
epochs = 3
learning-rate = 0.05
partition = "gpu"
"""
    groups = list_launcher_groups()
    assert make_experiment({}, write(grouped), launcher_groups=groups) == make_experiment(
        {}, write(flat), launcher_groups=groups
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 3\n[training]\n\nepocs = 5\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("steps = 3\ntraining.epocs = 5\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("training = { epocs = 5 }\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("[training]\nsteps = 5\n", "unknown key of [training] 'steps'"),
        ("[work]\nseed = 3\n[training]\nepochs = 0\n", "epochs: 0 is not valid"),
        ("epochs = 3\n[training]\nepochs = 5\n", "epochs is set twice"),
    ],
)
def test_a_wrong_key_in_a_table_is_named_with_its_file(write, text: str, message: str) -> None:
    path = write(text)
    assert refusal(path).startswith(f"{path}: {message}")


@dataclass(frozen=True)
class OwnSettings(SettingGroup):
    table: ClassVar[str] = "own"
    title: ClassVar[str] = "own launcher"

    lanes: int = setting(whole(1), "number of lanes", default=4)


def test_a_launcher_may_declare_settings_of_its_own(write) -> None:
    groups = (OwnSettings,)
    made = make_experiment({}, write("[own]\nlanes = 2\n"), launcher_groups=groups)
    assert made.select_settings(OwnSettings).lanes == 2
    by_flag = make_experiment({"lanes": 3}, write("lanes = 2\n"), launcher_groups=groups)
    assert by_flag.select_settings(OwnSettings).lanes == 3
    assert make_experiment({}, launcher_groups=groups).select_settings(OwnSettings).lanes == 4
    assert OwnSettings.settings()[0].help == "number of lanes (default: 4)"


def test_a_launcher_may_not_declare_a_flag_that_exists() -> None:
    @dataclass(frozen=True)
    class Clash(SettingGroup):
        table: ClassVar[str] = "clash"
        title: ClassVar[str] = "clash"
        rate: int = setting(whole(1), "rate", "--lr")

    with pytest.raises(TrainscaleError, match="Clash declares --lr, which exists already"):
        make_experiment({}, launcher_groups=(Clash,))
