"""The networks by name. Third parties add theirs. Only building one imports its module."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable

from .graph import Graph, ShapeError

if TYPE_CHECKING:
    from ..config import Config
    from ..job import PluginReference

CROSS_ENTROPY = "cross-entropy"  # of softmax; a label is the number of a class

Network = Callable[[str, int, int, int], Graph]  # (name, channels, image size, classes)


@dataclass(frozen=True)
class Samples:
    """What a network is trained on: samples, their unit in throughputs, and the loss."""

    unit: str = "images"
    dtype: str = "float32"
    loss: str = CROSS_ENTROPY

    def shape(self, config: Config) -> tuple[int, ...]:
        """Return the shape of one sample, without the batch: channels, height, width."""
        return config.channels, config.image_size, config.image_size


@dataclass(frozen=True)
class TrainingDefaults:
    """How a network is trained to an accuracy."""

    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    schedule: str = "constant"


IMAGES = Samples()
USUAL_TRAINING = TrainingDefaults()


@dataclass(frozen=True)
class ModelInfo:
    """A network by its canonical name, with its defaults."""

    name: str
    title: str
    builder: str  # "module:function"; a dot first means this package
    description: str
    aliases: tuple[str, ...] = ()
    image_size: int = 224
    classes: int = 1000
    channels: int = 3
    samples: Samples = IMAGES
    training: TrainingDefaults = USUAL_TRAINING
    plugin: PluginReference | None = None


_ALL = (
    ModelInfo("alexnet", "AlexNet", ".networks:alexnet", "few operations, 61 M parameters: communication limits it"),
    ModelInfo(
        "inceptionv3", "Inception v3", ".networks:inceptionv3",
        "many operations, 24 M parameters: arithmetic limits it", ("inception3", "inception"), 299,
    ),
    ModelInfo(
        "inceptionv3-aux", "Inception v3 with auxiliary head", ".networks:inceptionv3",
        "Inception v3 trained with its second classifier (loss weight 0.4)", ("inception3-aux", "inception-aux"), 299,
    ),
    *(
        ModelInfo(f"resnet{depth}", f"ResNet-{depth}", ".networks:resnet", f"residual network{description}", aliases)
        for depth, description, aliases in (
            (18, ", the smallest of its family", ()),
            (34, " of plain 3×3 blocks", ()),
            (50, " v1.5 (stride on the 3×3), the most measured of all", ("resnet50-v1.5",)),
            (101, " v1.5, between ResNet-50 and ResNet-152", ("resnet101-v1.5",)),
            # The older benchmarks meant this one by plain "resnet".
            (152, " v1.5, deep, 60 M parameters", ("resnet", "resnet152-v1.5")),
        )
    ),
    ModelInfo("vgg16", "VGG-16", ".networks:vgg16", "plain and heavy, 138 M parameters", ("vgg",)),
    ModelInfo(
        "mnist", "Deep MNIST", ".networks:mnist", "two convolutions and a dense layer, for a laptop's CPU",
        ("deep-mnist", "mnist-cnn"), 28, 10, channels=1, training=TrainingDefaults(0.02, 0.0),
    ),
    # The examples of this network and of the last one had no momentum and constant rates, 0.1 and
    # 0.01. With momentum 0.9 and a rate that falls they learn more per epoch.
    ModelInfo(
        "inception-bn-28-small", "Inception-BN 28 small", ".networks:inception_bn_28_small",
        "MXNet's CIFAR-10 example for 28×28 crops", ("inception-bn-small",), 28, 10,
        training=TrainingDefaults(0.1, 5e-4, "cosine"),
    ),
    ModelInfo(
        "inception-bn", "Inception-BN", ".networks:inception_bn", "MXNet's ImageNet example, 11 M parameters",
        ("bn-inception",),
    ),
    ModelInfo(
        "resnet50-cifar", "ResNet-50 for CIFAR-10", ".networks:resnet50_cifar",
        "pre-activation ResNet-50 on 32×32 images, as in the Keras-MXNet profile", ("cifar-resnet50", "resnet-cifar"),
        32, 10, training=TrainingDefaults(0.02, 5e-4, "cosine"),
    ),
)  # fmt: skip

_BY_NAME = {info.name: info for info in _ALL}
MODELS: Mapping[str, ModelInfo] = MappingProxyType(_BY_NAME)


def add(info: ModelInfo) -> None:
    """Add a third party's network (see ../plugins.py), unless its names are taken."""
    names = (info.name, info.title, *info.aliases)
    taken = [name for name in names if (resolve(name) or info).name != info.name]
    if taken:
        raise ValueError(f"{taken[0]!r} is already a name of {resolve(taken[0]).name!r}")  # type: ignore[union-attr]
    _BY_NAME[info.name] = info
    _index_names.cache_clear()


def list_names() -> tuple[str, ...]:
    return tuple(MODELS)


def resolve(name: str) -> ModelInfo | None:
    """Return the network of this name, in which only letters and digits matter."""
    return _index_names().get(_fold(name))


def find_samples(name: str) -> Samples:
    """Return what a network is trained on. Users' own networks are trained on images."""
    info = resolve(name)
    return info.samples if info else IMAGES


def find_training_defaults(name: str) -> TrainingDefaults:
    info = resolve(name)
    return info.training if info else USUAL_TRAINING


def build(name: str, image_size: int | None = None, classes: int | None = None) -> Graph:
    """Return the graph of a network, by default of its own image size and number of classes.

    Raises ValueError for an unknown name, and ShapeError for an image that is too small.
    """
    info = resolve(name)
    if info is None:
        import difflib  # only for a message

        close = difflib.get_close_matches(_fold(name), list(_index_names()), n=1)
        hint = f" (did you mean {_index_names()[close[0]].name!r}?)" if close else ""
        raise ValueError(f"there is no model {name!r}{hint}; the models are: {', '.join(MODELS)}")
    image_size = info.image_size if image_size is None else image_size
    return _build(info, image_size, info.classes if classes is None else classes)


@lru_cache(maxsize=32)
def _build(info: ModelInfo, image_size: int, classes: int) -> Graph:
    module, function = info.builder.split(":")
    network: Network = getattr(importlib.import_module(module, __package__), function)
    try:
        return network(info.name, info.channels, image_size, classes)
    except ShapeError as error:
        # Bisect up to the default: what fits one size fits all larger ones.
        fails, fits = image_size, info.image_size
        while fits - fails > 1:
            middle = (fails + fits) // 2
            try:
                network(info.name, info.channels, middle, info.classes)
            except ShapeError:
                fails = middle
            else:
                fits = middle
        raise ShapeError(f"{error} {info.title} needs at least {fits}.") from None


def _fold(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@cache
def _index_names() -> dict[str, ModelInfo]:
    return {_fold(name): info for info in _BY_NAME.values() for name in (info.name, info.title, *info.aliases)}
