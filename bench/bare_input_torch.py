"""The input pipeline of a user of torch: a Dataset, transforms that know one image, a DataLoader with workers. Prints
its images/s. For bench/input.py; nothing of trainscale is imported.

The transforms are torchvision's, written by hand for 8-bit images, without its detour over floating-point numbers.
"""

import gzip
import itertools
import math
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from input_clock import measure_batches, parse_arguments


class Stored(Dataset):
    """Images in memory."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform) -> None:
        self.images, self.labels, self.transform = torch.from_numpy(images), labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


class Photographs(Dataset):
    """Files in folders."""

    def __init__(self, directory: Path, size: int) -> None:
        classes = sorted(path for path in (directory / "train").iterdir() if path.is_dir())
        self.samples = [(path, number) for number, folder in enumerate(classes) for path in sorted(folder.iterdir())]
        self.size = size

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        path, label = self.samples[index]
        with path.open("rb") as file:
            image = Image.open(file).convert("RGB")
        left, top, wide, high = resized_crop(*image.size)
        image = image.crop((left, top, left + wide, top + high)).resize((self.size, self.size), Image.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def resized_crop(wide: int, high: int) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = wide * high * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= wide and 0 < height <= high:
            return random.randint(0, wide - width), random.randint(0, high - height), width, height
    side = min(wide, high)
    return (wide - side) // 2, (high - side) // 2, side, side


def crop(size: int):
    def transform(image: torch.Tensor) -> torch.Tensor:
        top, left = random.randint(0, image.shape[1] - size), random.randint(0, image.shape[2] - size)
        image = image[:, top : top + size, left : left + size]
        return image.flip(2) if random.random() < 0.5 else image

    return transform


def enlarge(size: int):
    def transform(image: torch.Tensor) -> torch.Tensor:
        times = size // image.shape[1]
        rest = size - times * image.shape[1]
        larger = image.repeat_interleave(times, 1).repeat_interleave(times, 2)
        return torch.nn.functional.pad(larger, (rest // 2, rest - rest // 2) * 2)

    return transform


def dataset(name: str, directory: Path, size: int) -> Dataset:
    if name == "photographs":
        return Photographs(directory, size)
    if name == "digits":
        images = np.frombuffer(
            gzip.decompress((directory / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, -1, 16
        )
        labels = np.frombuffer(
            gzip.decompress((directory / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, -1, 8
        )
        return Stored(images.reshape(-1, 1, 28, 28).copy(), labels, lambda image: image)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(directory.rglob("data_batch_?.bin"))])
    records = records.reshape(-1, 3073)
    transform = crop(size) if name == "crop" else enlarge(size)
    return Stored(records[:, 1:].reshape(-1, 3, 32, 32).copy(), records[:, 0], transform)


def main() -> None:
    options = parse_arguments()
    loader = DataLoader(
        dataset(options.name, options.directory, options.size),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.loaders,
        drop_last=True,
        persistent_workers=True,
    )
    pixels = measure_batches(itertools.chain.from_iterable(itertools.repeat(loader)), options)
    assert pixels.dtype == torch.uint8
    assert pixels.shape[-1] == options.size


if __name__ == "__main__":
    main()
