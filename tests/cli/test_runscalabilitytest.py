"""``runscalabilitytest``: the older scripts' flags in today's argv, and their files from a real run."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lab import Lab
from trainscale.cli import runscalabilitytest
from trainscale.cli.runscalabilitytest import _keep_earlier, _read, translate

LAB_HOSTS = 2

COMMAND = [sys.executable, "-m", "trainscale.cli.runscalabilitytest"]
QUICK = ["--", "--image-size", "64", "--warmup", "2", "--steps", "3", "--repeats", "1", "--cores-per-device", "1"]
FILES = ["comparison_graph.svg", "csv_torch/alexnet_b2.csv", "logs/alexnet_b2.csv", "logs/alexnet_b2.svg"]


def equivalent(
    line: str, *more: str, cluster: tuple[str, str] | None = None
) -> tuple[list[str], dict[str, str], list[str]]:
    return translate(_read(line.split()), more, lambda: cluster)


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *argv], cwd=folder, capture_output=True, text=True, check=False, timeout=200)


def written(folder: Path) -> list[str]:
    """Everything but the run's own directory."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if path.parts[0] != "runs")


def test_it_is_a_command_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["runscalabilitytest"] == "trainscale.cli.runscalabilitytest:main"
    assert callable(runscalabilitytest.main)


# ---- the flags


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        (
            "-h nodes -m inceptionv3 -g 16 -b 32 -r /tmp/ -x 128",
            "--models inceptionv3 --hosts nodes -g 16 -b 32 -r /tmp/ -x 128 --strategies ps:each",
        ),
        (
            "--nodes_file nodes --model resnet --gpu_per_machine 8 --batch_size 32 --remote_dir /data --max_gpu 64",
            "--models resnet --hosts nodes -g 8 -b 32 -r /data -x 64 --strategies ps:each",
        ),
        (
            "--models Inceptionv3:16,Alexnet:256 --hosts nodes -n 2 --gpu-per-host 4",
            "--models Inceptionv3:16,Alexnet:256 --hosts nodes --hosts-count 2 -g 4 --strategies ps:each",
        ),
        *(
            (f"-h nodes -t {name}", f"--models {models} --hosts nodes -g {gpus} --strategies ps:each")
            for models, types in {
                "alexnet:512,inceptionv3:32": {"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16},
                "alexnet:128,inceptionv3:8": {"g2.2xlarge": 1, "g2.8xlarge": 4},
            }.items()
            for name, gpus in types.items()
        ),
        ("-h nodes -t p5.48xlarge", "--models alexnet,inceptionv3 --hosts nodes -g 8 --strategies ps:each"),
        ("-h nodes -t c7i.xlarge", "--models alexnet,inceptionv3 --hosts nodes --strategies ps:each"),
        (
            "-h nodes -t p2.8xlarge -g 2 -m Inception-v3:9,alexnet",
            "--models Inception-v3:9,alexnet:512 --hosts nodes -g 2 --strategies ps:each",
        ),
        ("-h nodes -t p2.xlarge -b 7", "--models alexnet,inceptionv3 --hosts nodes -g 1 -b 7 --strategies ps:each"),
        (
            "-h nodes -m alexnet -m resnet --frameworks mxnet,tensorflow",
            "--models alexnet,resnet --hosts nodes --frameworks mxnet,tensorflow --strategies ps:each",
        ),
        ("-h nodes --strategy allreduce", "--models alexnet,inceptionv3 --hosts nodes --strategies allreduce"),
    ],
)
def test_the_older_flags_mean_the_same_today(line: str, argv: str) -> None:
    assert equivalent(line)[0] == argv.split()


