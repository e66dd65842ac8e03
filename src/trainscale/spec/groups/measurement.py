"""Settings of the measurement: how long and how often, checks and time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..settings import SettingGroup, setting
from ..value_types import DURATION, SEARCH, SHARE, SWITCH, choice, whole


@dataclass(frozen=True)
class MeasurementSettings(SettingGroup):
    table: ClassVar[str] = "measurement"
    title: ClassVar[str] = "measurement"

    scaling: str = setting(
        choice("weak", "strong"),
        "weak: the batch per device is fixed; strong: the batch of all devices together is fixed",
        default="weak",
    )
    warmup: int = setting(whole(2), "number of steps before the measured window", default=10)
    steps: int = setting(whole(2), "number of steps in the measured window", default=100)
    repeats: int = setting(
        whole(1),
        "number of trials per point, each in fresh processes",
        default=5,
        default_text="{}, or 1 with --epochs",
    )
    budget: float | None = setting(
        DURATION,
        "time limit for the whole run, such as 5m; points with the widest confidence intervals are repeated until all"
        " are within ±1 %",
    )
    until_interval: float | None = setting(
        SHARE,
        "repeat until the interval of every speed and efficiency is within ± this share, such as 1%; each repeat goes"
        " to the point where it narrows the intervals most per second and device; --budget may limit the time",
        default_text="1% of speeds with --budget",
    )
    explain: bool = setting(
        SWITCH,
        "also measure what trainscale explain needs: ranks that exchange nothing, exchanges alone, other batches; takes"
        " up to 40 % more time",
        default=False,
    )
    search: str | None = setting(
        SEARCH,
        "find the fastest combination of the settings that are lists, for every device count, without measuring all in"
        " full; default also tries what the frameworks offer for settings that are not given",
        default_text="every combination is measured in full",
    )
    study: bool = setting(
        SWITCH,
        "measure weak and strong scaling of the same networks, each point at least 5 times, for trainscale study",
        default=False,
    )
    strong_batch: int | None = setting(
        whole(1),
        "images of all devices together on the strong ladder of --study",
        default_text="the batch of the network, as a multiple of every device count",
    )

    @property
    def is_sequential(self) -> bool:
        """Whether the results decide how often each point is repeated."""
        return self.budget is not None or self.until_interval is not None


@dataclass(frozen=True)
class SafetySettings(SettingGroup):
    table: ClassVar[str] = "safety"
    title: ClassVar[str] = "checks and time limits"

    parity: bool = setting(
        SWITCH,
        "check that all frameworks train the same network before comparing them; results are cached",
        default=True,
    )
    witness: bool = setting(
        SWITCH,
        "compare the first steps of every trial with what one device would compute with all images",
        default=True,
    )
    timeout: float = setting(
        DURATION, "time limit of a trial", default=1800.0, default_text="{}, or 7 days with --epochs"
    )
    stall_timeout: float = setting(DURATION, "time without progress after which a rank counts as hung", default=180.0)
