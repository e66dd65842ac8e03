"""The commands that mutations are run with: tiny networks, one trial, on CPU cores."""

from __future__ import annotations

from mutation import MutationRun

# Networks of tests/support/graph_nets.py: one without batch norm and dropout, and one with every kind of layer.
PLAIN, EVERY_KIND = "plain-graph:4", "every-kind:4"
# A network of the catalogue whose steps take long enough that work in a queue is seen.
SLOW = "mnist:64"
# The harness puts a small data set in place of DIR.
MNIST = "mnist:DIR"


def local(framework: str, model: str = PLAIN, *options: str) -> MutationRun:
    return MutationRun(framework, model, "local", 1, options)


def layers(framework: str, *options: str) -> MutationRun:
    """One device and a network with every kind of layer. 32 pixels make TensorFlow's padding uneven."""
    return MutationRun(framework, EVERY_KIND, "local", 1, ("--image-size", "32", *options))


def parity(framework: str) -> MutationRun:
    """The same network in another framework too, so that both are compared."""
    reference = "torch" if framework != "torch" else "jax"
    return MutationRun(f"{reference},{framework}", EVERY_KIND, "local", 1, ("--image-size", "32"))


def two(framework: str, strategy: str, *options: str) -> MutationRun:
    return MutationRun(framework, PLAIN, strategy, 2, options)


def real_images(framework: str, strategy: str = "local", devices: int = 1, *options: str) -> MutationRun:
    return MutationRun(framework, "mnist:8", strategy, devices, ("--data", MNIST, *options))
