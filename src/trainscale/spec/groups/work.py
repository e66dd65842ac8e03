"""Settings of the work: networks, frameworks, data, and training to an accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...worker.data import SOURCES
from ...worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES
from ..config import Config
from ..settings import SettingGroup, setting
from ..value_types import BATCHES, DATA, NAMES, SCHEDULE, SWITCH, SWITCHES, choice, listed, number, whole

MOST_EPOCHS = 100  # the limit where only an accuracy is given


@dataclass(frozen=True)
class WorkSettings(SettingGroup):
    table: ClassVar[str] = "work"
    title: ClassVar[str] = "networks, frameworks and data"

    models: tuple[str, ...] = setting(
        NAMES,
        "networks to train, each NAME, NAME:BATCH or NAME:auto; also torchvision:NAME, timm:NAME, keras:NAME,"
        " gluon:NAME and my_package.module:function",
        "-m",
        "--model",
        default=("alexnet", "inceptionv3"),
    )
    frameworks: tuple[str, ...] = setting(
        NAMES, f"frameworks to measure: {', '.join(FRAMEWORKS)}", "--framework", default=("torch",)
    )
    strategies: tuple[str, ...] | None = setting(
        NAMES,
        f"how workers exchange gradients: {', '.join(STRATEGIES)}; ps:2 uses two servers, ps:each one server on each"
        " host that has workers",
        "--strategy",
        default_text="allreduce, or ps where a framework has no allreduce",
    )
    batch: tuple[int, ...] | None = setting(  # each a number or AUTO
        BATCHES,
        "images per device (of all devices under strong scaling) for networks named without a batch, such as 4,8,16;"
        " auto searches for the largest batch that fits",
        "-b",
        default_text="depends on the device",
    )
    max_batch: int | None = setting(
        whole(1),
        "largest batch to try where the batch is auto",
        default_text="65536, and at most the number of training images",
    )
    image_size: int | None = setting(
        whole(1), "height and width of an image, in pixels", default_text="set by the network"
    )
    classes: int | None = setting(whole(2), "number of classes", default_text="set by the data set or the network")
    precision: tuple[str, ...] | None = setting(
        listed(choice(*PRECISIONS)), f"number format, or a list: {', '.join(PRECISIONS)}", default_text="fp32"
    )
    layout: tuple[str, ...] | None = setting(
        listed(choice(*LAYOUTS)),
        "nchw (channels first), nhwc (channels last), or a list of both",
        default_text="the faster one for the framework and the device",
    )
    compile: tuple[bool, ...] | None = setting(
        SWITCHES,
        "compile the network with the framework's compiler; --compile on,off measures both",
        default_text="off",
    )
    data: str = setting(
        DATA,
        "images to train on: "
        + "; ".join(f"{name}: {description}" for name, description in SOURCES.items())
        + "; mnist:DIR and cifar10:DIR name the folder of the files",
        default="synthetic",
    )
    augment: bool = setting(
        SWITCH,
        "randomly crop, mirror or shift training images",
        default=True,
        default_text="{}, except for digit data sets",
    )
    seed: int = setting(
        whole(0), "seed for the weights, the order of the images and all other random choices", default=1337
    )


@dataclass(frozen=True)
class TrainingSettings(SettingGroup):
    table: ClassVar[str] = "training"
    title: ClassVar[str] = "training to an accuracy"

    epochs: int | None = setting(
        whole(1),
        "train for N epochs and validate after each one",
        default_text="none; speed is measured over a number of steps",
    )
    until_accuracy: float | None = setting(
        number(0, 1, above=True),
        "stop after the epoch that reaches this validation accuracy, such as 0.99, and after --epochs at the latest"
        f" ({MOST_EPOCHS} if not given)",
        metavar="SHARE",
    )
    learning_rate: float | None = setting(
        number(0, math.inf, above=True),
        "learning rate of SGD",
        "--lr",
        default_text=f"set by the network with --epochs, else {Config.learning_rate:g}",
        metavar="RATE",
    )
    momentum: float = setting(number(0, 0.9999), "momentum of SGD", default=Config.momentum)
    weight_decay: float | None = setting(
        number(0, 1),
        "weight decay of SGD",
        default_text=f"set by the network with --epochs, else {Config.weight_decay:g}",
    )
    schedule: str | None = setting(
        SCHEDULE,
        "how the learning rate changes: constant, cosine, step:30,60 (to a tenth at epochs 30 and 60) or step:30,60:0.5"
        " (to half)",
        default_text=f"set by the network with --epochs, else {Config.schedule}",
    )
    warmup_epochs: float = setting(
        number(0, 1000), "number of epochs in which the learning rate rises from zero", default=0.0
    )
    deterministic: bool = setting(
        SWITCH, "use slower operations of the framework that give the same numbers in every run", default=False
    )
