"""An experiment from flags and a TOML file; written as TOML it is read back as the same experiment."""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainscale.errors import InputError, TrainscaleError
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment, read_experiment_file
from trainscale.spec.groups import PLUGIN_GROUPS, collect_settings
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


def test_a_file_gives_settings_over_the_defaults_and_flags_win_over_it(write) -> None:
    path = write('models = ["mnist:8"]\nmax-devices = 2\nstall_timeout = "10s"\nsteps = 20\n')
    values = {"models": ("mnist:8",), "max_devices": 2, "stall_timeout": 10.0}
    assert make_experiment({"steps": 30}, path) == Experiment.of(**values, steps=30)
    assert make_experiment({}) == Experiment()
    example = Path(__file__).parents[2] / "examples" / "this_machine.toml"
    made = make_experiment({}, example)
    assert made.work.models == ("alexnet", "inceptionv3")
    assert made.measurement.budget is not None


def test_an_unknown_key_is_named_with_file_and_the_nearest(write) -> None:
    path = write("# a comment\nsteps = 20\n\nmodles = ['mnist']\n")
    message = refusal(path)
    assert message.startswith(f"{path}: unknown key 'modles'; did you mean 'models'")
    assert message.endswith("see: trainscale run --help; a flag --max-devices is the key max_devices")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "unknown key 'care'") for text in ("[care]\ntimeout = 5\n", "care.timeout = 5\n")),
        *((text, "unknown key 'care'") for text in ('"care" = 5\n', "[[care]]\na = 1\n")),
        ("steps = 20\nwarmup = true\n", "warmup: True is not valid; valid: a whole number, 2 or more"),
        ("steps = 20\nwarmup = \n", "not TOML: Invalid value (at line 2, column 10)"),
        (b"steps = \xff\xfe\n", "this experiment file is not UTF-8 text"),
        ("steps = 3\n[training]\n\nepocs = 5\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("steps = 3\ntraining.epocs = 5\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("training = { epocs = 5 }\n", "unknown key of [training] 'epocs'; did you mean 'epochs'?"),
        ("[training]\nsteps = 5\n", "unknown key of [training] 'steps'"),
        ("[work]\nseed = 3\n[training]\nepochs = 0\n", "epochs: 0 is not valid"),
        ("epochs = 3\n[training]\nepochs = 5\n", "epochs is set twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(write, content: str | bytes, message: str) -> None:
    path = write(content)
    assert refusal(path).startswith(f"{path}: {message}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").endswith("none: cannot read this experiment file: No such file or directory")
    assert refusal(tmp_path) == f"{tmp_path}: cannot read this experiment file: Is a directory"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 60.0, "repeats": 3}, "budget and repeats exclude each other"),
        ({"devices": (1, 2), "max_devices": 2}, "devices and max devices exclude each other"),
        ({"budget": 60.0, "epochs": 3}, "an epoch is not cut"),
        ({"budget": 60.0, "until_accuracy": 0.9}, "an epoch is not cut"),
        *(
            ({"search": "lists", **other}, "exclude each other: a search")
            for other in ({"budget": 60.0}, {"epochs": 1}, {"until_accuracy": 0.9})
        ),
        *(
            ({"until_interval": 0.01, other: 3}, "exclude each other")
            for other in ("repeats", "epochs", "until_accuracy", "search")
        ),
        *(
            ({"study": True, other: value}, "exclude each other: a s")
            for other, value in (
                *(("scaling", "strong"), ("budget", 60.0), ("until_interval", 0.01), ("search", "lists")),
                *(("epochs", 3), ("until_accuracy", 0.9)),
            )
        ),
    ],
)
def test_settings_that_exclude_each_other(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_experiment(values)


def test_a_flag_wins_over_what_it_excludes_in_the_file(write) -> None:
    by_budget = make_experiment({"budget": 60.0}, write("repeats = 3\ndevices = [1, 2]\n"))
    measurement, devices = by_budget.measurement, by_budget.resources.devices
    assert (measurement.budget, measurement.repeats, devices) == (60.0, 5, (1, 2))
    by_repeats = make_experiment({"repeats": 3, "max_devices": 4}, write('budget = "5m"\ndevices = [1, 2]\n'))
    measurement, devices = by_repeats.measurement, by_repeats.resources.devices
    assert (measurement.budget, measurement.repeats, devices) == (None, 3, None)
    # A study that is switched off excludes nothing
    assert make_experiment({"study": False, "scaling": "strong"}).measurement.scaling == "strong"


def test_a_file_may_have_a_table_for_each_group(write) -> None:
    work, training, slurm = 'models = ["alexnet:8"]\n', "epochs = 3\nlearning-rate = 0.05\n", 'partition = "gpu"\n'
    grouped = write(f"seed = 7\n[work]\n{work}[training]\n{training}[slurm]\n{slurm}")
    in_tables = make_experiment({}, grouped)
    flat = write(f"seed = 7\n{work}{training}{slurm}")
    assert make_experiment({}, flat) == in_tables


@dataclass(frozen=True)
class OwnSettings(SettingGroup):
    table, title = "own", "own launcher"

    lanes: int = setting(whole(1), "number of lanes", default=4)


@pytest.fixture
def own_settings() -> Iterator[None]:
    PLUGIN_GROUPS.append(OwnSettings)
    yield
    PLUGIN_GROUPS.remove(OwnSettings)


@pytest.mark.usefixtures("own_settings")
def test_a_launcher_may_declare_settings_of_its_own(write) -> None:
    made = make_experiment({}, write("[own]\nlanes = 2\n"))
    assert made.plugin_groups == (OwnSettings(2),)
    by_flag = make_experiment({"lanes": 3}, write("lanes = 2\n"))
    assert by_flag.plugin_groups == (OwnSettings(3),)
    assert make_experiment({}).plugin_groups == (OwnSettings(4),)
    assert OwnSettings.settings()[0].help == "number of lanes (default: 4)"

    @dataclass(frozen=True)
    class Clash(SettingGroup):
        table, title = "clash", "clash"
        rate: int = setting(whole(1), "rate", "--lr")

    with pytest.raises(TrainscaleError, match="Clash declares --lr, which exists already"):
        collect_settings([Clash])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "models": ("alexnet:auto", "timm:resnet18:8"),
            "frameworks": ("torch", "jax"),
            "strategies": ("ps:2", "local"),
        },
        {"batch": AUTO, "max_batch": 64, "compile": True, "augment": False, "parity": False},
        {"batch": (4, AUTO), "precision": ("fp32", "bf16"), "layout": ("nchw", "nhwc"), "compile": (True, False)},
        {"search": "default"},
        {"budget": 300.0, "warmup": 3},
        {"epochs": 5, "repeats": 5, "timeout": 1800.0, "schedule": "step:30,60:0.5", "learning_rate": 1e-05},
        {"until_accuracy": 0.99},
        {"devices": (1, 2, 3), "data": "imagefolder:/a, b"},
        {"setup": ("module load 'a b'; x", 'echo "\\"'), "sbatch": ("--comment=a, b", "-C big"), "nodes": 4},
        {"account": 'tab\tquote"backslash\\del\x7f\u2026\U0001f600'},
        {"python": (("torch", sys.executable), ("keras-torch", sys.executable))},
    ],
)
def test_an_experiment_survives_its_file(settings: dict[str, Any], tmp_path: Path) -> None:
    experiment = make_experiment(settings)
    path = tmp_path / "experiment.toml"
    path.write_text(format_experiment(experiment))
    assert make_experiment({}, path) == experiment


