"""The titles of series, made from the configs alone: short, and unique within the run."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields

from ..record.decoding import remove_unprintable
from ..spec.config import Config
from ..worker.models import resolve

# How a title writes the traits in which series may differ, the most important first.
_TRAITS: dict[str, Callable[[Config], str]] = {
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
    "cores_per_device": lambda config: f"{config.cores_per_device} core{'' if config.cores_per_device == 1 else 's'}",
}
_IN_LABELS = ("scaling", "server_placement", "placement", "precision", "layout", "compile")


def describe_differences(configs: Sequence[Config]) -> dict[Config, list[str]]:
    written = {*_TRAITS, "model", "strategy", "servers"}
    others = [field.name for field in fields(Config) if field.name not in written]
    texts: dict[Config, list[str]] = {config: [] for config in configs}
    for name in (*_TRAITS, *others):
        if len({getattr(config, name) for config in texts}) > 1:
            for config, parts in texts.items():
                usual = f"{name.replace('_', ' ')} {getattr(config, name)}"
                parts.append(_TRAITS[name](config) if name in _TRAITS else usual)
    return texts


def make_series_titles(configs: Sequence[Config]) -> dict[Config, str]:
    models = {config.model: find_model_title(config.model) for config in configs}
    shared = Counter(models.values())
    for name in [name for name, title in models.items() if shared[title] > 1]:
        models[name] = remove_unprintable(name)
    alike: defaultdict[tuple[str, ...], list[Config]] = defaultdict(list)
    for config in configs:
        alike[(models[config.model], config.framework, config.strategy_label)].append(config)
    titles = {}
    for base, group in alike.items():
        for config, parts in describe_differences(group).items():
            titles[config] = " · ".join([*base, *parts])
    return {config: titles[config] for config in configs}


def make_strategy_labels(configs: Sequence[Config]) -> dict[Config, str]:
    """Return each strategy with the settings that differ and have no column."""
    varied = [name for name in _IN_LABELS if len({getattr(config, name) for config in configs}) > 1]
    traits = dict(_TRAITS)  # "scaling" is shorter, because columns are narrow
    traits |= {"scaling": lambda config: config.scaling, "placement": lambda config: config.placement}
    return {c: " ".join([c.strategy_label, *(traits[name](c) for name in varied)]) for c in configs}


def find_model_title(name: str) -> str:
    info = resolve(name)
    return info.title if info else remove_unprintable(name)
