"""The Slurm launcher: its command to the letter, and keepers that a real srun starts inside a real allocation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import program

from lab import Lab, Slurm
from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.callback import CALLBACK_VARIABLE, CallbackEndpoint
from trainscale.launch.launchers.slurm import SlurmLauncher
from trainscale.spec.devices import Host

LAB_HOSTS = 2
CALL = CallbackEndpoint("10.0.0.1", 4711, "secret")
HOSTS = ("node1", "node2")


def launcher(**where: object) -> SlurmLauncher:
    return SlurmLauncher(HostAccess(hosts=tuple(Host(name) for name in HOSTS), **where))  # type: ignore[arg-type]


def test_one_srun_starts_a_keeper_on_every_host_with_all_that_the_job_has_there() -> None:
    command = launcher().command(["node1", "node2"], CALL)
    assert command[:-3] == [
        "srun", "--overlap", "--ntasks-per-node=1", "--export=ALL", "--cpu-bind=none", "--mem=0", "--mpi=none",
        "--kill-on-bad-exit=1", "--wait=0", "--label", "--nodes=2", "--ntasks=2", "--nodelist=node1,node2",
    ]  # fmt: skip
    assert command[-3:-1] == [sys.executable, "-c"]
    assert 'os.environ["SLURM_PROCID"]' in command[-1]
    assert 'os.environ.get("SLURMD_NODENAME")' in command[-1]
    compile(command[-1], "keeper", "exec")
    command = launcher().command(["node2"], CALL)  # for a trial on fewer hosts
    assert {"--nodes=1", "--ntasks=1", "--nodelist=node2"} <= set(command)
    ours = launcher()
    ours.gpus = 4
    assert "--gres=gpu:4" in ours.command(["node1"], CALL)
    ours.gpus = 0
    assert not any("gres" in argument for argument in ours.command(["node1"], CALL))


@pytest.mark.processes
def test_set_up_lines_run_first_and_in_a_login_shell_whatever_is_in_them() -> None:
    setup = ("module load 'a b'", 'export X="; echo no"')
    command = launcher(setup=setup, python="/a path/it's python").command(["node1"], CALL)
    assert command[-3:-1] == ["/bin/sh", "-c"]
    assert command[-1].startswith("exec /bin/bash -lc ")
    reduced = command[-1].replace("module load", "echo").replace("-lc", "-c")
    done = subprocess.run(["/bin/sh", "-c", reduced], capture_output=True, text=True, check=False)
    assert "a b" in done.stdout + done.stderr
    assert "/a path/it's python: No such file" in done.stderr
    assert "no\n" not in done.stdout


def test_the_token_is_in_the_environment_alone_and_the_jobs_shape_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2", "SLURM_GPUS": "4", "SLURM_MEM_PER_CPU": "100",
              "SLURM_NTASKS_PER_NODE": "8", "SLURM_TRES_PER_TASK": "cpu=1", "SLURM_DISTRIBUTION": "x"}  # fmt: skip
    for name, value in {**shapes, "SLURM_JOB_ID": "7", "SLURM_CONF": "/x", "CUDA_VISIBLE_DEVICES": "0,1"}.items():
        monkeypatch.setenv(name, value)
    ours = launcher()
    ours.gpus = 0
    environment = ours.environment(CALL)
    assert environment[CALLBACK_VARIABLE] == "10.0.0.1,4711,secret"
    assert not any("secret" in argument for argument in ours.command(["node1"], CALL))
    assert not environment.keys() & shapes.keys()
    assert environment.keys() >= {"SLURM_JOB_ID", "SLURM_CONF", "CUDA_VISIBLE_DEVICES", "PATH"}


def test_keepers_are_known_by_slurms_name_of_their_node_not_by_their_order() -> None:
    ours = launcher()
    assert ours.identify(0, "node2", HOSTS) == "node2"
    assert ours.identify(1, "a-name-of-its-own", HOSTS) == "node2"
    with pytest.raises(LookupError):
        ours.identify(2, "node9", HOSTS)


OUTPUT = """\
srun: cluster configuration lacks support for cpu binding
1: /bin/bash: line 1: module: command not found
srun: error: node2: task 1: Exited with exit code 127
srun: launch/slurm: _step_signal: Terminating StepId=16.0
1: slurmstepd-node2: error: *** STEP 16.0 ON node1 CANCELLED AT 2026-11-15T16:26:15 ***
0: slurmstepd-node1: error: *** STEP 16.0 ON node1 CANCELLED AT 2026-11-15T16:26:15 ***
srun: error: node1: task 0: Terminated
srun: Force Terminated StepId=16.0
"""


@pytest.mark.processes
def test_the_host_that_failed_is_told_with_its_own_words_and_the_others_are_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "/bin/bash: line 1: module: command not found (Exited with exit code 127)"
    report = launcher().read_output(OUTPUT, HOSTS)
    assert (report.by_host, report.failed, report.end_notice) == ({"node2": message}, [], "")
    # Slurm itself knows which hosts a list has.
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program(tmp_path, "scontrol", '[ "$*" = "show hostnames node[2-3,7],login" ] && printf "node2\\nnode3\\n"')
    output = OUTPUT.replace("node2: task", "node[2-3,7],login: task")
    assert launcher().read_output(output, HOSTS).by_host == {"node2": message, "node3": message}
    program(tmp_path, "scontrol", "exit 1")
    assert "node2" not in launcher().read_output(output, HOSTS).by_host


END_NOTICE = """\
srun: forcing job termination
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
0: slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-16T22:41:17 ***
srun: error: node2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: error: node1: task 0: Killed
"""


def test_an_srun_that_is_told_to_end_says_so_and_its_tasks_are_not_the_cause() -> None:
    assert launcher().read_output(END_NOTICE, HOSTS).end_notice == "srun was told to end"
    a_task_had_ended_before = f"{OUTPUT}srun: forcing job termination\n"
    assert launcher().read_output(a_task_had_ended_before, HOSTS).end_notice == ""


# As a real srun printed it when the link of a host was cut.
NODE_FAILURE = """\
srun: error: Node failure on node2
0: slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-18T02:33:59 DUE TO NODE FAILURE, SEE SLURMCTLD\
 LOG FOR DETAILS ***
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
srun: error: node1: task 0: Terminated
srun: launch/slurm: _step_signal: Terminating StepId=1.0
"""


def test_a_node_that_slurm_lost_is_the_cause_and_the_keepers_that_it_ended_are_not() -> None:
    report = launcher().read_output(NODE_FAILURE, HOSTS)
    assert report.failed == ["node2"]
    assert report.by_host == {"node2": "Slurm reports a node failure"}
    assert report.end_notice == ""

    # Where no node is named, a step that Slurm cancels is the cause.
    def read_end_notice(output: str) -> str:
        return launcher().read_output(output, HOSTS).end_notice

    output = NODE_FAILURE.partition("\n")[2]
    assert read_end_notice(output) == "Slurm cancelled the step due to node failure"
    output = output.replace("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "TIME LIMIT")
    assert read_end_notice(output) == "Slurm cancelled the step due to time limit"
    assert read_end_notice(f"srun: error: node2: task 1: Killed\n{output}") == ""


# ---- in the lab

# Runs inside the allocation: asks a keeper on each host what it sees, by a process as it would start for a rank.
REPORT = """
import json, os, sys
from trainscale.launch.launchers.target import make_launcher
from trainscale.spec.experiment import make_experiment
from trainscale.worker.events import Exit, LogLine
from trainscale.worker.job import Task

