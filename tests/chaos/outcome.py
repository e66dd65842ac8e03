"""How a scenario ended, for the report."""

from __future__ import annotations

from dataclasses import dataclass

from .judge import Observation
from .scenario import Scenario


@dataclass(frozen=True)
class Outcome:
    """``error`` says why the scenario could not be performed: the lab did not do its part."""

    scenario: Scenario
    observation: Observation | None
    seconds: float
    error: str = ""
