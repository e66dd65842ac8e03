"""A training script as a person writes it in JAX: no trainscale, no harness. One process; prints images per second.

python bench/bare_jax.py --depth 18 --image-size 96 --batch 8
"""

import argparse
import os
import time
from functools import partial

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=18, choices=STAGES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bf16", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    if options.device == "cpu":  # before the import: JAX takes its threads from the cores it finds
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402


def layers(depth: int) -> list[tuple[str, int, int, int, int]]:
    """Every convolution: name, channels in and out, kernel, stride."""
    deep = depth >= 50
    all_layers = [("stem", 3, 64, 7, 2)]
    channels = 64
    for stage, count in enumerate(STAGES[depth]):
        width = 64 << stage
        out = width * 4 if deep else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            name = f"{stage}.{block}"
            if deep:
                all_layers += [(f"{name}.a", channels, width, 1, 1), (f"{name}.b", width, width, 3, stride)]
                all_layers.append((f"{name}.c", width, out, 1, 1))
            else:
                all_layers += [(f"{name}.a", channels, width, 3, stride), (f"{name}.b", width, out, 3, 1)]
            if stride != 1 or channels != out:
                all_layers.append((f"{name}.short", channels, out, 1, stride))
            channels = out
    return all_layers


def initialise(depth: int, key: jax.Array) -> tuple[dict, dict]:
    params, stats = {}, {}
    for name, channels, out, kernel, _ in layers(depth):
        key, now = jax.random.split(key)
        scale = (2 / (channels * kernel * kernel)) ** 0.5
        weight = scale * jax.random.normal(now, (kernel, kernel, channels, out))
        params[name] = {"w": weight, "scale": jnp.ones(out), "shift": jnp.zeros(out)}
        stats[name] = {"mean": jnp.zeros(out), "var": jnp.ones(out)}
    params["head"] = {"w": 0.01 * jax.random.normal(key, (out, 1000)), "b": jnp.zeros(1000)}
    return params, stats


def forward(depth: int, params: dict, stats: dict, images: jax.Array) -> tuple[jax.Array, dict]:
    strides = {name: stride for name, _, _, _, stride in layers(depth)}
    new_stats = {}

    def conv_bn(name: str, x: jax.Array) -> jax.Array:
        p, old = params[name], stats[name]
        edge = p["w"].shape[0] // 2
        x = lax.conv_general_dilated(
            x,
            p["w"].astype(x.dtype),
            (strides[name],) * 2,
            [(edge, edge)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        wide = x.astype(jnp.float32)
        mean = wide.mean((0, 1, 2))
        var = (wide**2).mean((0, 1, 2)) - mean**2
        new_stats[name] = {"mean": 0.9 * old["mean"] + 0.1 * mean, "var": 0.9 * old["var"] + 0.1 * var}
        factor = lax.rsqrt(var + 1e-5) * p["scale"]
        return (wide * factor + (p["shift"] - mean * factor)).astype(x.dtype)

    x = jax.nn.relu(conv_bn("stem", images))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    for stage, count in enumerate(STAGES[depth]):
        for block in range(count):
            name = f"{stage}.{block}"
            short = conv_bn(f"{name}.short", x) if f"{name}.short" in params else x
            x = jax.nn.relu(conv_bn(f"{name}.a", x))
            x = conv_bn(f"{name}.b", x)
            if depth >= 50:
                x = conv_bn(f"{name}.c", jax.nn.relu(x))
            x = jax.nn.relu(x + short)
    x = x.mean((1, 2))
    head = params["head"]
    return x @ head["w"].astype(x.dtype) + head["b"].astype(x.dtype), new_stats


@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2, 3))
def train_step(depth: int, params: dict, momentum: dict, stats: dict, images: jax.Array, labels: jax.Array):
    def loss_of(params: dict) -> tuple[jax.Array, dict]:
        logits, new_stats = forward(depth, params, stats, images)
        logarithms = jax.nn.log_softmax(logits.astype(jnp.float32))
        return -jnp.take_along_axis(logarithms, labels[:, None], axis=1).mean(), new_stats

    (loss, new_stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    momentum = jax.tree.map(lambda v, g, w: 0.9 * v + g + 1e-4 * w, momentum, grads, params)
    params = jax.tree.map(lambda w, v: w - 0.001 * v, params, momentum)
    return params, momentum, new_stats, loss


def main(options: argparse.Namespace) -> None:
    params, stats = initialise(options.depth, jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, params)
    size = options.image_size
    images = jax.random.normal(jax.random.key(1), (options.batch, size, size, 3))
    images = images.astype(jnp.bfloat16 if options.bf16 else jnp.float32)
    labels = jax.random.randint(jax.random.key(2), (options.batch,), 0, 1000)
    for _ in range(options.warmup):
        params, momentum, stats, loss = train_step(options.depth, params, momentum, stats, images, labels)
    jax.block_until_ready(loss)
    began = time.perf_counter()
    for _ in range(options.steps):
        params, momentum, stats, loss = train_step(options.depth, params, momentum, stats, images, labels)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - began
    print(f"images/s {options.batch * options.steps / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main(options)
