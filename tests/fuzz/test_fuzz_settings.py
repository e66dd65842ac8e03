"""Hostile experiment files, hosts files and flags: a message that says where, and never another error."""

import json
import math
from typing import Any

from hostile import NUMBERS, TEXT, VALUES, damaged, refusal, scratch_folder
from hypothesis import given
from hypothesis import strategies as st
from this_machine import find_example_devices

from trainscale.cli.parser import Parser, add_experiment, read_experiment
from trainscale.cluster.hosts import read_hosts
from trainscale.spec.experiment import make_experiment, read_experiment_file
from trainscale.spec.groups import collect_settings
from trainscale.spec.plan import make_plan

FOLDER = scratch_folder("settings")
SETTINGS = collect_settings()
TABLES = ("work", "training", "resources", "cluster", "measurement", "safety", "yarn")
KNOWN = st.sampled_from(
    ["mnist", "alexnet:4", "torch", "ps:2", "allreduce", "fp16", "5m", "1%", "auto", "on", "strong", "cpu", "1,2,4",
     "synthetic", "mnist:/nowhere", "cosine", "lists", "local", "torch=/bin/true"]
)  # fmt: skip
DOCUMENT = b'models = ["mnist:8"]\nsteps = 20\n[resources]\ndevices = [1, 2]\n[safety]\ntimeout = "5m"\n'
HOSTS = (
    b"10.0.0.1 node1 slots=4 port=2222\nuser@node2:22\n# comment\nnode3 python=/usr/bin/python3 setup='module load x'\n"
)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int) and abs(value) > 10**100:
        return hex(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value) if isinstance(value, str) else str(value)


KEYS = st.one_of(st.sampled_from(sorted(SETTINGS)), st.sampled_from(TABLES), TEXT.map(json.dumps))
LINES = st.one_of(
    st.tuples(KEYS, st.one_of(VALUES, KNOWN, NUMBERS)).map(lambda pair: f"{pair[0]} = {_toml(pair[1])}"),
    st.sampled_from([f"[{table}]" for table in TABLES]),
    st.sampled_from(
        ["steps = " + 5000 * "9", "x = " + 3000 * "[", "[a" + ".a" * 3000 + "]", "d = 2000-13-45", "=", "["]
    ),
)


@given(st.one_of(st.lists(LINES, max_size=4).map("\n".join), st.text(max_size=40)))
def test_experiment_files(text: str) -> None:
    path = FOLDER / "experiment.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    message = refusal(lambda: read_experiment_file(path))
    assert not message or str(path) in message
    if not message:
        refusal(lambda: _plan(make_experiment({}, path)))


def _plan(experiment: Any) -> None:
    available = find_example_devices(experiment)
    plan = make_plan(experiment, available)
    assert plan.seconds >= 0


@given(damaged(DOCUMENT))
def test_damaged_experiment_files(content: bytes) -> None:
    path = FOLDER / "damaged.toml"
    path.write_bytes(content)
    message = refusal(lambda: read_experiment_file(path))
    assert not message or str(path) in message


def _text_of(number: float) -> str:
    return hex(number) if isinstance(number, int) else str(number)


FLAGS = st.sampled_from(sorted(flag for setting in SETTINGS.values() for flag in setting.flags))
ARGUMENTS = st.one_of(
    st.tuples(FLAGS, st.one_of(KNOWN, TEXT, NUMBERS.map(_text_of))).map(lambda pair: [*pair]),
    st.tuples(FLAGS, TEXT).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    TEXT.map(lambda text: [text]),
)


@given(st.lists(ARGUMENTS, max_size=4))
def test_flags(arguments: list[list[str]]) -> None:
    argv = [argument for pair in arguments for argument in pair if argument not in ("-h", "--help")]
    parser = Parser("plan", "a plan")
    add_experiment(parser)

    def read() -> None:
        options = parser.read(argv)
        options.file = None
        _plan(read_experiment(options))

    refusal(read)


@given(st.one_of(st.lists(st.one_of(TEXT, st.just("node1 slots=4")), max_size=4).map("\n".join), st.text(max_size=60)))
def test_hosts_files(text: str) -> None:
    path = FOLDER / "the.hosts"
    path.write_text(text, errors="surrogatepass")
    message = refusal(lambda: read_hosts(path))
    assert not message or "the.hosts" in message


@given(damaged(HOSTS))
def test_damaged_hosts_files(content: bytes) -> None:
    path = FOLDER / "hosts"
    path.write_bytes(content)
    message = refusal(lambda: read_hosts(path))
    assert not message or str(path) in message


def test_a_coverage_guided_fuzzer_may_give_any_bytes() -> None:
    """As ``python -m tests.fuzz`` does with each of these tests."""
    for data in (b"", b"\0" * 100, bytes(range(256)) * 8):
        test_hosts_files.hypothesis.fuzz_one_input(data)
