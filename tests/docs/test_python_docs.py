"""docs/python.md and docs/export.md: what is made from the code is up to date, and the examples run."""

import re
from pathlib import Path

import pytest
from api_reference import FIRST_COLUMN, make_column_list, make_reference
from doc_pages import blocks, rows, text
from factories import curve
from stored_runs import ALLREDUCE, SERVERS, write_run

from trainscale.export.base import EXPORTERS

EXAMPLES = blocks(text("python.md"), "python")


def test_the_reference_is_made_from_the_docstrings() -> None:
    """To write it anew: python tests/support/api_reference.py."""
    assert text("python.md").endswith(make_reference())


def test_the_table_of_columns_is_made_from_the_code() -> None:
    """To write it anew: python tests/support/api_reference.py."""
    columns = make_column_list()
    assert f"\n{columns}\n" in text("export.md")
    assert columns.startswith(FIRST_COLUMN)


def test_every_exporter_has_a_row() -> None:
    named = [row[0].strip("`") for row in rows(text("export.md")) if len(row) == 4]
    assert named[2 : 2 + len(EXPORTERS)] == list(EXPORTERS)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")  # of pandas and altair
def test_the_examples_that_read_runs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = curve(ALLREDUCE, {1: 100, 2: 190}, 3, 0.01) + curve(SERVERS, {1: 100, 2: None}, 3, 0.01)
    write_run(tmp_path / "runs" / "first", both)
    write_run(tmp_path / "runs" / "second", curve(ALLREDUCE, {1: 100, 2: 160}, 3, 0.01))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for example in EXAMPLES:
        if "ts.run(" not in example:
            exec(compile(example, "docs/python.md", "exec"), namespace)
    assert (tmp_path / "efficiency.html").stat().st_size > 1000
    printed = capsys.readouterr().out
    for pattern in ("2 oom CUDA out of memory", "slower fail", "AlexNet · torch · allreduce", r"second +6\b"):
        assert re.search(pattern, printed), pattern


@pytest.mark.framework
@pytest.mark.usefixtures("forked_ranks")
def test_the_example_that_measures_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = (example for example in EXAMPLES if "ts.run(" in example)
    assert "repeats=3" in example
    once = example.replace("repeats=3", "repeats=1")  # the others would only take time
    monkeypatch.chdir(tmp_path)
    exec(compile(f"import trainscale as ts\n{once}", "docs/python.md", "exec"), {})
    assert re.search(r"^runs/mnist-\w+ Interval\(mean=", capsys.readouterr().out, re.MULTILINE)
