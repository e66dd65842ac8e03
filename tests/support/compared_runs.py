"""Journals that the tests of ``trainscale compare`` compare, and the command itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_config, make_run, record_at
from stored_runs import write_run
from studied_runs import NEAR

from trainscale import cli
from trainscale.record.parity import PROVEN, WitnessVerdict
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config

SPEEDS = {1: 100.0, 2: 190.0, 4: 360.0}
CONFIG = make_config()
TITLE = "AlexNet · torch · allreduce"


def records(
    factor: float = 1.0, values: Sequence[float] = NEAR, config: Config = CONFIG, speeds: Mapping[int, float] = SPEEDS
) -> list[TrialRecord]:
    return [
        record_at(speed * factor * value, config, devices, repeat, witness=WitnessVerdict(PROVEN))
        for repeat, value in enumerate(values)
        for devices, speed in speeds.items()
    ]


def write(directory: Path, trials: Sequence[TrialRecord], spec: Mapping[str, Any] | None = None, **facts: Any) -> Path:
    run = replace(make_run(**facts), spec={"warmup": 2, "steps": 3, **(spec or {})})
    return write_run(directory, trials, run)


def write_runs(folder: Path) -> None:
    """Write run a, and three that are the same, slower and faster."""
    for name, factor in {"a": 1.0, "same": 1.001, "slow": 0.95, "fast": 1.05}.items():
        write(folder / name, records(factor))


class Compare:
    """``trainscale compare`` in this process, which has imported what takes long."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *argv: str, code: int = 0) -> str:
        """Return what the command prints."""
        assert cli.main(["compare", *argv]) == code
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def document(self, *argv: str, code: int = 0) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.text(*argv, "--json", code=code))
        return values

    def refusal(self, *argv: str) -> str:
        """Return the message of a command line that cannot be used."""
        assert cli.main(["compare", *argv]) == 2
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return printed.err.removeprefix("trainscale: ")
