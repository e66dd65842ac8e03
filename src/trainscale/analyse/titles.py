"""What a series is called: short, and different from every other series of the run.

The names come from the configs alone. Files and charts both use ``differences``, so that what tells two
series apart is decided once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

from ..spec.config import Config
from ..worker.models import resolve

# What may tell two series apart, most telling first: the value compared, and how a title writes it.
_TRAITS: tuple[tuple[Callable[[Config], Hashable], Callable[[Config], str]], ...] = (
    (lambda c: c.framework, lambda c: c.framework),
    (lambda c: (c.strategy, c.servers), lambda c: c.strategy_label),
    (lambda c: c.server_placement, lambda c: f"servers {c.server_placement}"),
    (lambda c: c.batch, lambda c: f"batch {c.batch}"),
    (lambda c: c.scaling, lambda c: f"{c.scaling} scaling"),
    (lambda c: c.precision, lambda c: c.precision),
    (lambda c: c.layout, lambda c: c.layout),
    (lambda c: c.compile, lambda c: "compiled" if c.compile else "eager"),
    (lambda c: c.data, lambda c: c.data),
    (lambda c: c.image_size, lambda c: f"{c.image_size} px"),
    (lambda c: c.classes, lambda c: f"{c.classes} classes"),
    (lambda c: c.device, lambda c: c.device),
    (lambda c: c.cores_per_device, lambda c: f"{c.cores_per_device} cores"),
    (lambda c: c.ranks_per_gpu, lambda c: f"{c.ranks_per_gpu} ranks per GPU"),
)


def differences(configs: Sequence[Config]) -> dict[Config, list[str]]:
    """For each config, its words for the traits in which these configs differ."""
    words: dict[Config, list[str]] = {config: [] for config in configs}
    for value, write in _TRAITS:
        if len({value(config) for config in words}) > 1:
            for config, parts in words.items():
                parts.append(write(config))
    return words


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
    return info.title if info else name


def _model_titles(names: set[str]) -> dict[str, str]:
    """Titles by name; where two models share a title, both go by their names."""
    titles = {name: model_title(name) for name in names}
    shared = Counter(titles.values())
    return {name: title if shared[title] == 1 else name for name, title in titles.items()}