see = '''import json, os, socket
seen = {name: os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "MADE_BY_SETUP")}
seen.update(hostname=socket.gethostname(), cpus=sorted(os.sched_getaffinity(0)), call="TRAINSCALE_CALL" in os.environ)
print(json.dumps(seen), flush=True)'''
launcher = make_launcher(make_experiment(json.loads(sys.argv[1])))
hosts = sys.argv[2].split(",")
printed, exits = dict.fromkeys(hosts, ""), 0
with launcher.connect(hosts) as connected:
    ports = connected.find_ports(dict.fromkeys(hosts, 2))
    connected.start([Task(host, rank, ["PYTHON", "-c", see]) for rank, host in enumerate(hosts)], 30)
    for received in connected.read_events(60):
        if isinstance(received.event, LogLine):
            printed[received.host] += received.event.text
        exits += isinstance(received.event, Exit)
        if exits == len(hosts):
            break
seen = {host: json.loads(text) for host, text in printed.items()}
print(json.dumps({"launcher": launcher.name, "ports": ports, "seen": seen, "gpus": launcher.gpus}))
"""


def report(
    lab: Lab, slurm: Slurm, salloc: list[str], hosts: str = "node1,node2", settings: dict[str, object] | None = None
) -> dict:
    command = ["salloc", "--quiet", *salloc, sys.executable, "-c", REPORT, json.dumps(settings or {}), hosts]
    done = lab.run(command, env={**os.environ, **slurm.environment}, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def leaves_nothing(lab: Lab) -> bool:
    return not any("trainscale" in line or "keeper" in line for name in HOSTS for line in lab.processes(name))


@pytest.mark.hosts
def test_inside_an_allocation_a_keeper_on_every_host_calls_back(lab: Lab, slurm: Slurm) -> None:
    answers = report(lab, slurm, ["--nodes=2", "--exclusive"])
    assert answers["launcher"] == "slurm"
    assert list(answers["seen"]) == ["node1", "node2"]
    for name, seen in answers["seen"].items():
        assert (seen["hostname"], seen["SLURMD_NODENAME"]) == (name, name)
        assert seen["cpus"] == sorted(os.sched_getaffinity(0))
        assert not seen["call"]  # the token is for the keeper, not for what it starts
        assert len(answers["ports"][name]) == 2
    assert leaves_nothing(lab)


@pytest.mark.hosts
@pytest.mark.parametrize(
    "options",
    [
        ["--gres=gpu:2"],
        ["--gpus=4"],
        ["--ntasks-per-node=2", "--gpus-per-task=1"],
        ["--exclusive"],
        ["--gpus-per-node=2", "--mem-per-cpu=100", "--cpus-per-task=2"],
    ],
    ids=" ".join,
)
def test_however_gpus_were_asked_for_a_keeper_sees_all_that_the_job_has_on_its_host(
    lab: Lab, slurm: Slurm, options: list[str]
) -> None:
    """Also when a trial uses fewer hosts than there are."""
    answers = report(lab, slurm, ["--nodes=2", *options], hosts="node2")
    assert answers["gpus"] == 2
    assert answers["seen"]["node2"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert list(answers["seen"]) == ["node2"]


@pytest.mark.hosts
def test_set_up_lines_and_another_python_are_honoured(lab: Lab, slurm: Slurm) -> None:
    settings = {"setup": ['export MADE_BY_SETUP="it\'s; $(hostname)"'], "remote_python": "python3"}
    answers = report(lab, slurm, ["--nodes=2"], settings=settings)
    assert [seen["MADE_BY_SETUP"] for seen in answers["seen"].values()] == ["it's; node1", "it's; node2"]


@pytest.mark.hosts
def test_a_step_within_another_step_does_not_wait_for_it(lab: Lab, slurm: Slurm) -> None:
    """As in a shell that srun --pty gave."""
    inner = [sys.executable, "-c", REPORT, "{}", "node1,node2"]
    command = ["salloc", "--quiet", "--nodes=2", "--exclusive", "srun", "--nodes=1", "--ntasks=1", *inner]
    done = lab.run(command, env={**os.environ, **slurm.environment}, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["seen"]) == ["node1", "node2"]


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"remote_python": "/nope/python"}, "/nope/python: No such file or directory"),
        ({"setup": ['[ "$SLURMD_NODENAME" = node1 ] || { echo not for node2 >&2; false; }']}, "node2: "),
    ],
    ids=["python", "set-up"],
)
def test_a_host_that_cannot_start_its_keeper_is_named_at_once(
    lab: Lab, slurm: Slurm, settings: dict[str, object], message: str
) -> None:
    command = ["salloc", "--quiet", "--nodes=2", sys.executable, "-c", REPORT, json.dumps(settings), "node1,node2"]
    done = lab.run(command, env={**os.environ, **slurm.environment}, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert leaves_nothing(lab)
