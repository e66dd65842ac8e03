"""What is expected of a trial's first steps is what its strategy does with the samples of all ranks."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import graph_nets
import numpy as np
import pytest
import small_sets
from jobs import make_config, make_job

from trainscale.worker import models
from trainscale.worker.data import dataset, loader, source
from trainscale.worker.data.facts import KNOWN
from trainscale.worker.data.source import Normalization
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import Job
from trainscale.worker.training.rank import CannotCompute
from trainscale.worker.witness import expectation
from trainscale.worker.witness.expectation import RankBatches, ReferenceSteps, choose_arrays, compute_expectation
from trainscale.worker.witness.reference import Arrays, ReferenceNetwork, estimate_needed_bytes
from trainscale.worker.witness.sketch import SIZE, sketch, sketch_weights


@pytest.fixture(autouse=True)
def _networks() -> None:
    graph_nets.register()


def job_for(strategy: str, workers: int = 1, batch: int = 4, model: str = "plain-graph", **values: Any) -> Job:
    info = models.resolve(model)
    assert info is not None
    sizes = {"image_size": info.image_size, "classes": info.classes, "channels": info.channels}
    config = make_config(strategy, model=model, batch=batch, **{**sizes, "learning_rate": 0.01, **values})
    return make_job(config=config, batch=batch, workers=workers)


def expect(strategy: str, workers: int = 1, batch: int = 4, **values: Any) -> dict[str, np.ndarray]:
    return compute_expectation(job_for(strategy, workers, batch, **values), Arrays())


@pytest.mark.parametrize("strategy", ["allreduce", "ps", "sharded"])
def test_synchronous_workers_are_one_device_with_all_samples(strategy: str) -> None:
    double, single = expect(strategy, workers=2, batch=3), expect("local", workers=1, batch=6)
    assert double["losses"].shape == (2, 2)
    assert double["losses"].mean(axis=1) == pytest.approx(single["losses"][:, 0], rel=1e-12)
    assert double["totals"].shape == (SIZE,)
    assert double["totals"] == pytest.approx(single["totals"], rel=1e-9, abs=1e-12)
    sketches = {name: values for name, values in single.items() if name.startswith("sketch/")}
    assert len(sketches) == len(models.build("plain-graph").parameters())
    for name, values in sketches.items():
        assert double[name] == pytest.approx(values, rel=1e-9, abs=1e-12)


def test_batch_norm_sees_the_samples_of_one_rank() -> None:
    two = expect("allreduce", workers=2, batch=3, model="every-kind")
    single = expect("local", batch=6, model="every-kind")
    alone = expect("local", batch=3, model="every-kind")
    assert two["losses"][0, 0] == pytest.approx(alone["losses"][0, 0], rel=1e-12)
    assert two["losses"][0].mean() != pytest.approx(single["losses"][0, 0], rel=1e-6)


def test_independent_workers_each_train_alone() -> None:
    expected = expect("independent", workers=3, batch=2)
    assert expected["losses"].shape == (2, 3)
    totals = expected["totals"].reshape(3, SIZE)
    first = expect("local", batch=2)
    assert totals[0] == pytest.approx(first["totals"], rel=1e-12)
    assert expected["losses"][:, 0] == pytest.approx(first["losses"][:, 0], rel=1e-12)
    assert np.linalg.norm(totals[0] - totals[1]) > 0.1 * np.linalg.norm(totals[0])
    sketches = [values for name, values in expected.items() if name.startswith("sketch/")]
    assert np.sum(sketches, axis=0) == pytest.approx(totals[2], rel=1e-9)  # of the last worker


@pytest.mark.parametrize(("framework", "pulls_before_step"), [("torch", False), ("tensorflow", True)])
def test_asynchronous_workers_take_turns(framework: str, pulls_before_step: bool) -> None:
    """Written out for two workers: each step is an update of the server, with the momentum of the steps before."""
    job = replace(job_for("ps-async", workers=2), servers=1)
    job = replace(job, config=replace(job.config, framework=framework))
    assert FRAMEWORKS[framework].pulls_before_step is pulls_before_step
    expected = compute_expectation(job, Arrays())

    config, graph = job.config, models.build("plain-graph")
    network = ReferenceNetwork(graph, Arrays())
    start = {name: values.astype(np.float64) for name, values in models.initial_weights(graph, job.seed).items()}
    images = [source.make_samples(job.seed, 4 * rank, 4, (3, 16, 16), 10) for rank in range(2)]
    rate, momentum, decay = config.learning_rate, config.momentum, config.weight_decay
    loss0, gradient0 = network.compute_gradients(start, *images[0])
    velocity = {name: gradient0[name] + decay * start[name] for name in start}
    after0 = {name: start[name] - rate * velocity[name] for name in start}
    loss1, gradient1 = network.compute_gradients(after0 if pulls_before_step else start, *images[1])
    velocity = {name: momentum * velocity[name] + gradient1[name] + decay * after0[name] for name in start}
    after1 = {name: after0[name] - rate * velocity[name] for name in start}

    assert expected["losses"].tolist() == [pytest.approx([loss0, loss1], rel=1e-12)]
    # A worker that pulls before a step reads the servers' weights, so every rank sees those after the last turn.
    names = list(start)
    changes = [
        sketch_weights(after, names) - sketch_weights(start, names)
        for after in ((after1,) if pulls_before_step else (after0, after1))
    ]
    totals = np.array([rows.sum(axis=0) for rows in changes])
    assert expected["totals"].reshape(-1, SIZE) == pytest.approx(totals, rel=1e-9, abs=1e-12)
    for name, row in zip(names, changes[-1], strict=True):
        assert expected[f"sketch/{name}"] == pytest.approx(row, rel=1e-9, abs=1e-12)


def test_the_gradient_of_the_first_step_has_its_weight_decay() -> None:
    job, graph = job_for("local"), models.build("plain-graph")
    start = {name: values.astype(np.float64) for name, values in models.initial_weights(graph, job.seed).items()}
    samples = source.make_samples(job.seed, 0, 4, (3, 16, 16), 10)
    _, gradients = ReferenceNetwork(graph, Arrays()).compute_gradients(start, *samples)
    decayed = {name: gradients[name] + job.config.weight_decay * start[name] for name in start}
    expected = compute_expectation(job, Arrays())
    assert expected["gradients"] == pytest.approx(sketch_weights(decayed, list(start)).sum(axis=0), rel=1e-8, abs=1e-9)
    head = f"{graph.heads[0].layer}.weight"
    assert expected["head_gradients"] == pytest.approx(sketch(head, decayed[head]), rel=1e-8, abs=1e-9)
    assert expect("independent", workers=3, batch=2)["gradients"].shape == (3 * SIZE,)
    for name in start:
        assert expected[f"gradient/{name}"] == pytest.approx(sketch(name, decayed[name]), rel=1e-8, abs=1e-9)
        assert expected[f"gradient_spread/{name}"] < 1e-3


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_behind_asynchronous_servers_every_worker_has_the_gradient_of_its_own_samples(framework: str) -> None:
    job = replace(job_for("ps-async", workers=2), servers=1)
    expected = compute_expectation(replace(job, config=replace(job.config, framework=framework)), Arrays())
    alone = compute_expectation(job_for("independent", workers=2), Arrays())
    for name in ("initial_losses", "gradients", "head_gradients", "gradient/logits.weight"):
        assert expected[name] == pytest.approx(alone[name], rel=1e-8, abs=1e-9)


def test_the_samples_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    deviation, copies, label_kinds, count = expect("allreduce", workers=3, batch=4)["samples"]
    assert deviation == pytest.approx(1, abs=0.05)
    assert (copies, count) == (0, 8)  # of rank 0 and of the last rank
    assert 1 < label_kinds <= 8
    monkeypatch.setattr(expectation, "make_samples", lambda *_: (np.zeros((4, 3, 16, 16), "f4"), np.zeros(4, "i8")))
    assert expect("allreduce", workers=3, batch=4)["samples"].tolist() == [0, 7, 1, 8]


def test_spreads_grow_as_a_precision_has_fewer_bits() -> None:
    spreads = {
        precision: float(expect("local", model="every-kind", precision=precision)["spread/total"])
        for precision in ("fp32", "tf32", "bf16")
    }
    assert 1e-8 < spreads["fp32"] < 1e-3
    assert spreads["fp32"] < 0.2 * spreads["tf32"] < 0.2 * spreads["bf16"] < 0.2
    expected = expect("allreduce", workers=2)
    assert expected["spread/losses"].shape == (2,)
    names = {name.partition("/")[2] for name in expected if name.startswith("sketch/")}
    assert {name.partition("/")[2] for name in expected if name.startswith("spread/")} == names | {
        "losses",
        "total",
        "gradient",
        "head_gradient",
    }


def test_a_reference_in_the_timed_precision_still_has_a_spread() -> None:
    """Where there is no memory for float64, another order of the samples shows how much rounding matters."""
    spread = float(compute_expectation(job_for("local"), Arrays("fp32"))["spread/total"])
    assert 1e-9 < spread < 1e-3


def test_a_schedule_sets_the_rate_of_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a warm-up of one epoch of four updates, the first rate is a quarter. Of epochs, one step is compared."""
    monkeypatch.setattr(dataset, "count_updates_per_epoch", lambda job: 4)
    slow, fast = expect("local", epochs=2, warmup_epochs=1.0), expect("local", epochs=2)
    assert slow["losses"].shape == fast["losses"].shape == (1, 1)
    assert slow["totals"] == pytest.approx(fast["totals"] / 4, rel=1e-9, abs=1e-12)


