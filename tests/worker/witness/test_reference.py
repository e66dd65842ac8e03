"""The reference network trains as PyTorch does in float64, though the two share only the graph."""

from typing import Any

import graph_nets
import numpy as np
import pytest
from jobs import make_config, make_job

from trainscale.worker import models
from trainscale.worker.data import source
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import Job
from trainscale.worker.type_aliases import NamedArrays
from trainscale.worker.witness.reference import Arrays, ReferenceNetwork, ReferenceOptimizer

Steps = tuple[list[float], dict[str, np.ndarray]]  # losses, and the weights after the last step


def make_fp64_job(model: str, image_size: int, classes: int, batch: int, channels: int = 3) -> Job:
    graph_nets.register()
    sizes = {"image_size": image_size, "classes": classes, "channels": channels, "batch": batch}
    config = make_config(model=model, precision="fp64", weight_decay=1e-2, **sizes)
    return make_job(config=config, batch=batch, dropout=False, python_path=(graph_nets.__file__.rpartition("/")[0],))


def make_network(job: Job, arrays: Arrays) -> tuple[ReferenceNetwork, NamedArrays, tuple[Any, Any]]:
    """Return the network of a job, its initial weights, and samples with their labels."""
    config = job.config
    graph = models.build(config.model, config.image_size, config.classes)
    initial = models.initial_weights(graph, job.seed)
    weights = {name: arrays.make_array(values) for name, values in initial.items()}
    return (
        ReferenceNetwork(graph, arrays),
        weights,
        source.make_samples(1, 0, job.batch, graph.input_shape, config.classes),
    )


def reference_steps(job: Job, steps: int) -> Steps:
    config, arrays = job.config, Arrays()
    graph = models.build(config.model, config.image_size, config.classes)
    shape = models.find_samples(config.model).shape(config)
    samples, labels = source.make_samples(job.seed, 0, job.batch, shape, config.classes)
    weights = models.initial_weights(graph, job.seed)
    optimizer = ReferenceOptimizer(weights, config.momentum, config.weight_decay, arrays)
    network, losses = ReferenceNetwork(graph, arrays), []
    for _ in range(steps):
        loss, gradients = network.compute_gradients(optimizer.weights, samples, labels)
        losses.append(loss)
        optimizer.update(gradients, config.learning_rate)
    return losses, optimizer.weights


def torch_steps(job: Job, steps: int) -> Steps:
    adapter = FRAMEWORKS["torch"].load(job)(job)
    adapter.join()
    adapter.build()
    batch, losses = source.make_batch(job, adapter.place), []
    for _ in range(steps):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
    return losses, adapter.weights()


@pytest.mark.framework
@pytest.mark.parametrize(
    ("model", "image_size", "classes", "batch", "channels"),
    [
        ("mnist", 28, 10, 4, 1),
        ("every-kind", 33, 7, 4, 3),
        pytest.param("resnet50-cifar", 32, 10, 4, 3, marks=pytest.mark.slow),
        ("inception-bn-28-small", 28, 10, 4, 3),
        ("alexnet", 67, 20, 2, 3),
        pytest.param("resnet50", 64, 10, 4, 3, marks=pytest.mark.slow),
        pytest.param("inceptionv3-aux", 299, 10, 2, 3, marks=pytest.mark.slow),
        pytest.param("vgg16", 32, 10, 2, 3, marks=pytest.mark.slow),
    ],
)
def test_two_steps_are_those_of_pytorch(model: str, image_size: int, classes: int, batch: int, channels: int) -> None:
    job = make_fp64_job(model, image_size, classes, batch, channels)
    (losses, weights), (torch_losses, torch_weights) = reference_steps(job, 2), torch_steps(job, 2)
    assert losses == pytest.approx(torch_losses, rel=1e-10)
    assert list(weights) == list(torch_weights)
    graph = models.build(model, image_size, classes)
    before = models.initial_weights(graph, job.seed)
    length = np.sqrt(sum(((weights[name] - before[name]) ** 2).sum() for name in weights))
    for name, values in torch_weights.items():
        difference = np.linalg.norm(weights[name] - values)
        assert difference < 1e-10 * length, name


def test_the_gradient_is_the_derivative_of_the_loss_of_all_heads() -> None:
    network, weights, batch = make_network(make_fp64_job("every-kind", 33, 7, 3), Arrays())
    _, gradients = network.compute_gradients(weights, *batch)
    assert list(weights) == [name for name in weights if name in gradients]
    random = np.random.default_rng(5)
    direction = {name: random.standard_normal(values.shape) for name, values in weights.items()}
    slope = sum((gradients[name] * direction[name]).sum() for name in weights)
    below, above = (
        network.compute_gradients({name: weights[name] + step * direction[name] for name in weights}, *batch)[0]
        for step in (-1e-7, 1e-7)
    )
    assert (above - below) / 2e-7 == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(("precision", "least", "most"), [("fp32", 1e-8, 1e-4), ("bf16", 1e-3, 0.3)])
def test_a_precision_is_off_by_as_much_as_its_rounding(precision: str, least: float, most: float) -> None:
    gradients = []
    for arithmetic in ("fp64", precision):
        network, weights, batch = make_network(make_fp64_job("every-kind", 33, 7, 4), Arrays(arithmetic))
        gradients.append(network.compute_gradients(weights, *batch)[1]["logits.weight"])
    exact, rounded = gradients
    assert rounded.dtype == np.float32
    assert least < np.linalg.norm(exact - rounded) / np.linalg.norm(exact) < most
