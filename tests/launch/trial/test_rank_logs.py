"""The log files of a trial's ranks."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainscale.launch.trial.trial import RankLogs
from trainscale.spec.config import Config, Trial

TRIAL = Trial(Config("torch", "mnist", 32, "allreduce", 28, 10), 300, 0)


@pytest.fixture
def _few_open_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("_few_open_files")
def test_more_ranks_may_print_than_files_may_be_open_and_no_line_is_lost(tmp_path: Path) -> None:
    with RankLogs(tmp_path / "logs", TRIAL) as logs:
        for number in range(3):
            for rank in range(300):
                logs.write(rank, f"line {number} of {rank}")
    for rank in range(300):
        lines = (tmp_path / "logs" / f"{TRIAL.key}.rank{rank}.log").read_text().splitlines()
        assert lines == [f"line {number} of {rank}" for number in range(3)]


def test_a_trial_that_runs_again_begins_its_logs_anew(tmp_path: Path) -> None:
    for text in ("before", "after"):
        with RankLogs(tmp_path, TRIAL) as logs:
            logs.write(0, text)
    assert (tmp_path / f"{TRIAL.key}.rank0.log").read_text() == "after\n"


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    logs_folder = tmp_path / "logs"
    logs_folder.mkdir()
    (logs_folder / f"{TRIAL.key}.rank0.log").symlink_to(outside)
    with RankLogs(logs_folder, TRIAL) as logs:
        logs.write(0, "overwritten")
    assert "symbolic links" in logs.notes[0]
    assert outside.read_text() == "precious\n"
