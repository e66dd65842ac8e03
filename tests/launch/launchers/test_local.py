"""The local launcher's command, to the letter, and the tasks that a keeper gets."""

import json
import sys
from pathlib import Path

from jobs import make_config, make_job

import trainscale
from trainscale.launch.launchers.base import ITS_START, START
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.worker.job import Device, Job, Measure, Task, TasksRequest, decode_request, encode_request

JOB = make_job(device=Device("cpu", 0, (0,)), config=make_config(model="a'; echo foo"), batch=4, measure=Measure(2, 3))


def test_the_door_of_the_worker_is_where_the_command_says() -> None:
    assert Path(trainscale.__file__).parent / "worker" / "start.py" == START
    assert START.is_file()


def test_a_keeper_runs_on_this_interpreter() -> None:
    launcher = LocalLauncher()
    assert launcher.name == "local"
    assert launcher.command("localhost") == [sys.executable, str(START), "keeper"]


def test_the_keepers_tasks_are_one_line_with_every_job_as_it_is() -> None:
    task = Task("localhost", 0, ["/a path/python3.9", ITS_START, "rank"], JOB.to_json(), {"A": "b"})
    line = encode_request(TasksRequest([task], 60.0))
    assert line.count(b"\n") == 1
    values = json.loads(line)
    assert values["deadline_seconds"] == 60.0
    (entry,) = values["tasks"]
    assert entry["rank"] == 0
    assert entry["command"] == ["/a path/python3.9", ITS_START, "rank"]
    assert entry["environment"] == {"A": "b"}
    assert Job.from_json(entry["job"]) == JOB
    assert decode_request(line) == TasksRequest((task,), 60.0)
