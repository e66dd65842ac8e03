"""The ssh launcher's commands, to the letter, and what shells make of them."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes import program

from trainscale.cluster.hosts import HostAccess
from trainscale.errors import TrainscaleError
from trainscale.launch.launchers.ssh import SshLauncher, make_shell_command
from trainscale.launch.worker_archive import RUN_FIRST_LINE
from trainscale.spec.devices import Host
from trainscale.spec.groups import SshSettings

OPTIONS = [
    "-T", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
    "-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=INFO", "-o", "ConnectTimeout=15",
]  # fmt: skip
REMOTE = f"exec /bin/sh -c 'exec python3 -c '\"'\"'{RUN_FIRST_LINE}'\"'\"''"


def command(host: Host, settings: SshSettings | None = None, **access: Any) -> list[str]:
    return SshLauncher(HostAccess((host,), **access), settings).command(host.name)


def test_ssh_is_called_with_the_alias_port_user_configuration_and_agent(tmp_path: Path) -> None:
    assert command(Host("node1")) == ["ssh", *OPTIONS, "-a", "--", "node1", REMOTE]
    assert command(Host("10.0.0.1", alias="worker1"))[-3:] == ["--", "worker1", REMOTE]
    (config := tmp_path / "my config").touch()
    settings = SshSettings(ssh_config=str(config), forward_agent=True)
    argv = command(Host("10.0.0.1", port=2222, user="me"), settings, connect_seconds=3)
    assert argv == [
        "ssh", *OPTIONS[:-1], "ConnectTimeout=3", "-A", "-F", str(config), "-p", "2222", "-l", "me",
        "--", "10.0.0.1", REMOTE,
    ]  # fmt: skip


def test_a_hosts_own_python_wins_over_that_for_all() -> None:
    assert "exec /all/python -c" in command(Host("node1"), python="/all/python")[-1]
    assert "exec /own/python -c" in command(Host("node1", python="/own/python"), python="/all/python")[-1]


def test_set_up_lines_run_in_a_login_shell_before_the_python() -> None:
    line = command(Host("node1", setup=("conda activate 'my env'",)), setup=("module load cuda",))[-1]
    word, shell, flags, script = shlex.split(line)
    assert [word, shell, flags] == ["exec", "/bin/bash", "-lc"]
    first, second, last = script.split("; exit 1; }; ")
    assert first == "eval 'module load cuda' </dev/null >&2 || { echo 'set-up line failed: module load cuda' >&2"
    assert second.startswith("eval 'conda activate '\"'\"'my env'\"'\"'' </dev/null >&2 || ")
    assert last == shlex.join(["exec", "python3", "-c", RUN_FIRST_LINE])


# ---- what a shell makes of the one word that ssh sends


def run_line(line: str, folder: Path, shell: str = "/bin/sh") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        [shell, "-c", line], capture_output=True, text=True, input="for the keeper\n", env=environment, check=False
    )


AWKWARD = ["a'; echo foo", 'two "words" $HOME', "`id`", "semi;colon && or || not", "back\\slash", "*", "#hash", "ünï"]


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("setup", [(), ("true",)], ids=["plain", "set-up"])
def test_arguments_arrive_as_they_were_given(shell: str, setup: tuple[str, ...], tmp_path: Path) -> None:
    done = run_line(make_shell_command(["printf", "%s\\n", *AWKWARD], setup), tmp_path, shell)
    assert done.stdout.splitlines() == AWKWARD


@pytest.mark.processes
def test_a_python_in_a_folder_with_an_awkward_name(tmp_path: Path) -> None:
    folder = tmp_path / "a'; echo foo"
    folder.mkdir()
    python = program(folder, "my python", 'echo "$1"; cat')
    done = run_line(make_shell_command([str(python), "x y"], ()), tmp_path)
    assert done.stdout.splitlines() == ["x y", "for the keeper"]
    home = run_line(make_shell_command(["~/a'; echo foo/my python", "x y"], ()), tmp_path)
    assert home.stdout == done.stdout


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("export WORD='one two'", "one two"),
        ('export WORD="it\'s"; true', "it's"),
        ("WORD=commented # and no more", "commented"),
        ("cd /; WORD=$(pwd)", "/"),
    ],
)
def test_a_set_up_line_changes_what_comes_after_it(line: str, message: str, tmp_path: Path) -> None:
    done = run_line(make_shell_command(["sh", "-c", 'echo "$WORD"'], ("export WORD", line)), tmp_path)
    assert done.stdout == f"{message}\n"


@pytest.mark.processes
def test_a_set_up_line_reads_nothing_of_what_the_keeper_is_told_and_says_nothing_in_its_place(tmp_path: Path) -> None:
    done = run_line(make_shell_command(["cat"], ("echo greeting; cat; read word; echo swallowed $word",)), tmp_path)
    assert done.stdout == "for the keeper\n"
    assert done.stderr.split() == ["greeting", "swallowed"]


@pytest.mark.processes
@pytest.mark.parametrize("line", ["false", "module load 'c;d'", "if true", "exit 3", "cd /nowhere"])
def test_nothing_runs_after_a_set_up_line_that_failed(line: str, tmp_path: Path) -> None:
    done = run_line(make_shell_command(["echo", "ran"], (line, "touch second")), tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    assert not (tmp_path / "second").exists()
    if line != "exit 3":
        assert f"set-up line failed: {line}" in done.stderr.splitlines()


@pytest.mark.processes
def test_without_ssh_on_this_machine_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainscaleError, match="cannot start ssh here: No such file or directory"):
        SshLauncher(HostAccess((Host("node1"),))).connect(["node1"]).__enter__()
