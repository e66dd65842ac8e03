"""The local launcher's commands, to the letter, and the plan that a keeper gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jobs import make_config, make_job

import trainscale
from trainscale.launch.launchers.base import ITS_START, START, Process, Task, plan
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.worker.job import Device, Job, Measure

JOB = make_job(device=Device("cpu", 0, (0,)), config=make_config(model="a'; echo foo"), batch=4, measure=Measure(2, 3))
PROCESS = Process("localhost", "/a path/python3.9", JOB, {"A": "b"})


def test_the_door_of_the_worker_is_where_the_command_says() -> None:
    assert Path(trainscale.__file__).parent / "worker" / "start.py" == START
    assert START.is_file()


def test_a_keeper_runs_on_this_interpreter_and_a_rank_on_its_own() -> None:
    launcher = LocalLauncher()
    assert launcher.name == "local"
    assert launcher.command("localhost") == [sys.executable, str(START), "keeper"]
    assert launcher.rank_command(PROCESS) == ["/a path/python3.9", ITS_START, "rank"]


def test_the_keepers_plan_is_one_line_with_every_job_as_it_is() -> None:
    command = LocalLauncher().rank_command(PROCESS)
    line = plan([Task(0, command, JOB.to_json(), PROCESS.environment)], 60.0)
    assert line.count(b"\n") == 1
    asked = json.loads(line)
    assert asked["deadline_seconds"] == 60.0
    (entry,) = asked["processes"]
    assert entry["rank"] == 0
    assert entry["command"] == ["/a path/python3.9", ITS_START, "rank"]
    assert entry["environment"] == {"A": "b"}
    assert Job.from_json(entry["job"]) == JOB
