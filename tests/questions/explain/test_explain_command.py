"""``trainscale explain``: what it says as text, Markdown and JSON, and what is said where there is no answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command import call
from planted import REPEATS, change_rank, give_cores, run, small_config, trials
from stored_runs import write_run

from trainscale.analyse.statistics import Interval
from trainscale.questions.explain.explain import explain_records
from trainscale.questions.explain.text import COLUMNS, format_share, render_document, round_to_percents
from trainscale.record.run import RunInfo
from trainscale.record.trial import BatchTime, ExchangeTime, MachineLoad, TrialRecord

CONFIG = small_config()
SERVERS = small_config(strategy="ps", servers=1)
WITHOUT_APART = [*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)]
HALF_A_CORE = {"rank": {"cpu_seconds": 40 * 0.045}}
EQUAL_BATCHES = {"rank": {"further_batches": (BatchTime(16, 10, 0.6), BatchTime(32, 10, 0.6))}}


def text_of(records: list[TrialRecord]) -> str:
    text = render_document(explain_records(records), "the command", "text")
    assert max(map(len, text.splitlines())) <= COLUMNS
    return " ".join(text.replace("\u202f", " ").split())


def exchanges_at(bytes_per_second: float) -> dict[str, object]:
    sizes = (1_000_000, 10_000_000)
    return {"rank": {"exchanges": tuple(ExchangeTime(size, 2, 2 * size / bytes_per_second) for size in sizes)}}


def with_slow_rank(core_wait: float) -> list[TrialRecord]:
    """Rank 1 has half of its core, and waits for it for some seconds of a window of 4."""
    records = [change_rank(record, 0, cpu_seconds=2.0) for record in run(CONFIG, 0.05, (0.05, 0.1), 0.105)]
    slow = {"cpu_seconds": 2.0, "core_wait_seconds": core_wait}
    return [change_rank(record, 1, **slow) if record.trial.devices == 2 else record for record in records]


def lacking_core_in_short_steps() -> list[TrialRecord]:
    records = run(CONFIG, 0.0048, (0.0065, 0.0068), 0.017)
    several = [record for record in records if record.trial.devices == 2]
    return [*records[:REPEATS], *give_cores(several, (1.0, 0.5), (0.0, 0.5))]


def on_a_busy_machine() -> list[TrialRecord]:
    records = run(CONFIG, 0.05, 0.09, 0.095, **HALF_A_CORE)
    return [replace(record, machine=MachineLoad(other_cores=1.7)) for record in records]


def with_servers_and_a_slow_rank() -> list[TrialRecord]:
    several = [record for record in run(SERVERS, 0.05, (0.05, 0.1), 0.12) if record.trial.devices == 2]
    return [*several, *trials(SERVERS, 1, 0.07)]


@pytest.mark.parametrize(
    ("make_records", "said"),
    [
        (
            lambda: run(CONFIG, 0.07, 0.07, 0.1, **exchanges_at(1e8)),
            [
                "Deep MNIST on 2 devices loses 30 ± ",
                "30 % is the exchange of 4.8 MB a step, of which another 18 % hides behind computing",
                "at 100 MB/s between these processes a batch of",
            ],
        ),
        (  # less than half a per cent hides, which is not said
            lambda: run(CONFIG, 0.07, 0.07, 0.1, **exchanges_at(1.589e8)),
            ["30 % is the exchange of 4.8 MB a step; at 159 MB/s between these processes"],
        ),
        (lambda: run(CONFIG, 0.05, 0.09, 0.095, **HALF_A_CORE), ["got 0.50 of its core, so they share cores"]),
        (lambda: run(CONFIG, 0.05, 0.09, 0.095), ["so they share memory bandwidth"]),
        (
            on_a_busy_machine,  # then it is not the ranks that take each other's cores
            [
                "got 0.50 of its core, because other programs ran there, too",
                "other programs used 1.7 cores meanwhile, so a part of it may be theirs",
            ],
        ),
        (
            lambda: with_slow_rank(2.0),
            [
                "waiting for rank 1 on localhost, whose steps take 2.0 times as long",
                "ready to run 50 % of the time without getting it: another program",
            ],
        ),
        (lambda: with_slow_rank(0.1), ["not ready to run meanwhile"]),
        (
            lacking_core_in_short_steps,
            ["waiting for rank 1 on localhost, which does not get its core whole. It got 0.50 of its core"],
        ),
        (  # the efficiency is relative to one worker with its server, the loss to the work alone
            lambda: [*run(SERVERS, 0.06, 0.06, 0.12), *trials(SERVERS, 1, 0.07)],
            ["loses 50 ± ", "against one device without servers: "],
        ),
        (
            with_servers_and_a_slow_rank,
            [
                "not known, because the strategy independent on 1 device was not measured",
                "is waiting for rank 1 on localhost, whose steps take 2.0 times as long",
                "without it a step would take 70.0 ms",
            ],
        ),
        (
            lambda: [*trials(SERVERS, 1, 0.12), *trials(SERVERS, 2, 0.1)],
            ["is 20 % faster than one device. Suspect the one-device point. note:"],
        ),
        (
            lambda: WITHOUT_APART,
            [
                "contention, stragglers and communication together",
                "not measured: the strategy independent on 2 devices",
                "This command measures what is missing: the command",
            ],
        ),
        (lambda: run(CONFIG, 0.06, 0.061, 0.1, repeats=1), ["once or twice only"]),
        (lambda: run(CONFIG, 0.06, 0.05, 0.1), ["which cannot be"]),
        (lambda: run(CONFIG, 0.05, 0.05, 0.0505), ["nothing stands out"]),
        (
            lambda: run(replace(CONFIG, batch=1), 0.001, 0.001, 0.005),
            ["the work is too small to scale. A step computes for 1.00 ms and loses", "a batch of"],
        ),
        (
            lambda: [*trials(replace(CONFIG, batch=1), 1, 0.001), *trials(replace(CONFIG, batch=1), 2, 0.02)],
            [
                "and loses 19.0 ms to contention, stragglers and communication together",
                "even at 10 Gbit/s the exchange of 4.8 MB would take",
            ],
        ),
        (
            lambda: run(CONFIG, 0.06, 0.06, 0.1, **EQUAL_BATCHES),
            ["A batch of 16 takes as long as one of 64", "try --compile or a larger batch"],
        ),
        (lambda: run(replace(CONFIG, compile=True), 0.06, 0.06, 0.1, **EQUAL_BATCHES), ["try a larger batch"]),
    ],
)
def test_the_cause_its_evidence_and_what_would_help_are_said(
    make_records: Callable[[], list[TrialRecord]], said: list[str]
) -> None:
    text = text_of(make_records())
    assert [fragment for fragment in said if fragment not in text] == []


@pytest.mark.parametrize(
    ("make_records", "unsaid"),
    [
        (lambda: run(CONFIG, 0.05, 0.09, 0.095, **HALF_A_CORE), "other programs"),
        (lacking_core_in_short_steps, "times as long"),
        (lambda: [*trials(SERVERS, 2, 0.12), *trials(SERVERS, 1, 0.07)], "without servers"),
        (lambda: run(CONFIG, 0.005, 0.006, 0.015), "shortest windows"),  # CPU time tells
    ],
)
def test_what_is_not_so_is_not_said(make_records: Callable[[], list[TrialRecord]], unsaid: str) -> None:
    assert unsaid not in text_of(make_records())


@pytest.mark.parametrize(("data", "cpu"), [("mnist", {}), ("synthetic", {"cpu_seconds": None})])
def test_short_windows_are_a_note_where_cpu_time_does_not_tell(data: str, cpu: dict[str, None]) -> None:
    """A scheduler shares a core by milliseconds: in such windows a late rank looks like a slow exchange."""
    config = small_config(data=data)
    text = text_of(run(config, 0.005, 0.006, 0.015, rank=cpu))
    assert "the shortest windows took 0.20 s, too short to tell late ranks from a slow exchange" in text
    assert "use --steps 200" in text
    assert "shortest windows" not in text_of(run(config, 0.03, 0.036, 0.09, rank=cpu))


def test_percentages_add_up_to_100_and_a_share_does_not_reach_beyond_all() -> None:
    for step in (0.1, 0.101, 0.1037, 0.1111):
        (point,) = explain_records(run(CONFIG, 0.0333, 0.0667, step))
        assert sum(percent for _, percent in round_to_percents(point.parts)) == 100
    assert format_share(Interval(0.89, 0.68, 1.02)).replace("\u202f", " ") == "89 (68–100) %"
    assert format_share(Interval(0.31, 0.28, 0.34)).replace("\u202f", " ") == "31 ± 3 %"


# ---- the command


def journal(
    folder: Path, records: list[TrialRecord], command: str = "trainscale run --models mnist:64", **series: int
) -> str:
    return str(write_run(folder, records, RunInfo({"series": [series]}, {"command": command})))


def test_it_prints_text_markdown_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = journal(tmp_path / "run", run(CONFIG, 0.06, 0.09, 0.1))
    code, out, err = call(capsys, "explain", folder)
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if line.strip().startswith("contention"))
    assert "30\u202f%" in line
    assert line.count("█") == 9
    assert "…" in line
    markdown = call(capsys, "explain", folder, "--markdown")[1]
    assert markdown.startswith("## ")
    assert markdown.count("| part | share |") == 1
    assert "| contention | 30\u202f% |" in markdown
    (point,) = json.loads(call(capsys, "explain", folder, "--json")[1])["points"]
    assert [part["causes"] for part in point["parts"]] == [["work"], ["contention"], ["stragglers"], ["communication"]]
    assert sum(part["share"] for part in point["parts"]) == pytest.approx(1)
    assert point["parts"][1]["measured"]["low"] < 0.3 < point["parts"][1]["measured"]["high"]
    assert (point["verdict"], point["config"]["strategy"]) == ("contention", "allreduce")
    assert "is contention" in point["sentence"]


@pytest.mark.parametrize(
    ("command", "epochs", "hint"),
    [
        ("trainscale run -m mnist:64", 0, "trainscale run -m mnist:64 --explain"),
        ("trainscale run --explain -m mnist", 0, "trainscale run --explain -m mnist"),
        (  # `run` refuses --explain together with --epochs
            "trainscale run -o runs/a -m mnist:64 --epochs 3 --until-accuracy=0.9 --repeats 3",
            3,
            "trainscale run -m mnist:64 --repeats 3 --explain",
        ),
        (
            "trainscale run mnist.toml",
            3,
            "trainscale run mnist.toml --explain  # without epochs, until_accuracy and search in its file",
        ),
    ],
)
def test_it_says_which_command_measures_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, epochs: int, hint: str
) -> None:
    _, out, _ = call(capsys, "explain", journal(tmp_path / "run", WITHOUT_APART, command, epochs=epochs))
    assert out.endswith(f"This command measures what is missing:\n  {hint}\n")
