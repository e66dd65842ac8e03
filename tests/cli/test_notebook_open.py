"""``trainscale notebook --open``: a real Jupyter here. It asks for its token, and Ctrl-C leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import trainscale
from opened_notebooks import OpenedNotebook, readable_places, write_jupyter
from processes import MARK, marked, until
from stored_runs import two_series, write_run


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., OpenedNotebook]]:
    write_run(tmp_path / "a run", two_series())
    # A short folder: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="nb-", dir="/tmp"))
    environment = {**os.environ, MARK: tmp_path.name, "TMPDIR": str(folder), "JUPYTER_CONFIG_DIR": str(tmp_path)}

    def open_notebook(*arguments: str) -> OpenedNotebook:
        flags = ["--jupyter", write_jupyter(tmp_path / "bin"), *arguments]
        return OpenedNotebook(subprocess.Popen, tmp_path, ["a run", *flags], environment)

    yield open_notebook
    shutil.rmtree(folder)


@pytest.mark.processes
def test_jupyter_shows_the_notebook_to_who_has_the_token_and_ctrl_c_ends_everything(
    opened: Callable[..., OpenedNotebook], tmp_path: Path
) -> None:
    with opened() as jupyter:
        assert jupyter.request("api/contents/analysis.ipynb")[0] == 403
        assert jupyter.request("api/contents/analysis.ipynb", "0" * 48)[0] == 403
        status, body = jupyter.request("api/contents/analysis.ipynb", jupyter.token)
        assert status == 200
        assert "import trainscale as ts" in body
        assert jupyter.redirect.stat().st_mode & 0o777 == 0o600
        assert jupyter.redirect.parent.stat().st_mode & 0o777 == 0o700
        assert readable_places(jupyter.token) == []
        assert jupyter.token not in jupyter.output
        kernel = jupyter.start_kernel()
        assert kernel in jupyter.request("api/kernels", jupyter.token)[1]
        folder = jupyter.redirect.parent.parent
        assert jupyter.interrupt() == 130
    assert "Jupyter has ended" in jupyter.output
    until(lambda: marked(tmp_path.name) == [], "the kernel and Jupyter end")
    assert list(folder.iterdir()) == []


@pytest.mark.processes
def test_nothing_is_left_when_the_command_is_killed(opened: Callable[..., OpenedNotebook], tmp_path: Path) -> None:
    with opened() as jupyter:
        jupyter.start_kernel()
        assert len(marked(tmp_path.name)) >= 4
        jupyter.process.send_signal(signal.SIGKILL)
        jupyter.process.wait()
        until(lambda: marked(tmp_path.name) == [], "the kernel and Jupyter end")


@pytest.mark.processes
def test_a_shutdown_in_the_browser_ends_the_command(opened: Callable[..., OpenedNotebook], tmp_path: Path) -> None:
    with opened() as jupyter:
        assert jupyter.request("api/shutdown", jupyter.token, "POST")[0] in (200, 204)
        assert jupyter.process.wait(60) == 1
    assert "has ended by itself" in jupyter.output
    assert "Traceback" not in jupyter.output
    until(lambda: marked(tmp_path.name) == [], "all processes end")


@pytest.mark.processes
def test_a_notebook_that_somebody_changed_is_opened_as_it_is(
    opened: Callable[..., OpenedNotebook], tmp_path: Path
) -> None:
    assert trainscale(tmp_path, "notebook", "a run").returncode == 0
    notebook = tmp_path / "a run" / "analysis.ipynb"
    notebook.write_text(notebook.read_text().replace("## Charts", "## My charts"))
    with opened() as jupyter:
        text = jupyter.request("api/contents/analysis.ipynb", jupyter.token)[1]
    assert "## My charts" in json.loads(text)["content"]["cells"][2]["source"]


def test_a_missing_jupyter_is_told_with_how_to_install_it(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    done = trainscale(tmp_path, "notebook", "run", "--open", "--jupyter", str(tmp_path / "bin" / "jupyter"))
    assert done.returncode == 1
    assert f"there is no jupyter-lab or jupyter-notebook in {tmp_path / 'bin'}" in done.stderr
    assert "pip install jupyterlab" in done.stderr


def test_a_jupyter_that_does_not_start_says_why(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    program = tmp_path / "jupyter-lab"
    program.write_text("#!/bin/sh\necho the port is on fire >&2\nexit 3\n")
    program.chmod(0o755)
    done = trainscale(tmp_path, "notebook", "run", "--open", "--jupyter", str(tmp_path / "jupyter"))
    assert done.returncode == 1
    assert "Jupyter did not start:\n  the port is on fire" in done.stderr
