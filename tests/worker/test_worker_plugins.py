"""What a process does with the plug-ins that its job names: it takes the package from its folder, that one alone, and
checks what it finds.
"""

import base64
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jobs import decode
from packages import EXAMPLE
from trials import compute_parity

from trainscale.launch.launchers.base import START
from trainscale.spec.config import Config
from trainscale.worker import models, plugins
from trainscale.worker.frameworks.base import Adapter, Proof
from trainscale.worker.frameworks.catalog import FRAMEWORKS, Framework
from trainscale.worker.job import Device, Job, Measure, PluginReference
from trainscale.worker.models import ModelInfo
from trainscale.worker.models.catalog import _BY_NAME, _index_names

TINY = PluginReference("model", "tiny", "trainscale_example.models:TINY", str(EXAMPLE))
NUMPY = PluginReference("framework", "numpy", "trainscale_example.frameworks:NUMPY", str(EXAMPLE))


# ---- in an interpreter that does not have the package


def job(folder: Path, *used: PluginReference) -> Job:
    config = Config("numpy", "tiny", 4, "local", image_size=32, classes=10, precision="fp64")
    return Job(
        "worker", 0, 1, 0, ("127.0.0.1",), (1,), 2, Device(), config, 4, Measure(0, 2), save_weights=str(folder),
        dropout=False, plugins=used,
    )  # fmt: skip


def run_role(role: str, line: str) -> tuple[list[dict[str, Any]], str]:
    """The events of ``start.py ROLE``. -I: neither PYTHONPATH nor the current folder adds a package."""
    done = subprocess.run(
        [sys.executable, "-I", str(START), role], input=line + "\n", capture_output=True, text=True, check=False
    )
    events = [event for event in map(decode, done.stdout.splitlines()) if event]
    return events, done.stderr


@pytest.mark.processes
def test_an_interpreter_without_the_package_trains_its_model_in_its_framework(tmp_path: Path) -> None:
    events, complaints = run_role("parity", job(tmp_path, NUMPY, TINY).to_json())
    assert {event["kind"] for event in events} == {"answer"}, complaints
    assert events[-1]["seconds"] > 0
    head, _, raw = b"".join(base64.b64decode(event["text"]) for event in events).partition(b"\n")
    facts, values = json.loads(head), np.frombuffer(raw, "<f8")
    assert (facts["parameters"], facts["macs"]) == (634, 110_752)
    assert values.size == sum(facts["arrays"].values())
    assert np.isfinite(values).all()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("used", "name"),
    [((NUMPY,), "tiny"), ((replace(NUMPY, folder="/nowhere"), TINY), "trainscale_example")],
    ids=["that the job does not carry", "that is gone"],
)
def test_a_plugin_that_is_missing_is_one_error_with_its_name(
    used: tuple[PluginReference, ...], name: str, tmp_path: Path
) -> None:
    events, _ = run_role("parity", job(tmp_path, *used).to_json())
    assert events[-1]["kind"] == "error"
    assert name in events[-1]["message"]


@pytest.mark.processes
def test_the_probe_looks_at_a_framework_of_a_plugin() -> None:
    request = {"framework": "numpy", "models": [], "python_path": [], "plugins": [asdict(NUMPY)]}
    events, complaints = run_role("probe", json.dumps(request))
    assert [event["is_available"] for event in events] == [True], complaints
    assert (events[0]["version"], events[0]["gpus"]) == (np.__version__, [])


# ---- one package of a folder, and no other


@pytest.fixture
def fresh_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finders and modules that a test adds are gone after it. msgspec cannot be imported into a copy of the table."""
    import msgspec  # noqa: F401

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.parametrize(
    ("file", "reference"),
    [
        ("some_package/__init__.py", "some_package:IT"),
        ("some_package/inner/things.py", "some_package.inner.things:IT"),
        ("some_module.py", "some_module:IT"),
        ("some_module.py", "some_module:IT.real"),
    ],
)
def test_a_package_a_namespace_or_a_module_is_found_and_its_neighbours_are_not(
    file: str, reference: str, tmp_path: Path, fresh_imports: None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("IT = 7\n")
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "json.py").write_text("dumps = 7\n")  # an installed package is used before the folder
    plugin, installed = (PluginReference("launcher", "it", name, str(tmp_path)) for name in (reference, "json:dumps"))
    plugins.use([plugin, installed])
    assert plugins.add(plugin) == 7
    assert plugins.add(installed) is json.dumps
    assert importlib.util.find_spec("neighbour") is None


# ---- what is found is checked

GOOD = Framework(
    "good", "Good", ("json",), "module:Class", {"local": "it"}, ("fp32",), {"cpu": ("nchw",)}, install="get it"
)  # fmt: skip
MODEL = ModelInfo("good-model", "Good model", "module:function", "a model")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module to make plug-ins of; the tables of frameworks and models are as before when the test is over."""
    before = [(table, dict(table)) for table in (FRAMEWORKS, _BY_NAME)]
    module = ModuleType("made_here")
    monkeypatch.setitem(sys.modules, "made_here", module)
    yield module
    for table, content in before:
        table.clear()
        table.update(content)
    _index_names.cache_clear()


