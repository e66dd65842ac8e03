"""A part of the fault campaign with fixed seeds. ``python -m tests.chaos`` runs more of it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .campaign import CampaignSettings, count_faults, run_campaign
from .faults import LOCAL, MPI, SLURM, SSH
from .places import unavailable
from .report import count_violations, markdown

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(unavailable(LOCAL) is not None, reason=str(unavailable(LOCAL)))]

# About three minutes on two cores. Ray's own processes would take most of that.
SEEDS = range(1, 9)


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_left_whatever_happens() -> None:
    launchers = [name for name in (LOCAL, SSH, MPI, SLURM) if unavailable(name) is None]
    outcomes = run_campaign(iter(SEEDS), CampaignSettings(launchers, at_once=4))
    report = markdown(outcomes, "tests/chaos/test_campaign.py")
    assert count_violations(outcomes) == 0, report
    assert count_faults(outcomes) >= 2 * len(SEEDS), report
    assert not any(outcome.error for outcome in outcomes), report


def test_ctrl_c_ends_a_campaign_with_the_runs_that_are_under_way() -> None:
    campaign = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", "--launchers", LOCAL, "--seed", "1", "--minutes", "60"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    with campaign:
        assert campaign.stdout is not None
        campaign.stdout.readline()  # the first run has ended, and others are under way
        campaign.send_signal(signal.SIGINT)
        assert "violations" in campaign.communicate(timeout=60)[0]
    assert campaign.returncode == 0
