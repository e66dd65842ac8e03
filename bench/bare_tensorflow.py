"""A TensorFlow training script as a person writes it: no trainscale, no harness. Prints images per second.

python bench/bare_tensorflow.py --depth 18 --image-size 96 --batch 8
"""

import argparse
import os
import time

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=18, choices=STAGES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    if options.device == "cpu":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1", OMP_NUM_THREADS="1")

    import keras
    import tensorflow as tf
    from keras import layers

    def conv_bn(x, filters: int, kernel: int, stride: int = 1):
        if stride > 1 and kernel > 1:
            x, padding = layers.ZeroPadding2D(kernel // 2)(x), "valid"
        else:
            padding = "same"
        x = layers.Conv2D(filters, kernel, stride, padding=padding, use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    def block(x, width: int, stride: int, deep: bool):
        """Two 3×3 convolutions, or 1×1, 3×3, 1×1 (with the stride on the 3×3) in the deep networks."""
        short, out = x, width * 4 if deep else width
        if deep:
            x = layers.ReLU()(conv_bn(x, width, 1))
            x = layers.ReLU()(conv_bn(x, width, 3, stride))
            x = conv_bn(x, out, 1)
        else:
            x = layers.ReLU()(conv_bn(x, width, 3, stride))
            x = conv_bn(x, out, 3)
        if stride != 1 or short.shape[-1] != out:
            short = conv_bn(short, out, 1, stride)
        return layers.ReLU()(layers.Add()([x, short]))

    def resnet(depth: int, size: int) -> keras.Model:
        inputs = keras.Input((size, size, 3))
        x = layers.ReLU()(conv_bn(inputs, 64, 7, 2))
        x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
        for stage, count in enumerate(STAGES[depth]):
            for number in range(count):
                x = block(x, 64 << stage, 2 if stage and not number else 1, depth >= 50)
        return keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))

    keras.utils.set_random_seed(0)
    model = resnet(options.depth, options.image_size)
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9, weight_decay=1e-4)
    optimizer.build(model.trainable_variables)
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.device("GPU:0" if options.device == "cuda" else "CPU:0"):
        images = tf.random.normal((options.batch, options.image_size, options.image_size, 3))
        labels = tf.random.uniform((options.batch,), maxval=1000, dtype=tf.int32)

    @tf.function(jit_compile=options.compile or None)
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = criterion(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for _ in range(options.warmup):
        loss = step(images, labels)
    loss.numpy()
    began = time.perf_counter()
    for _ in range(options.steps):
        loss = step(images, labels)
    loss.numpy()  # a GPU is still at work
    seconds = time.perf_counter() - began
    print(f"images/s {options.batch * options.steps / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