def add(module: ModuleType, value: Any, kind: str = plugins.FRAMEWORK, name: str = "", attribute: str = "IT") -> Any:
    setattr(module, attribute, value)
    return plugins.add(PluginReference(kind, name or value.name, f"made_here:{attribute}", ""))


def test_a_good_one_is_in_its_table_and_knows_where_it_came_from(tables: ModuleType) -> None:
    add(tables, GOOD)
    assert FRAMEWORKS["good"].plugin == PluginReference("framework", "good", "made_here:IT", "")
    add(tables, MODEL, plugins.MODEL)
    model = models.resolve("Good model")
    assert model is not None
    assert model.plugin is not None


def test_an_adapter_of_version_0_1_proves_what_it_can(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name Proof as a base of its own."""
    monkeypatch.syspath_prepend(EXAMPLE)
    example = importlib.import_module("trainscale_example.adapter").NumpyAdapter
    tables.Old = type("Old", (Adapter, Proof), {**vars(example)})
    old_job = replace(job(Path(), TINY), config=replace(job(Path()).config, model="mnist", image_size=28, channels=1))
    adapter = replace(GOOD, adapter="made_here:Old").load(old_job)(old_job)
    assert adapter.build() == sum(values.size for values in adapter.weights().values())
    assert adapter.macs() == models.build("mnist").macs
    assert adapter.can_switch_dropout
    assert adapter.counted_updates() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Good"}, "'Good' has capitals"),
        ({"adapter": ""}, "adapter '' must be 'module:name'"),
        ({"adapter": "module"}, "adapter 'module' must be 'module:name'"),
        ({"adapter": ".module:Class"}, "adapter '.module:Class' must be 'module:name', with the module's full name"),
        ({"environment": ".e:f"}, "environment '.e:f' must be"),
        ({"imports": "json"}, "imports must be a tuple of names, not 'json'"),
        ({"libraries": None}, "libraries must be a tuple of names, not None"),
        ({"engines": {}}, "engines must be a dictionary that is not empty"),
        ({"engines": {"gossip": "it"}}, "engines: 'gossip' is unknown; valid: local, allreduce"),
        ({"precisions": ("fp8",)}, "precisions: 'fp8' is unknown; valid: fp32, tf32"),
        ({"layouts": ("nchw",)}, "layouts must be a dictionary"),
        ({"layouts": {"tpu": ("nchw",)}}, "layouts: 'tpu' is unknown; valid: cpu, cuda"),
        ({"layouts": {"cpu": "nchw"}}, "layouts of cpu must be a tuple of names"),
        ({"layouts": {"cpu": ()}}, "layouts of cpu: none is given; valid: nchw, nhwc"),
    ],
)
def test_a_framework_with_a_wrong_field_is_refused_and_left_out(
    changes: dict[str, Any], message: str, tables: ModuleType
) -> None:
    before = dict(FRAMEWORKS)
    with pytest.raises((TypeError, ValueError)) as caught:
        add(tables, replace(GOOD, **changes))
    assert message in str(caught.value)
    assert before == FRAMEWORKS


def test_the_same_plugin_may_come_again_but_another_may_not_take_its_name(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"builder '\.resnet:resnet18' must be 'module:name'"):
        add(tables, replace(MODEL, builder=".resnet:resnet18"), plugins.MODEL)
    add(tables, GOOD)
    add(tables, GOOD)
    with pytest.raises(ValueError, match="'good' is taken by another plug-in, made_here:IT"):
        add(tables, GOOD, attribute="OTHER")


# ---- the example's framework computes what PyTorch computes


@pytest.fixture
def numpy_framework(tables: ModuleType, fresh_imports: None) -> None:
    plugins.use([NUMPY])


@pytest.mark.framework
@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-12), ("fp32", 1e-5)])
def test_the_example_trains_every_kind_of_layer_as_pytorch_does(
    precision: str, tolerance: float, numpy_framework: None, tmp_path: Path
) -> None:
    own = compute_parity("numpy", "every-kind", precision)
    torch = compute_parity("torch", "every-kind", precision)
    assert own.facts["parameters"] == torch.facts["parameters"]
    assert own.facts["macs"] == torch.facts["macs"]
    assert own.distance(torch, "before") == 0
    for part in ("logits", "losses", "after"):
        assert own.distance(torch, part) < tolerance, part
    moved = [np.abs(own.numbers[f"after/{name[7:]}"] - values).max() for name, values in own.numbers.items()
             if name.startswith("before/")]  # fmt: skip
    assert min(moved) > 0, "training moves every weight"


def test_dropout_of_the_example_is_real_and_leaves_the_mean_alone(fresh_imports: None) -> None:
    plugins.use([replace(TINY, kind="launcher")])
    network = importlib.import_module("trainscale_example.network")
    builder = models.Builder("drops", 1, 100, 100 * 100)
    layer = builder.dropout(builder.flatten(builder.input), 0.25)
    drops = network.Network(builder.finish(layer), {}, True, np.random.default_rng(1))
    ones = np.ones((4, 1, 100, 100), np.float32)
    (out,) = drops.forward(ones)
    assert out.dtype == np.float32
    assert set(np.unique(out)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    assert out.mean() == pytest.approx(1, abs=0.02)
    assert (drops.forward(ones)[0] != out).any()
