"""Reports name no hosts unless asked: not in tables, not in messages, not in logs, not in the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories import failed_record, make_config, make_run, record_at
from reported import write_outputs

from trainscale.record.trial import TrialRecord
from trainscale.report.options import ReportOptions
from trainscale.report.redaction import Redaction, make_redaction
from trainscale.runs import Run

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
    assert Redaction(hosts).redact_text(text) == expected


def test_the_names_of_a_host_share_a_number_and_hosts_of_ranks_follow() -> None:
    redaction = make_redaction(
        [Run.from_records(make_run(**RUN_OPTIONS), [*RECORDS, on_host(record_at(1.0), "late9")])]
    )
    names = ("gpu-a17", "gpu-a17.cluster.example.org", "gpu-a18", "login3", "late9")
    assert [redaction.redact_text(name) for name in names] == ["host-1", "host-1", "host-2", "host-3", "host-4"]


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
