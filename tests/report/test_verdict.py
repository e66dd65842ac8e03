"""The first screen: what was reached, where the efficiency went, and whether the numbers can be trusted."""

from __future__ import annotations

from dataclasses import replace

from factories import curve, learning_record, make_config
from planted import run, small_config
from reported import details_of

from trainscale.record.trial import TrialRecord
from trainscale.report.details import MOST_DOUBTS, Finding
from trainscale.report.redaction import Redaction

SEPARATED = run(small_config(), work=0.06, apart=0.07, step=0.1)


def findings(records: list[TrialRecord], redaction: Redaction | None = None) -> list[Finding]:
    return list(details_of(records, redaction=redaction).findings)


def test_the_result_comes_first_and_then_the_verdict_of_explain() -> None:
    (finding,) = findings(curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01))
    result = "2 devices are 1.50 times as fast as 1 device: 150.0 images/s, 75 ± 2 % efficiency."
    assert finding.result.replace("\u202f", " ") == result
    assert finding.verdict.startswith("AlexNet on 2 devices loses 25")
    (separated,) = findings(SEPARATED)
    assert "on 2 devices loses 40" in separated.verdict
    assert "is the exchange of" in separated.verdict


def test_of_several_series_the_finding_names_its_own_once() -> None:
    records = [*curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01), *curve(make_config(batch=64), {1: 100.0}, 3, 0.01)]
    (finding,) = findings(records)
    assert finding.subject == "AlexNet · torch · allreduce · batch 32"
    assert finding.verdict.startswith("AlexNet on 2 devices loses 25")
    (alone,) = findings(curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01))
    assert alone.subject == "", "the title of the page names the only series"


def test_a_speed_up_below_one_is_called_slower() -> None:
    (finding,) = findings(curve(make_config(), {1: 100.0, 2: 50.0}, 3, 0.01))
    assert finding.result.startswith("2 devices are slower than 1 device, 0.50 times as fast: ")


def test_flags_of_the_series_are_on_the_first_screen() -> None:
    noisy = curve(make_config(), {1: 100.0, 2: 150.0}, repeats=3, spread=0.2)
    (finding,) = findings(noisy)
    assert len(finding.doubts) == 2
    assert finding.doubts[0].startswith("2 devices: repeats differ")
    assert finding.further_doubts == 0
    (quiet,) = findings(SEPARATED)
    assert quiet.doubts == ()


def test_many_flags_are_counted_and_not_all_shown() -> None:
    noisy = curve(make_config(), {n: 100.0 * n for n in (1, 2, 4, 8)}, repeats=3, spread=0.2)
    (finding,) = findings(noisy)
    assert len(finding.doubts) == MOST_DOUBTS
    assert finding.doubts[0].startswith("8 devices")
    assert finding.further_doubts == 2


def test_a_slow_rank_is_named_without_its_host() -> None:
    records = [
        replace(record, ranks=tuple(replace(rank, host="node7") for rank in record.ranks))
        for record in run(small_config(), work=0.05, apart=(0.05, 0.1), step=0.105)
    ]
    assert "rank 1 on node7" in findings(records)[0].verdict
    assert "rank 1 on host-1" in findings(records, Redaction([["node7"]]))[0].verdict


def test_without_anything_to_explain_the_finding_is_what_was_reached() -> None:
    (alone,) = findings(curve(make_config(), {1: 40.0}))
    assert (alone.result, alone.verdict) == ("1 device trains 40.00 images/s.", "")
    (failed,) = findings(curve(make_config(), {1: None}))
    assert failed.result == "No trial gave a result."
    assert findings([]) == []


def test_a_training_to_an_accuracy_begins_with_the_accuracy() -> None:
    (finding,) = findings([learning_record(devices=1, seconds=40.0)])
    assert "of validation images right after" in finding.result.split(";")[0]
    assert finding.verdict == ""
