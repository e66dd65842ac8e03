"""A training script as a person writes it in Keras: no trainscale, no harness. One process; prints images per second.

KERAS_BACKEND=jax python bench/bare_keras.py --depth 18 --image-size 96 --batch 8
"""

import argparse
import os
import time

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=18, choices=STAGES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--channels-first", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    # Before the imports: libraries take their threads from the cores and the variables that they find.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[name] = "1"
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402


def conv_bn(x: keras.KerasTensor, filters: int, kernel: int, stride: int = 1) -> keras.KerasTensor:
    """Padded alike on both sides, as the network's authors did."""
    if stride > 1 and kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2)(x)
    padding = "valid" if stride > 1 else "same"
    x = layers.Conv2D(filters, kernel, stride, padding, use_bias=False)(x)
    axis = 1 if keras.config.image_data_format() == "channels_first" else -1
    return layers.BatchNormalization(axis, momentum=0.9, epsilon=1e-5)(x)


def block(x: keras.KerasTensor, width: int, stride: int, deep: bool, new: bool) -> keras.KerasTensor:
    """Two 3×3 convolutions, or 1×1, 3×3, 1×1 (with the stride on the 3×3) in the deep networks."""
    out = width * 4 if deep else width
    short = conv_bn(x, out, 1, stride) if new else x
    if deep:
        x = layers.ReLU()(conv_bn(x, width, 1))
        x = layers.ReLU()(conv_bn(x, width, 3, stride))
        x = conv_bn(x, out, 1)
    else:
        x = layers.ReLU()(conv_bn(x, width, 3, stride))
        x = conv_bn(x, out, 3)
    return layers.ReLU()(layers.Add()([x, short]))


def resnet(depth: int, shape: tuple[int, ...]) -> keras.Model:
    deep = depth >= 50
    images = keras.Input(shape)
    x = layers.ReLU()(conv_bn(images, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stage, count in enumerate(STAGES[depth]):
        for number in range(count):
            stride = 2 if stage and not number else 1
            x = block(x, 64 << stage, stride, deep, new=not number and (deep or stage > 0))
    return keras.Model(images, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


class Clock(keras.callbacks.Callback):
    """When the warm-up was done; what comes before, compiling too, does not count."""

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self.warmup, self.began = warmup, 0.0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if batch == self.warmup - 1:
            float((logs or {})["loss"])  # waits for it
            self.began = time.perf_counter()


def main(options: argparse.Namespace) -> None:
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    keras.config.set_image_data_format("channels_first" if options.channels_first else "channels_last")
    keras.utils.set_random_seed(0)
    size = options.image_size
    shape = (3, size, size) if options.channels_first else (size, size, 3)
    model = resnet(options.depth, shape)
    model.compile(
        optimizer=keras.optimizers.SGD(0.001, momentum=0.9, weight_decay=1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    # One epoch of all steps: between epochs Keras does more than train. Four batches' images, seen again and again.
    steps = options.warmup + options.steps
    count = options.batch * steps
    some = np.random.default_rng(0).standard_normal((4 * options.batch, *shape), dtype=np.float32)
    images = np.resize(some, (count, *shape))
    labels = np.random.default_rng(1).integers(1000, size=count)
    clock = Clock(options.warmup)
    model.fit(images, labels, batch_size=options.batch, shuffle=False, verbose=0, callbacks=[clock])
    # fit returns with numbers of the last step in hand: it is done.
    seconds = time.perf_counter() - clock.began
    print(f"images/s {options.batch * options.steps / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main(options)
