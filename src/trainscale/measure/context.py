"""What stays the same during a run: its plan, how its processes are started, and what its frameworks are."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..launch.launchers.base import Launcher
from ..spec.config import Config
from ..spec.plan import Plan
from ..worker.events import FrameworkFacts


@dataclass(frozen=True)
class RunContext:
    plan: Plan
    launcher: Launcher
    pythons: Mapping[str, str]  # the interpreter of each framework
    frameworks: Mapping[str, FrameworkFacts] = field(default_factory=dict)  # those that can be used
    missing: Mapping[str, str] = field(default_factory=dict)  # those that cannot, with the reasons
    retry_failed: bool = False
    logs: Path | None = None  # the folder for what the ranks print

    @property
    def usable_plan(self) -> Plan:
        """The plan without the frameworks that are missing."""
        return leave_out(self.plan, self.missing)


def leave_out(plan: Plan, frameworks: Container[str]) -> Plan:
    """Return the plan without these frameworks."""
    return select_configs(plan, lambda config: config.framework not in frameworks)


def select_configs(plan: Plan, is_wanted: Callable[[Config], bool]) -> Plan:
    """Return the plan with only the wanted configs and their ladders."""
    pairs = [pair for pair in zip(plan.configs, plan.ladders, strict=True) if is_wanted(pair[0])]
    return replace(plan, configs=tuple(config for config, _ in pairs), ladders=tuple(ladder for _, ladder in pairs))
