"""A report of several runs: their series apart by labels, what differs between them, each with its own baseline."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import curve, failed_record, learning_record, make_config, make_run, record_at
from full_run import full_records, full_run
from reported import write_outputs

from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.report.options import ReportOptions
from trainscale.report.outputs import write_report
from trainscale.report.redaction import Redaction, make_redaction
from trainscale.report.run_tables import make_difference_grid
from trainscale.runs import Run

A100 = {"host": "box7", "cpu": "EPYC", "cores": 64, "gpus": ["NVIDIA A100"] * 8, "gpu driver": "550"}
CONFIG = make_config()


def other_run(**provenance: Any) -> RunInfo:
    return make_run(machine=A100, frameworks={"torch": {"torch": "2.4.0"}}, date="2026-03-04T05:06:07", **provenance)


def labelled(label: str, records: list[TrialRecord], run: RunInfo | None = None) -> Run:
    return Run.from_records(run or make_run(), records, label=label)


def two_runs() -> list[Run]:
    """The same config in both runs, twice as fast in the second, where 4 devices fail."""
    first = curve(CONFIG, {1: 100.0, 2: 190.0, 4: 360.0}, repeats=3, spread=0.01)
    second = curve(CONFIG, {1: 200.0, 2: 300.0, 4: None}, repeats=3, spread=0.01)
    return [labelled("old", first), labelled("new", second, other_run())]


def read_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


def test_every_row_has_its_run_and_the_baseline_of_its_own_run(tmp_path: Path) -> None:
    write_report(tmp_path, two_runs())
    rows = read_rows(tmp_path)
    assert [(row["run"], row["devices"], row["status"]) for row in rows] == [
        ("old", "1", "ok"), ("old", "2", "ok"), ("old", "4", "ok"),
        ("new", "1", "ok"), ("new", "2", "ok"), ("new", "4", "oom"),
    ]  # fmt: skip
    on_two = {row["run"]: row for row in rows if row["devices"] == "2"}
    assert float(on_two["old"]["speedup"]) == pytest.approx(1.9, rel=0.01)
    assert float(on_two["new"]["speedup"]) == pytest.approx(1.5, rel=0.01)
    assert all(float(row["speedup_low"]) < float(row["speedup"]) for row in on_two.values())


def test_series_of_the_same_config_have_different_titles_and_files(tmp_path: Path) -> None:
    write_report(tmp_path, two_runs())
    document = json.loads((tmp_path / "results.json").read_text())
    assert [(run["label"], run["series"][0]["title"]) for run in document["runs"]] == [
        ("old", "old · AlexNet · torch · allreduce"),
        ("new", "new · AlexNet · torch · allreduce"),
    ]
    assert {path.name: path.read_text().splitlines()[0] for path in (tmp_path / "csv_torch").iterdir()} == {
        "alexnet_b32_old.csv": "1,100",
        "alexnet_b32_new.csv": "1,200",
    }


def test_the_page_has_the_series_verdicts_commands_and_failures_of_all_runs(tmp_path: Path) -> None:
    runs = [labelled("cluster", full_records(), full_run()), two_runs()[1]]
    write_report(tmp_path, runs, options=ReportOptions(formats=("png",)))
    page = (tmp_path / "report.html").read_text()
    assert page.count('<p class="verdict">') == 2
    assert '<p class="subject">new · AlexNet · torch · allreduce</p>' in page
    assert 'aria-label="Points of new · AlexNet · torch · allreduce"' in page
    assert 'aria-label="Command of cluster"' in page
    assert 'aria-label="Command of new"' in page
    failures = page[page.index("What failed and why") : page.index("Every point")]
    assert "cluster · VGG-16" in failures
    assert "new · AlexNet" in failures
    for name in ("comparison_graph.png", "time_parts.png", "step_times_1.png", "step_times_3.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_every_run_has_a_share_of_the_strips(tmp_path: Path) -> None:
    first = [record for n in range(1, 6) for record in curve(make_config(batch=n), {4: 100.0 * n})]
    write_report(tmp_path, [labelled("many", first), labelled("small", curve(CONFIG, {1: 100.0}), other_run())])
    page = (tmp_path / "report.html").read_text()
    strips = page[page.index('aria-label="Step times by rank"') :]
    assert strips.count("many · AlexNet · torch · allreduce · batch") > 0
    assert "small · AlexNet · torch · allreduce. Thick: median." in strips


def test_the_same_host_has_the_same_number_in_all_runs_and_other_hosts_others(tmp_path: Path) -> None:
    shared = [{"host": name, "cpu": "EPYC", "gpus": []} for name in ("box7", "box8", "box7")]
    runs = [
        labelled(f"run{n}", curve(CONFIG, {1: 100.0 + n}), make_run(machine=machine))
        for n, machine in enumerate(shared)
    ]
    redaction = make_redaction(runs)
    assert [redaction.redact_run(run).info.provenance["machine"]["host"] for run in runs] == [
        "host-1",
        "host-2",
        "host-1",
    ]
    assert redaction.redact("box8 is lost") == "host-2 is lost"
    write_report(tmp_path, runs)
    assert "box7" not in (tmp_path / "report.html").read_text() + (tmp_path / "report.md").read_text()


def test_what_differs_between_the_runs_is_said() -> None:
    first = curve(CONFIG, {1: 100.0})
    other = curve(make_config(batch=64, precision="bf16"), {1: 300.0})
    runs = [
        labelled("old", first, make_run(frameworks={"torch": {"torch": "2.9.1"}}, trainscale="0.1.0")),
        labelled("new", other, other_run(trainscale="0.1.0")),
    ]
    grid = make_difference_grid(runs)
    rows = {row[0]: row[1:] for row in grid.rows}
    assert rows["batch"] == ("32 per device", "64 per device")
    assert rows["precision"] == ("fp32", "bf16")
    assert rows["versions of torch"] == ("torch 2.9.1", "torch 2.4.0")
    assert rows["measured"] == ("2026-01-02 03:04", "2026-03-04 05:06")
    assert "8 × NVIDIA A100" in rows["machine"][1]
    assert "data" not in rows
    text = grid.note
    assert "The runs differ in machine, versions of torch, batch and precision." in text
    alike = text.partition("The same in all: ")[2]
    assert "data" in alike
    assert "version of trainscale" in alike
    assert "GPU driver" not in text  # only one run recorded it
    assert "relative to the 1-device point of its own run" in text


def test_runs_that_are_alike_say_so() -> None:
    runs = [labelled(name, curve(CONFIG, {1: speed})) for name, speed in (("a", 100.0), ("b", 110.0))]
    grid = make_difference_grid(runs)
    assert [row[0] for row in grid.rows] == ["measured"]
    assert grid.note.startswith("The runs recorded nothing in which they differ: machine,")


def test_runs_that_learn_and_runs_that_measure_speed_share_a_page(tmp_path: Path) -> None:
    fast = [record_at(40.0), failed_record(CONFIG, 2)]
    write_report(tmp_path, [labelled("learns", [learning_record()]), labelled("fast", fast)])
    text = (tmp_path / "report.md").read_text()
    assert "### learns · " in text
    assert "fast · Machines" in text
    assert "Every epoch: learns · " in (tmp_path / "report.html").read_text()


def test_a_report_of_one_run_has_no_labels(tmp_path: Path) -> None:
    write_report(tmp_path, [Run.from_records(make_run(), curve(CONFIG, {1: 100.0}))])
    assert "run" not in read_rows(tmp_path)[0]
    page = (tmp_path / "report.html").read_text()
    assert "What differs between the runs" not in page
    assert 'aria-label="Command"' in page


# ---- reports name no hosts unless asked: not in tables, not in messages, not in logs, not in the command

MACHINE = {"host": "gpu-a17.cluster.example.org", "cpu": "A CPU", "cores": 2, "gpus": []}
RUN_OPTIONS = {
    "hosts": {"gpu-a17": MACHINE, "gpu-a18": {**MACHINE, "host": "gpu-a18.cluster.example.org"}},
    "machine": {**MACHINE, "host": "login3"},
    "command": "trainscale run --hosts-list gpu-a17,gpu-a18",
}


def on_host(record: TrialRecord, host: str) -> TrialRecord:
    return replace(record, ranks=tuple(replace(rank, host=host) for rank in record.ranks))


RECORDS = [
    on_host(record_at(100.0), "gpu-a17"),
    on_host(record_at(180.0, devices=2), "gpu-a18"),
    failed_record(
        make_config(), 4, message="gpu-a18: connection lost", tail=("on gpu-a18.cluster.example.org: killed",)
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 1 on node2.", "rank 1 on host-2."),
        ("node1.example.org and node1", "host-1 and host-1"),
        ("node1,node2", "host-1,host-2"),
        ("node12 node2-ib node2x my-node2", "node12 node2-ib node2x my-node2"),
        ("node2.other", "node2.other"),
        ("10 of 10.0.0.7 and 10.0.0.71", "10 of host-3 and 10.0.0.71"),  # an address is replaced as a whole
        ("on localhost, 127.0.0.1", "on localhost, 127.0.0.1"),  # every machine has these names
    ],
)
def test_whole_names_are_replaced_and_nothing_else(text: str, expected: str) -> None:
    hosts = [["node1", "node1.example.org"], ["node2"], ["10.0.0.7"], ["localhost"], ["127.0.0.1"]]
    assert Redaction(hosts).redact(text) == expected


def test_the_names_of_a_host_share_a_number_and_hosts_of_ranks_follow() -> None:
    redaction = make_redaction(
        [Run.from_records(make_run(**RUN_OPTIONS), [*RECORDS, on_host(record_at(1.0), "late9")])]
    )
    names = ("gpu-a17", "gpu-a17.cluster.example.org", "gpu-a18", "login3", "late9")
    assert [redaction.redact(name) for name in names] == ["host-1", "host-1", "host-2", "host-3", "host-4"]


def test_the_page_the_markdown_and_the_pictures_name_no_host(tmp_path: Path) -> None:
    for folder, options in (("hidden", ReportOptions()), ("shown", ReportOptions(show_hosts=True))):
        write_outputs(tmp_path / folder, make_run(**RUN_OPTIONS), RECORDS, options=options)
    for name in ("report.html", "report.md", "comparison_graph.svg"):
        text = (tmp_path / "hidden" / name).read_text()
        assert not [host for host in ("gpu-a17", "gpu-a18", "login3") if host in text], name
    assert "host-2: connection lost" in (tmp_path / "hidden" / "report.html").read_text()
    for name in ("report.html", "report.md"):
        assert "gpu-a18: connection lost" in (tmp_path / "shown" / name).read_text()
    assert "gpu-a18" in (tmp_path / "hidden" / "results.json").read_text(), "files for programs are complete"
