"""The input pipeline of a user of TensorFlow: tf.data with a parallel map, batch and prefetch. Prints its images/s.
For bench/input.py; nothing of trainscale is imported.
"""

import gzip
from pathlib import Path

import numpy as np
import tensorflow as tf

from input_clock import measure_batches, parse_arguments


def stored(name: str, directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (images, rows, columns, channels), as TensorFlow has them, and labels."""
    if name == "digits":
        images = np.frombuffer(
            gzip.decompress((directory / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, -1, 16
        )
        labels = np.frombuffer(
            gzip.decompress((directory / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, -1, 8
        )
        return images.reshape(-1, 28, 28, 1), labels.astype(np.int64)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(directory.rglob("data_batch_?.bin"))])
    records = records.reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), records[:, 0].astype(np.int64)


def crop(size: int):
    return lambda image, label: (tf.image.random_flip_left_right(tf.image.random_crop(image, [size, size, 3])), label)


def enlarge(size: int):
    times = size // 32
    before, after = (size - 32 * times) // 2, size - 32 * times - (size - 32 * times) // 2

    def transform(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        larger = tf.repeat(tf.repeat(image, times, axis=0), times, axis=1)
        return tf.pad(larger, [[before, after], [before, after], [0, 0]]), label

    return transform


def photograph(size: int, alias: bool):
    def transform(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        content = tf.io.read_file(path)
        shape = tf.image.extract_jpeg_shape(content)
        begin, extent, _ = tf.image.sample_distorted_bounding_box(
            shape, tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3),
            min_object_covered=0.0, max_attempts=10, use_image_if_no_bounding_boxes=True,
        )  # fmt: skip
        window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
        image = tf.image.decode_and_crop_jpeg(content, window, channels=3)
        image = tf.cast(tf.image.resize(image, [size, size], antialias=not alias), tf.uint8)
        return tf.image.random_flip_left_right(image), label

    return transform


def pipeline(name: str, directory: Path, size: int, batch: int, loaders: int, alias: bool) -> tf.data.Dataset:
    if name == "photographs":
        classes = sorted(path for path in (directory / "train").iterdir() if path.is_dir())
        samples = [(str(path), number) for number, folder in enumerate(classes) for path in sorted(folder.iterdir())]
        paths, labels = zip(*samples, strict=True)
        dataset = tf.data.Dataset.from_tensor_slices((list(paths), np.array(labels, np.int64)))
        transform, count = photograph(size, alias), len(samples)
    else:
        images, labels = stored(name, directory)
        dataset, count = tf.data.Dataset.from_tensor_slices((images, labels)), len(labels)
        transform = {"digits": None, "crop": crop(size), "enlarge": enlarge(size)}[name]
    dataset = dataset.shuffle(count).repeat()
    if transform is not None:
        dataset = dataset.map(transform, num_parallel_calls=loaders)
    dataset = dataset.batch(batch, drop_remainder=True).prefetch(2 * loaders)
    settings = tf.data.Options()
    settings.threading.private_threadpool_size = loaders
    return dataset.with_options(settings)


def main() -> None:
    options = parse_arguments()
    made = pipeline(options.name, options.directory, options.size, options.batch, options.loaders, options.alias)
    pixels = measure_batches(iter(made), options)
    assert pixels.dtype == tf.uint8
    assert pixels.shape[1] == options.size


if __name__ == "__main__":
    main()
