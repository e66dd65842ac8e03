"""The settings of an experiment, in the groups that --help and the experiment file have too."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import TrainscaleError
from ..settings import Setting, SettingGroup
from .measurement import MeasurementSettings, SafetySettings
from .resources import ClusterSettings, ResourceSettings
from .work import MOST_EPOCHS, TrainingSettings, WorkSettings

__all__ = [
    "GROUPS",
    "MOST_EPOCHS",
    "SETTINGS",
    "ClusterSettings",
    "MeasurementSettings",
    "ResourceSettings",
    "SafetySettings",
    "TrainingSettings",
    "WorkSettings",
    "collect_settings",
]

GROUPS: tuple[type[SettingGroup], ...] = (
    WorkSettings,
    TrainingSettings,
    ResourceSettings,
    ClusterSettings,
    MeasurementSettings,
    SafetySettings,
)


def collect_settings(launcher_groups: Sequence[type[SettingGroup]] = ()) -> dict[str, Setting]:
    """Return every setting by its key, with those that launchers declare. No two may have the same key or flag."""
    settings: dict[str, Setting] = {}
    flags: set[str] = set()
    for group in (*GROUPS, *launcher_groups):
        for declared in group.settings():
            taken = flags.intersection(declared.flags)
            if declared.key in settings or taken:
                name = min(taken, default=declared.key)
                raise TrainscaleError(f"{group.__module__}.{group.__name__} declares {name}, which exists already")
            settings[declared.key] = declared
            flags.update(declared.flags)
    return settings


SETTINGS = collect_settings()
