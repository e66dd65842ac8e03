"""What a series is called: short, and different from every other series of the run.

The names come from the configs alone. Files and charts both use ``differences``, so that what tells two
series apart is decided once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields

from ..spec.config import Config
from ..worker.models import resolve
from .text import printable

# What may tell two series apart, most telling first, and how a title writes it. A model has a title of its own.
_WORDS: dict[str, Callable[[Config], str]] = {
    "framework": lambda config: config.framework,
    "strategy_label": lambda config: config.strategy_label,
    "server_placement": lambda config: f"servers {config.server_placement}",
    "batch": lambda config: f"batch {config.batch}",
    "scaling": lambda config: f"{config.scaling} scaling",
    "precision": lambda config: config.precision,
    "layout": lambda config: config.layout,
    "compile": lambda config: "compiled" if config.compile else "eager",
    "data": lambda config: config.data,
    "image_size": lambda config: f"{config.image_size} px",
    "device": lambda config: config.device,
    "cores_per_device": lambda config: f"{config.cores_per_device} cores",
}
_SAID_OTHERWISE = {"model", "strategy", "servers"}


def differences(configs: Sequence[Config]) -> dict[Config, list[str]]:
    """For each config, its words for the traits in which these configs differ. No field can be forgotten."""
    others = [field.name for field in fields(Config) if field.name not in {*_WORDS, *_SAID_OTHERWISE}]
    traits = {**_WORDS, **{name: _plainly(name) for name in others}}
    words: dict[Config, list[str]] = {config: [] for config in configs}
    for name, write in traits.items():
        if len({getattr(config, name) for config in words}) > 1:
            for config, parts in words.items():
                parts.append(write(config))
    return words


def _plainly(name: str) -> Callable[[Config], str]:
    """For a field without words of its own: ``classes 10``."""
    return lambda config: f"{name.replace('_', ' ')} {getattr(config, name)}"


def series_titles(configs: Sequence[Config]) -> dict[Config, str]:
    """A unique title per config: model, framework and strategy, then only what still tells them apart."""
    models = _model_titles({config.model for config in configs})
    alike: defaultdict[tuple[str, ...], list[Config]] = defaultdict(list)
    for config in configs:
        alike[(models[config.model], config.framework, config.strategy_label)].append(config)
    titles = {}
    for base, group in alike.items():
        for config, parts in differences(group).items():
            titles[config] = " · ".join([*base, *parts])
    return {config: titles[config] for config in configs}


def model_title(name: str) -> str:
    """A model's name as people write it (``alexnet`` is AlexNet), or the name itself if it is the user's."""
    info = resolve(name)
    return info.title if info else printable(name)


def _model_titles(names: set[str]) -> dict[str, str]:
    """Titles by name; where two models share a title, both go by their names."""
    titles = {name: model_title(name) for name in names}
    shared = Counter(titles.values())
    return {name: title if shared[title] == 1 else printable(name) for name, title in titles.items()}