def test_the_commands_in_the_docs_are_understood() -> None:
    pages = (Path(__file__).parents[2] / "docs").glob("*.md")
    lines = re.findall(r"^runscalabilitytest .*$", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    assert len(lines) > 2
    for argv in map(shlex.split, lines):
        ours, _, more = " ".join(argv[1:]).partition(" -- ")
        assert "--models" in equivalent(ours, *more.split())[0]


def test_any_option_of_a_run_may_follow_and_wins() -> None:
    more = ["--steps", "20", "--strategy=allreduce"]
    assert equivalent("-h nodes", *more)[0] == ["--models", "alexnet,inceptionv3", "--hosts", "nodes", *more]
    assert equivalent("-h nodes", "--servers", "3")[0][-4:] == ["--strategies", "ps", "--servers", "3"]


def test_without_hosts_those_of_the_cluster_are_used_or_else_this_machine_and_that_is_said() -> None:
    argv, _, notes = equivalent("-m alexnet", cluster=("/shared/nodes", "those of this cluster"))
    assert argv[2:4] == ["--hosts", "/shared/nodes"]
    assert notes == ["hosts: those of this cluster"]
    argv, _, notes = equivalent("-m alexnet")
    assert "--hosts" not in argv
    assert notes == ["hosts: none named, so this machine alone (-h FILE names some)"]
    assert equivalent("-m alexnet", "--hosts", "file")[2] == []


def test_files_are_named_by_what_was_typed() -> None:
    assert equivalent("-m ResNet,Inception-v3:4,my_package.nets:build")[1] == {
        "resnet152": "resnet",
        "inceptionv3": "inception-v3",
        "my_package.nets:build": "my_package.nets:build",
    }


def test_host_names_of_the_older_clusters_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = tmp_path / "names"
    monkeypatch.setattr(runscalabilitytest, "_HOST_NAMES", names)
    names.write_text("127.0.0.1 localhost\n")
    assert runscalabilitytest._find_hosts_file() is None
    workers = "10.0.1.11 deeplearning-worker1\n10.0.1.12 deeplearning-worker2\n"
    names.write_text(f"127.0.0.1 localhost\n10.0.1.10 deeplearning-master\n# deeplearning-worker0\n{workers}")
    hosts = runscalabilitytest._find_hosts_file()
    assert hosts is not None
    assert hosts[0] == "nodes"
    assert (tmp_path / "nodes").read_text() == workers


@pytest.mark.processes
def test_wrong_input_ends_the_command_with_exit_code_2(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "alexnt")
    assert done.returncode == 2, done.stdout
    assert "unknown model 'alexnt'; did you mean 'alexnet'" in done.stderr
    assert written(tmp_path) == []


@pytest.mark.processes
def test_help_is_help_alone_because_h_is_for_hosts(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    assert "-h FILE, --hosts FILE" in done.stdout


# ---- the files


def test_an_earlier_file_is_kept_unless_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "alexnet_b2.csv"
    _keep_earlier(path, "new")
    path.write_text("new")
    _keep_earlier(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    for text in ("old", "older"):
        path.write_text(text)
        _keep_earlier(path, "new")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["alexnet_b2.csv.1", "alexnet_b2.csv.2"]


def rows(path: Path) -> list[tuple[int, float]]:
    return [(int(n), float(speed)) for n, speed in (line.split(",") for line in path.read_text().splitlines())]


@pytest.mark.framework
@pytest.mark.slow
def test_a_run_on_this_machine_leaves_the_older_files_and_the_same_command_changes_none(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "alexnet_b2.csv").write_text("1,99\n")
    argv = ["--models", "Alexnet:2", *QUICK]
    done = run(tmp_path, *argv)
    assert done.returncode == 0, done.stderr
    assert "hosts: none named, so this machine alone" in done.stdout
    assert "trainscale run --models Alexnet:2 --strategies ps:each --image-size 64" in done.stdout
    assert "the earlier logs/alexnet_b2.csv is now logs/alexnet_b2.csv.1" in done.stdout
    assert written(tmp_path) == sorted([*FILES, "logs/alexnet_b2.csv.1"])
    measured = rows(tmp_path / "logs" / "alexnet_b2.csv")
    assert measured[0][0] == 1
    assert all(speed > 0 for _, speed in measured)
    assert rows(tmp_path / "csv_torch" / "alexnet_b2.csv") == measured
    counts = ", ".join(str(n) for n, _ in measured)
    assert f"Summary:\nCompleted tests on {counts} CPU devices\nData available in:\n" in done.stdout
    assert done.stdout.endswith("Data plotted in graph: comparison_graph.svg\n")
    again = run(tmp_path, *argv)
    assert again.returncode == 0
    assert "the earlier" not in again.stdout
    assert written(tmp_path) == sorted([*FILES, "logs/alexnet_b2.csv.1"])


@pytest.mark.hosts
def test_a_run_over_two_hosts_has_a_server_on_each_that_it_uses(lab: Lab) -> None:
    (lab.shared / "nodes").write_text("".join(f"{lab.address(name)}  {name}\n" for name in lab.hosts))
    argv = ["-h", "nodes", "-m", "alexnet", "-g", "1", "-b", "2", "-r", "/tmp/", "-x", "2", *QUICK, "--no-witness"]
    done = lab.run([*COMMAND, *argv], cwd=lab.shared, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path for path in written(lab.shared) if path != "nodes"] == FILES
    assert [n for n, _ in rows(lab.shared / "logs" / "alexnet_b2.csv")] == [1, 2]
    assert "Completed tests on 1, 2 CPU devices" in done.stdout
    (journal,) = (lab.shared / "runs").glob("*/trials.jsonl")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(record["devices"], record["hosts"], len(record["servers"])) for record in records] == [
        (1, 1, 1),
        (2, 2, 2),
    ]
    assert [rank["host"] for rank in records[1]["ranks"]] == ["node1", "node2"]
