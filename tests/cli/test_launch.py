"""``trainscale launch``: users' programs find each other, their output and exit codes come back, none is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import SUPPORT, Command, trainscale
from environments import python_for
from processes import marked, until

from lab import Lab, missing_requirement

pytestmark = pytest.mark.processes

LAUNCHED = SUPPORT / "launched"
SUM = ["torch", "tensorflow", "jax", "mxnet"]


# What a launch waits before it ends programs; nothing comes of waiting longer in these tests.
SHORT_WAITS = {
    "launch.programs._SECONDS_AFTER_FAILURE": 0.3,
    "launch.programs._SECONDS_AFTER_WORKERS": 0.3,
}


def launch(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return trainscale(folder, "launch", *argv, constants=SHORT_WAITS)


def lines_of(output: str) -> dict[str, list[str]]:
    """Return what each program printed, by its label."""
    lines: dict[str, list[str]] = {}
    for label, text in re.findall(r"^\[([^\]]+)\] (.*)$", output, re.MULTILINE):
        lines.setdefault(label, []).append(text)
    return lines


def write(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(f"import os, sys, time, signal\nrank = os.environ.get('RANK')\n{text}")
    return "program.py"


# ---- each framework's own engine, from the variables alone


@pytest.mark.framework
@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.slow if name == "tensorflow" else ()) for name in SUM]
)
def test_workers_of_a_framework_find_each_other(framework: str, tmp_path: Path) -> None:
    servers = ("-s", "2") if framework == "mxnet" else ()
    done = launch(tmp_path, "-n", "2", *servers, python_for(framework), str(LAUNCHED / f"{framework}_sum.py"))
    assert done.returncode == 0, done.stderr
    printed = lines_of(done.stdout)
    for worker in ("worker 0 localhost", "worker 1 localhost"):
        assert "sum 3 of 2" in printed[worker]
    assert "ending what goes on" not in done.stderr  # MXNet's servers and scheduler end by themselves


def test_servers_and_a_chief_are_told_to_tensorflow(tmp_path: Path) -> None:
    program = write(tmp_path, "print(os.environ['TF_CONFIG'])")
    argv = ("-n", "2", "-s", "1", "--no-scheduler", "--chief")
    done = launch(tmp_path, *argv, sys.executable, program)
    assert done.returncode == 0, done.stderr
    tasks = {label: json.loads(lines[0])["task"] for label, lines in lines_of(done.stdout).items()}
    assert tasks == {
        "worker 0 localhost": {"type": "chief", "index": 0},
        "worker 1 localhost": {"type": "worker", "index": 0},
        "server 0 localhost": {"type": "ps", "index": 0},
    }


# ---- what is printed


def test_lines_come_whole_with_their_origin_and_errors_stay_errors(tmp_path: Path) -> None:
    long = "x" * 5000
    program = write(tmp_path, f"print('a' * 0); print({long!r}); print('9 %\\r100 %'); print('ärger', file=sys.stderr)")
    done = launch(tmp_path, "-n", "1", sys.executable, program)
    assert lines_of(done.stdout) == {"worker 0 localhost": [long, "100 %"]}
    assert lines_of(done.stderr) == {"worker 0 localhost": ["ärger"]}


def test_lines_are_shown_when_they_are_printed(tmp_path: Path) -> None:
    program = write(tmp_path, "print('here')\nwhile not os.path.exists('seen'): time.sleep(0.05)")
    command = Command(tmp_path, "launch", "-n", "1", sys.executable, program)
    assert command.popen.stdout is not None
    assert command.popen.stdout.readline() == "[worker 0 localhost] here\n"
    (tmp_path / "seen").touch()
    assert command.finish().returncode == 0


def test_a_programs_own_flags_are_its_own(tmp_path: Path) -> None:
    program = write(tmp_path, "print(sys.argv[1:])")
    argv = ["--debug", "-n", "9", "--help", "a b", "it's; $HOME"]
    done = launch(tmp_path, "-n", "1", sys.executable, program, *argv)
    assert lines_of(done.stdout) == {"worker 0 localhost": [str(argv)]}
    assert launch(tmp_path, "-n", "1", "--", "echo", "-n", "x").stdout == "[worker 0 localhost] x\n"


def test_a_program_runs_in_the_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    done = launch(tmp_path, "-n", "1", "--folder", str(tmp_path / "inner"), "pwd")
    assert done.stdout == f"[worker 0 localhost] {tmp_path}/inner\n"


def test_debug_after_the_program_is_not_trainscales_own(tmp_path: Path) -> None:
    argv = ["-n", "1", "--hosts", "no such file"]
    assert "Traceback" in trainscale(tmp_path, "launch", "--debug", *argv, "echo").stderr
    for command in (["echo", "--debug"], ["--", "echo", "--debug"]):
        done = trainscale(tmp_path, "launch", *argv, *command)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_variables_are_given_to_all_or_to_a_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "this one")
    argv = ["--env", "HERE", "--env", "A=b=c", "--env-worker", "ROLE=w", "--env-server", "ROLE:s"]
    done = launch(tmp_path, "-n", "1", "-s", "1", *argv, "sh", "-c", "echo $HERE $A $ROLE")
    assert lines_of(done.stdout) == {
        "worker 0 localhost": ["this one b=c w"],
        "server 0 localhost": ["this one b=c s"],
        "scheduler localhost": ["this one b=c"],
    }


# ---- ends


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("sys.exit(7)", 7, "worker 1 on localhost ended with exit code 7"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "worker 1 on localhost was ended by SIGSEGV"),
        ("raise ValueError('so')", 1, "worker 1 on localhost ended with exit code 1"),
    ],
)
def test_a_worker_that_fails_ends_the_others_and_gives_its_code(
    end: str, code: int, message: str, tmp_path: Path
) -> None:
    program = write(tmp_path, f"if rank == '1':\n    {end}\nsignal.pause()")
    done = launch(tmp_path, "-n", "3", sys.executable, program)
    assert done.returncode == code
    assert f"trainscale: {message}\n" in done.stderr
    assert "ending what goes on: worker 0 localhost, worker 2 localhost" in done.stderr
    assert marked(str(tmp_path)) == []


@pytest.mark.slow
def test_a_program_that_minds_no_signal_is_ended_all_the_same(tmp_path: Path) -> None:
    program = write(
        tmp_path, "if rank == '1': sys.exit(3)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    )
    command = Command(tmp_path, "launch", "-n", "2", sys.executable, program)
    assert command.finish().returncode == 3
    assert command.left() == []


def test_servers_that_go_on_after_the_workers_are_ended_and_that_is_no_failure(tmp_path: Path) -> None:
    program = write(tmp_path, "if rank is None: signal.pause()\nprint('done')")
    done = launch(tmp_path, "-n", "1", "-s", "2", "--no-scheduler", sys.executable, program)
    assert done.returncode == 0
    assert "ending what goes on: server 0 localhost, server 1 localhost" in done.stderr
    assert marked(str(tmp_path)) == []


def test_time_may_be_limited(tmp_path: Path) -> None:
    done = launch(tmp_path, "-n", "2", "--timeout", "1s", "sleep", "1000")
    assert done.returncode == 124
    assert "trainscale: time is up after 1 s" in done.stderr


def waiting(folder: Path, *argv: str) -> Command:
    """Two workers that wait, each with a child in a session of its own."""
    program = write(
        folder,
        "import subprocess\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "try:\n"
        "    print('waiting')\n"
        "    signal.pause()\n"
        "finally: print('saved')",
    )
    command = Command(folder, "launch", "-n", "2", *argv, sys.executable, program)
    assert command.popen.stdout is not None
    assert [command.popen.stdout.readline().split("] ")[1] for _ in range(2)] == ["waiting\n"] * 2
    return command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_reaches_the_programs_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    command = waiting(tmp_path)
    os.killpg(command.pid, number)  # as a terminal sends it: to the whole foreground group
    done = command.finish()
    assert done.returncode == 130
    assert [lines[-1] for lines in lines_of(done.stdout).values()] == ["saved", "saved"]
    assert "Traceback" not in re.sub(r"^\[.*$", "", done.stderr, flags=re.MULTILINE)
    assert command.left() == []


def test_kill_9_of_the_launching_command_leaves_nothing(tmp_path: Path) -> None:
    command = waiting(tmp_path)
    os.kill(command.pid, signal.SIGKILL)
    command.finish()
    until(lambda: not command.left(), "the end of the keeper and the programs")


# ---- wrong input


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["-n", "1", "--folder", "missing", "ls"],
            "missing is not there\n  name a folder that every host has",
        ),
        (["-n", "3", "-g", "2", "ls"], "3 workers: there is room for 2 (localhost 2)"),
    ],
)
def test_wrong_input_is_told_and_starts_nothing(argv: list[str], message: str, tmp_path: Path) -> None:
    done = launch(tmp_path, *argv)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert done.stdout == ""


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = launch(tmp_path, "-n", "1", "no-such-program")
    assert done.returncode == 127
    assert "cannot start no-such-program: there is no such program on this host's PATH" in done.stderr


# ---- over hosts


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    made = make_lab(2)
    (made.shared / "hosts").write_text("".join(f"{made.address(name)} {name}\n" for name in made.hosts))
    (made.shared / "two").write_text("node1 slots=2\nnode2 slots=1\n")
    shutil.copytree(LAUNCHED, made.shared / "launched")
    return made


def over(lab: Lab, *argv: str, hosts: str = "hosts", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainscale", "launch", "-H", str(lab.shared / hosts), *argv]
    return lab.run(command, cwd=folder or lab.shared, timeout=200)


def nothing_left(lab: Lab) -> None:
    for name in lab.hosts:
        until(lambda name=name: not lab.processes(name), f"the end of all processes of {name}")


@pytest.mark.framework
@pytest.mark.hosts
@pytest.mark.parametrize("framework", ["torch", "mxnet"])
def test_workers_on_two_hosts_find_each_other_by_ssh(framework: str, lab: Lab) -> None:
    servers = ("-s", "2") if framework == "mxnet" else ()
    done = over(lab, "-n", "2", *servers, python_for(framework), f"launched/{framework}_sum.py")
    assert done.returncode == 0, done.stderr
    printed = lines_of(done.stdout)
    assert printed["worker 0 node1"][-1] == printed["worker 1 node2"][-1] == "sum 3 of 2"
    nothing_left(lab)


@pytest.mark.framework
@pytest.mark.hosts
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_under_mpi_programs_are_ranks_of_ours_not_of_mpis(framework: str, lab: Lab) -> None:
    done = over(lab, "--launcher", "mpi", "-n", "4", python_for(framework), f"launched/{framework}_sum.py")
    assert done.returncode == 0, done.stderr
    workers = ("worker 0 node1", "worker 1 node1", "worker 2 node2", "worker 3 node2")
    assert {label: lines[-1] for label, lines in lines_of(done.stdout).items()} == dict.fromkeys(workers, "sum 10 of 4")
    nothing_left(lab)


@pytest.mark.framework
@pytest.mark.hosts
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_inside_a_slurm_job_programs_are_ranks_of_ours_not_of_slurms(framework: str, lab: Lab) -> None:
    reason = missing_requirement(slurm=True)
    if reason:
        pytest.skip(reason)
    inside = ["salloc", "--nodes=2", sys.executable, "-m", "trainscale", "launch", "-n", "4"]
    environment = {**os.environ, **lab.slurm().environment}
    program = [python_for(framework), f"launched/{framework}_sum.py"]
    done = lab.run([*inside, *program], cwd=lab.shared, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    workers = ("worker 0 node1", "worker 1 node1", "worker 2 node2", "worker 3 node2")
    assert {label: lines[-1] for label, lines in lines_of(done.stdout).items()} == dict.fromkeys(workers, "sum 10 of 4")
    nothing_left(lab)


@pytest.mark.hosts
def test_programs_know_their_host_its_address_and_interface(lab: Lab) -> None:
    line = "echo $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $GLOO_SOCKET_IFNAME $DMLC_NODE_HOST"
    done = over(lab, "-n", "3", "-s", "1", "--placement", "fill", "sh", "-c", line, hosts="two")
    first, second = lab.address("node1"), lab.address("node2")
    assert lines_of(done.stdout) == {
        "worker 0 node1": [f"node1 0/2 0 {first} eth0 {first}"],
        "worker 1 node1": [f"node1 1/2 0 {first} eth0 {first}"],
        "worker 2 node2": [f"node2 0/1 1 {first} eth0 {second}"],
        "server 0 node1": [f"node1 / {first} eth0 {first}"],
        "scheduler node1": [f"node1 / {first} eth0 {first}"],
    }


@pytest.mark.hosts
def test_slots_of_the_hosts_file_are_a_limit(lab: Lab) -> None:
    done = over(lab, "-n", "4", "true", hosts="two")
    assert done.returncode == 2
    assert "4 workers: there is room for 3 (node1 2, node2 1)" in done.stderr


@pytest.mark.hosts
def test_a_folder_that_some_hosts_lack_is_told_for_each_of_them(lab: Lab) -> None:
    lab.on("node1", "mkdir -p /tmp/mine")
    done = over(lab, "-n", "2", "--folder", "/tmp/mine", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("trainscale: node2: folder /tmp/mine is not there\n")


@pytest.mark.hosts
def test_the_current_directory_is_copied_to_the_hosts(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "name with 'quotes'.txt").write_text("carried")
    (tmp_path / ".git").mkdir()
    write(tmp_path, "print(sorted(os.listdir('.')), open(\"part/name with 'quotes'.txt\").read(), os.getcwd())")
    done = over(lab, "-n", "2", "--sync-dst-dir", "/tmp/a copy", "python3", "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    line = "['part', 'program.py'] carried /tmp/a copy"
    assert lines_of(done.stdout) == {"worker 0 node1": [line], "worker 1 node2": [line]}


@pytest.mark.hosts
def test_a_failure_on_one_host_ends_the_programs_of_all(lab: Lab) -> None:
    done = over(lab, "-n", "2", "sh", "-c", "if [ $RANK = 1 ]; then exit 5; fi; sleep 1000")
    assert done.returncode == 5
    assert "trainscale: worker 1 on node2 ended with exit code 5" in done.stderr
    nothing_left(lab)


@pytest.mark.hosts
def test_an_interruption_leaves_nothing_on_any_host(lab: Lab) -> None:
    argv = ["launch", "-n", "2", "-H", "hosts", "sh", "-c", "echo ready; exec sleep 1000"]
    command = lab.popen([sys.executable, "-m", "trainscale", *argv], cwd=lab.shared, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    assert sorted(command.stdout.readline() for _ in range(2)) == [
        "[worker 0 node1] ready\n",
        "[worker 1 node2] ready\n",
    ]
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode == 130
    nothing_left(lab)


@pytest.mark.hosts
def test_a_host_that_is_lost_ends_the_others(lab: Lab) -> None:
    argv = ["launch", "-n", "2", "-H", "hosts", "sh", "-c", "echo ready; exec sleep 1000"]
    command = lab.popen(
        [sys.executable, "-m", "trainscale", *argv],
        cwd=lab.shared,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    for _ in range(2):
        command.stdout.readline()
    lab.kill("node2", silent=False)
    try:
        _, errors = command.communicate(timeout=60)
    finally:
        lab.boot("node2")
    assert command.returncode == 1
    assert "trainscale: node2 is lost" in errors
    nothing_left(lab)
