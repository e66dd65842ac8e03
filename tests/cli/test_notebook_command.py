"""``trainscale notebook`` writes a notebook that Jupyter executes."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from command import trainscale
from factories import curve, learning_record
from nbclient import NotebookClient
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


def test_the_notebook_holds_no_results(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    assert trainscale(tmp_path, "notebook", "run").returncode == 0
    cells = json.loads((tmp_path / "run" / "analysis.ipynb").read_text())["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")


def test_a_notebook_that_somebody_changed_is_not_overwritten(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    notebook = tmp_path / "run" / "analysis.ipynb"
    for _ in range(2):  # an unchanged one may be written again
        assert trainscale(tmp_path, "notebook", "run").returncode == 0
    changed = notebook.read_text().replace("## Charts", "## My charts")
    notebook.write_text(changed)
    done = trainscale(tmp_path, "notebook", "run")
    assert (done.returncode, notebook.read_text()) == (2, changed)
    assert "is not overwritten; name another with -o" in done.stderr