def test_memory_decides_the_arithmetic() -> None:
    job, graph = job_for("local", batch=64, model="alexnet"), models.build("alexnet")
    double, single = (estimate_needed_bytes(graph, 64, Arrays(name)) for name in ("fp64", "fp32"))
    assert choose_arrays(job, int(double / 0.7) + 1).arithmetic == "fp64"
    assert choose_arrays(job, int(single / 0.7) + 1).arithmetic == "fp32"
    with pytest.raises(CannotCompute, match=r"no memory for the reference: it needs \d\.\d GB, 1\.0 GB are free"):
        choose_arrays(job, 1_000_000_000)


@pytest.mark.parametrize(("model", "batch"), [("every-kind", 50), ("mnist", 40), ("inception-bn-28-small", 4)])
def test_the_memory_is_estimated_well_enough(model: str, batch: int) -> None:
    job, info = job_for("local", model=model, batch=batch), models.resolve(model)
    assert info is not None
    needed = estimate_needed_bytes(models.build(model), batch, Arrays())
    tracemalloc.start()
    try:
        ReferenceSteps(job, Arrays(), RankBatches(job)).take([0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= needed <= 3 * peak


@pytest.mark.framework
@pytest.mark.parametrize("model", ["mnist", "every-kind"])
def test_pytorch_in_fp32_is_as_near_as_the_spreads_say(model: str) -> None:
    job = replace(job_for("local", model=model), dropout=False)
    expected = compute_expectation(job, Arrays())
    adapter = FRAMEWORKS["torch"].load(job)(job)
    adapter.join()
    adapter.build()
    names = list(adapter.weights())
    before = sketch_weights(adapter.weights(), names)
    batch, losses = source.make_batch(job, adapter.place), []
    for _ in range(2):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
    total = (sketch_weights(adapter.weights(), names) - before).sum(axis=0)
    assert losses == pytest.approx(list(expected["losses"][:, 0]), rel=1e-5)
    difference = np.linalg.norm(total - expected["totals"]) / np.linalg.norm(expected["totals"])
    assert difference < 10 * float(expected["spread/total"])


# ---- the reference trains on the samples that each rank trains on


def test_synthetic_samples_are_those_of_the_rank_in_every_step() -> None:
    config = make_config("allreduce", channels=1)
    job = make_job(config=config, workers=3, addresses=("127.0.0.1",) * 3)
    rank_batches = RankBatches(job)
    for rank in range(3):
        placed = source.make_batch(replace(job, rank=rank), lambda *arrays: arrays)
        for step in range(2):
            for seen, expected in zip(rank_batches.make_batch(rank, step), placed, strict=True):
                assert (seen == expected).all()


@pytest.mark.processes
@pytest.mark.parametrize("augment", [False, True])
def test_real_images_are_those_of_the_rank_and_step(tmp_path: Path, augment: bool) -> None:
    folder = small_sets.write_cifar10(tmp_path / "cifar10")
    config = make_config("allreduce", model="resnet50-cifar", data="cifar10", image_size=32, augment=augment)
    job = make_job(config=config, workers=2, addresses=("127.0.0.1",) * 2, data_dir=str(folder), batch=6)
    rank_batches = RankBatches(job)
    images, labels = small_sets.pictures(500, 3, 32, seed=1)
    order = loader.shuffle_epoch(500, job.seed, 0)
    normalization = Normalization(KNOWN["cifar10"].mean, KNOWN["cifar10"].deviation)
    for rank, step in ((1, 0), (0, 0), (0, 1), (1, 1)):
        chosen = loader.select_rank_batch(order, step, 6, rank, 2)
        samples, truth = rank_batches.make_batch(rank, step)
        assert (truth == labels[chosen]).all()
        assert samples.shape == (6, 3, 32, 32)
        assert np.array_equal(samples, normalization(images[chosen])) is not augment
