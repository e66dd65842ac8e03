"""``trainscale notebook`` writes a notebook that Jupyter executes, and opens it."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from command import trainscale
from factories import curve, learning_record
from nbclient import NotebookClient
from opened_notebooks import OpenedNotebook, readable_places, write_jupyter
from processes import MARK, marked, until
from stored_runs import ALLREDUCE, two_series, write_run


def read_notebook(path: Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def sources(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(cell.source for cell in notebook.cells)


def execute(path: Path) -> list[dict[str, object]]:
    """Execute a notebook as Jupyter does, in its own folder. Return the forms in which each code cell showed itself."""
    client = NotebookClient(read_notebook(path), timeout=120, resources={"metadata": {"path": str(path.parent)}})
    notebook = client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [dict(cell.outputs[-1].data) if cell.outputs else {} for cell in cells]


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_the_notebook_of_a_run_executes_and_shows_tables_and_charts(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "first", two_series())
    done = trainscale(tmp_path, "notebook", "runs/first")
    assert done.stdout.startswith("runs/first/analysis.ipynb: "), done.stderr
    shown = execute(tmp_path / "runs" / "first" / "analysis.ipynb")
    assert "How does the training of AlexNet scale?" in str(shown[0]["text/markdown"])
    for chart in shown[1:4]:
        assert "</svg>" in str(chart["image/svg+xml"]), "nothing is loaded from the network"
        assert 'fill="currentColor"' not in str(chart["image/svg+xml"]), "a picture has no page around it"
    assert "loses" in str(shown[4]["text/markdown"])  # explain
    assert "runner-up" in str(shown[5]["text/markdown"])  # best
    assert "'oom'" in str(shown[6]["text/plain"])
    assert "AlexNet · torch · allreduce" in str(shown[8]["text/plain"])
    assert "trainscale run --models alexnet:32" in str(shown[9]["text/plain"])


def test_a_notebook_elsewhere_finds_the_run_from_its_own_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "first", curve(ALLREDUCE, {1: 100}))
    done = trainscale(tmp_path, "notebook", "runs/first", "-o", "books/mine.ipynb")
    assert done.returncode == 0, done.stderr
    text = sources(read_notebook(tmp_path / "books" / "mine.ipynb"))
    assert "run = ts.load('../runs/first')" in text
    assert "ts.explain" not in text
    assert "has no point that can be explained" in text


def test_training_to_an_accuracy_has_its_chart(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [learning_record()])
    assert trainscale(tmp_path, "notebook", "run").returncode == 0
    assert 'run.chart("accuracy")' in sources(read_notebook(tmp_path / "run" / "analysis.ipynb"))


def test_a_notebook_that_somebody_changed_is_not_overwritten(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    notebook = tmp_path / "run" / "analysis.ipynb"
    for _ in range(2):  # an unchanged one may be written again
        assert trainscale(tmp_path, "notebook", "run").returncode == 0
    cells = json.loads(notebook.read_text())["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code"), "it holds no results"
    changed = notebook.read_text().replace("## Charts", "## My charts")
    notebook.write_text(changed)
    done = trainscale(tmp_path, "notebook", "run")
    assert (done.returncode, notebook.read_text()) == (2, changed)
    assert "is not overwritten; name another with -o" in done.stderr


# ---- --open: a real Jupyter here, which asks for its token, and Ctrl-C leaves nothing


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