# Every key that an experiment file could have before settings had groups, all at the top level.
FILE_OF_AN_EARLIER_VERSION = """
models = ["alexnet:8", "resnet18"]
frameworks = ["torch", "jax"]
strategies = ["local", "allreduce", "ps:1"]
batch = 4
max-batch = 64
image_size = 64
classes = 10
precision = "bf16"
layout = "nchw"
compile = true
data = "cifar10"
augment = false
seed = 7
learning_rate = 0.1
momentum = 0.8
weight_decay = 0.001
schedule = "cosine"
warmup_epochs = 1.0
deterministic = true
device = "cpu"
launcher = "slurm"
devices = [1, 2]
gpus_per_host = 2
cores_per_device = 1
ranks_per_gpu = 1
loaders = 2
servers = 2
server_placement = "apart"
placement = "round-robin"
hosts_count = 2
remote_dir = "/scratch"
remote_python = "python3"
setup = ["module load cuda"]
interface = "eth0"
controller_address = "192.0.2.1"
ssh_config = "config"
forward_agent = true
nodes = 2
partition = "gpu"
time = "2:00:00"
account = "project"
gres = "gpu:2"
sbatch = ["--constraint=big"]
queue = "default"
yarn = ["-container_memory 4096"]
ray_address = "192.0.2.1:6379"
scaling = "strong"
warmup = 3
steps = 50
repeats = 4
parity = false
timeout = "10m"
stall_timeout = "1m"
"""


def test_an_experiment_file_of_an_earlier_version_means_the_same(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(FILE_OF_AN_EARLIER_VERSION)
    read = make_experiment({}, path).to_dict()
    expected = {key.replace("-", "_"): value for key, value in tomllib.loads(FILE_OF_AN_EARLIER_VERSION).items()}
    expected |= {"timeout": 600.0, "stall_timeout": 60.0}
    for key, value in expected.items():  # what could have one value only may be a list now
        assert read[key] in (tuple(value) if isinstance(value, list) else value, (value,)), key
