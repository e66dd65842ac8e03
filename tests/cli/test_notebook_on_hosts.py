"""``trainscale notebook --open --on``: a real Jupyter on a host over ssh, and in a job of a real Slurm."""

import os
from pathlib import Path

import pytest
from opened_notebooks import OpenedNotebook, readable_places, write_jupyter
from processes import until
from stored_runs import two_series, write_run

from lab import Lab, Slurm

pytestmark = pytest.mark.hosts
LAB_HOSTS = 1


def jupyter_of(lab: Lab) -> str:
    return write_jupyter(lab.shared / "bin")


def jupyter_processes(lab: Lab) -> list[str]:
    return [line for line in lab.processes("node1") if "jupyter" in line or "ipykernel" in line]


def check_service(lab: Lab, jupyter: OpenedNotebook) -> None:
    """Only who has the token sees the notebook; the server and a kernel run on the host."""
    assert jupyter.request("api/contents/analysis.ipynb")[0] == 403
    status, body = jupyter.request("api/contents/analysis.ipynb", jupyter.token)
    assert status == 200
    assert "import trainscale as ts" in body
    jupyter.start_kernel()
    until(lambda: len(jupyter_processes(lab)) >= 2, "Jupyter and a kernel run on the host")
    assert readable_places(jupyter.token) == []


def test_jupyter_on_a_host_is_reached_through_ssh_and_ctrl_c_leaves_nothing_there(lab: Lab, tmp_path: Path) -> None:
    write_run(lab.file("node1", "/tmp/a run"), two_series())
    arguments = ["/tmp/a run", "--on", "node1", "--jupyter", jupyter_of(lab)]
    with OpenedNotebook(lab.popen, tmp_path, arguments, dict(os.environ)) as jupyter:
        check_service(lab, jupyter)
        assert jupyter.interrupt() == 130
    assert "Jupyter on node1 has /tmp/a run/analysis.ipynb" in jupyter.output
    assert lab.file("node1", "/tmp/a run/analysis.ipynb").is_file()
    until(lambda: jupyter_processes(lab) == [], "nothing is left on the host")
    assert not list(lab.file("node1", "/tmp").glob("trainscale-notebook-*"))


def test_nothing_is_left_on_a_host_when_the_command_is_killed(lab: Lab, tmp_path: Path) -> None:
    write_run(lab.file("node1", "/tmp/killed"), two_series())
    arguments = ["/tmp/killed", "--on", "node1", "--jupyter", jupyter_of(lab)]
    with OpenedNotebook(lab.popen, tmp_path, arguments, dict(os.environ)) as jupyter:
        jupyter.start_kernel()
        until(lambda: len(jupyter_processes(lab)) >= 2, "Jupyter and a kernel run on the host")
        jupyter.process.kill()
        jupyter.process.wait()
    until(lambda: jupyter_processes(lab) == [], "nothing is left on the host")


def test_a_host_without_jupyter_and_a_directory_without_a_run_are_told(lab: Lab, tmp_path: Path) -> None:
    write_run(lab.file("node1", "/tmp/bare"), two_series())
    for directory, reason in (("/tmp/bare", "there is no jupyter-lab"), ("/tmp/nothing", "no run was recorded there")):
        arguments = [directory, "--on", "node1", "--jupyter", "/opt/nothing/bin/jupyter"]
        opened = OpenedNotebook(lab.popen, tmp_path, arguments, dict(os.environ))
        assert opened.process.wait(60) in (1, 2)
        assert reason in opened.output


def test_jupyter_in_a_slurm_job_ends_with_the_job(lab: Lab, slurm: Slurm) -> None:
    folder = lab.shared / "home"
    folder.mkdir()
    write_run(folder / "a run", two_series())
    environment = {**os.environ, **slurm.environment}
    arguments = ["a run", "--on", "slurm", "--time", "10", "--jupyter", jupyter_of(lab)]
    with OpenedNotebook(lab.popen, folder, arguments, environment) as jupyter:
        check_service(lab, jupyter)
        queue = lab.run(["squeue", "--noheader", "--format=%j"], env=environment).stdout
        assert queue.split() == ["trainscale-notebook"]
        assert jupyter.interrupt() == 130
    assert "Jupyter in a Slurm job has" in jupyter.output
    until(lambda: jupyter_processes(lab) == [], "nothing is left on the node")
    slurm.wait_for(lab.hosts)
    assert lab.run(["squeue", "--noheader"], env=environment).stdout == ""
