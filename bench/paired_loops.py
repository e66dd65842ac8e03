"""The bare loops of `bench/overhead.py --paired`: what a user writes around a network, for each framework.

A loop trains the network, the optimizer and the batch that the harness trains, in the same process. Where a framework
trains eagerly (PyTorch, Keras on PyTorch, MXNet), the loop is written as its documentation writes it. Where a step is
one compiled program (TensorFlow, JAX, Keras on both), the loop calls that same program. In either case nothing of
trainscale is in it: no tickets, no waiting for single steps, no time stamps, no heartbeats, no learning-rate schedule,
no engine. It ends as the framework's documentation ends a timed loop: when the device is done.

The loops take what they need from the adapters' private attributes, because adapters give nothing of this to others.
"""

from typing import Any, Callable  # noqa: UP035  (this runs on Python 3.9)

Loop = Callable[[int], None]  # takes this many steps


def bare_loop(adapter: Any, batch: Any) -> Loop:
    """Return the loop of the adapter's framework. The adapter has taken a step already."""
    return _LOOPS[adapter.config.framework](adapter, *batch)


def torch_loop(adapter: Any, images: Any, labels: Any) -> Loop:
    """The loop of PyTorch's tutorial. With several processes, the model is DistributedDataParallel."""
    import torch

    model, optimizer, loss_fn = adapter._forward, adapter._optimizer, torch.nn.CrossEntropyLoss()
    mixed = {"enabled": adapter.config.precision == "bf16", "dtype": torch.bfloat16}

    def train(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(adapter.device.type, **mixed):
                loss = loss_fn(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if adapter.cuda:
            torch.cuda.synchronize()

    return train


def keras_torch_loop(adapter: Any, images: Any, labels: Any) -> Loop:
    """The loop of Keras' guide for PyTorch: a Keras model with PyTorch's own loss and optimizer."""
    import torch

    model, optimizer, loss_fn = adapter._forward, adapter._optimizer, torch.nn.CrossEntropyLoss()

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = loss_fn(model(images, training=True), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if adapter.cuda:
            torch.cuda.synchronize()

    return train


def tensorflow_loop(adapter: Any, images: Any, labels: Any) -> Loop:
    """Calls of the tf.function that trains. Reading the last loss waits for the device."""
    rate = adapter._place_rate(adapter._rates(adapter._updates))
    train_step, scalars = adapter._step, (rate, adapter._dropping)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = train_step(images, labels, *scalars)
        loss.numpy()

    return train


def jax_loop(adapter: Any, images: Any, labels: Any) -> Loop:
    """Calls of the jitted step. The state is handed back to the harness, because each step donates the last one's."""
    import jax

    train_step, rate = adapter._program, adapter._place_rate(adapter._rates(adapter._steps))

    def train(steps: int) -> None:
        parameters, momentum, state = adapter._parameters, adapter._momentum, adapter._state
        for _ in range(steps):
            parameters, momentum, state, _loss = train_step(parameters, momentum, state, images, labels, rate)
        jax.block_until_ready(parameters)
        adapter._parameters, adapter._momentum, adapter._state = parameters, momentum, state

    return train


def mxnet_loop(adapter: Any, images: Any, labels: Any) -> Loop:
    """The loop of Gluon's tutorial. The loss is already a mean over the batch, hence `step(1)`."""
    import mxnet as mx
    from mxnet import autograd

    net, criterion, trainer = adapter._block, adapter._criterion, adapter._trainer

    def train(steps: int) -> None:
        for _ in range(steps):
            with autograd.record():
                loss = criterion(labels, net(images))
            loss.backward()
            trainer.step(1)
        mx.nd.waitall()

    return train


_LOOPS: dict[str, Callable[..., Loop]] = {
    "torch": torch_loop,
    "tensorflow": tensorflow_loop,
    "jax": jax_loop,
    "keras-torch": keras_torch_loop,
    "keras-tensorflow": tensorflow_loop,
    "keras-jax": jax_loop,
    "mxnet": mxnet_loop,
}
