"""Explanations as text, Markdown and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from planted import REPEATS, change_rank, give_cores, run, small_config, trials

from trainscale.analyse.statistics import Interval
from trainscale.questions.explain.causes import round_to_percents
from trainscale.questions.explain.explain import explain_records
from trainscale.questions.explain.text import COLUMNS, render_json, render_markdown, render_text
from trainscale.questions.explain.wording import format_share
from trainscale.record.trial import BatchTime, ExchangeTime, MachineLoad, TrialRecord

CONFIG = small_config()
COMMAND = "trainscale run --models mnist --explain"


def text_of(records: list[TrialRecord]) -> str:
    text = render_text(explain_records(records), COMMAND)
    assert max(map(len, text.splitlines())) <= COLUMNS
    return " ".join(text.replace("\u202f", " ").split())


def test_every_part_has_a_line_with_its_share_interval_and_bar() -> None:
    text = render_text(explain_records(run(CONFIG, 0.06, 0.09, 0.1)), COMMAND)
    (line,) = (line for line in text.splitlines() if line.strip().startswith("contention"))
    assert "30\u202f%" in line
    assert line.count("█") == 9
    assert "…" in line


def test_percentages_add_up_to_100() -> None:
    for step in (0.1, 0.101, 0.1037, 0.1111):
        (point,) = explain_records(run(CONFIG, 0.0333, 0.0667, step))
        assert sum(round_to_percents(point.parts)) == 100


def test_the_verdict_on_an_exchange_has_its_size_its_rate_and_a_batch() -> None:
    exchanges = tuple(ExchangeTime(size, 2, 2 * size / 1e8) for size in (1_000_000, 10_000_000))
    text = text_of(run(CONFIG, 0.07, 0.07, 0.1, rank={"exchanges": exchanges}))
    assert "Deep MNIST on 2 devices loses 30 ± " in text
    assert "30 % is the exchange of 4.8 MB a step, of which another 18 % hides behind computing" in text
    assert "at 100 MB/s between these processes a batch of" in text


def test_an_exchange_of_which_less_than_half_a_per_cent_hides_says_nothing_of_it() -> None:
    exchanges = tuple(ExchangeTime(size, 2, 2 * size / 1.589e8) for size in (1_000_000, 10_000_000))
    text = text_of(run(CONFIG, 0.07, 0.07, 0.1, rank={"exchanges": exchanges}))
    assert "30 % is the exchange of 4.8 MB a step; at 159 MB/s between these processes" in text


@pytest.mark.parametrize(("data", "cpu"), [("mnist", {}), ("synthetic", {"cpu_seconds": None})])
def test_short_windows_are_a_note_where_cpu_time_does_not_tell(data: str, cpu: dict[str, None]) -> None:
    """A scheduler shares a core by milliseconds: in such windows a late rank looks like a slow exchange."""
    config = small_config(data=data)
    text = text_of(run(config, 0.005, 0.006, 0.015, rank=cpu))
    assert "the shortest windows took 0.20 s, too short to tell late ranks from a slow exchange" in text
    assert "--steps 200 makes them a second long" in text
    assert "shortest windows" not in text_of(run(config, 0.03, 0.036, 0.09, rank=cpu))


def test_short_windows_are_no_note_where_cpu_time_tells() -> None:
    assert "shortest windows" not in text_of(run(CONFIG, 0.005, 0.006, 0.015))


def test_contention_says_whether_ranks_had_their_cores() -> None:
    assert "got 0.50 of its core, so they share cores" in text_of(
        run(CONFIG, 0.05, 0.09, 0.095, rank={"cpu_seconds": 40 * 0.045})
    )
    assert "so they share memory bandwidth" in text_of(run(CONFIG, 0.05, 0.09, 0.095, rank={"cpu_seconds": 40 * 0.09}))


def test_programs_that_used_the_machine_meanwhile_are_named() -> None:
    """Then it is not the ranks that take each other's cores."""
    records = run(CONFIG, 0.05, 0.09, 0.095, rank={"cpu_seconds": 40 * 0.045})
    busy = [replace(record, machine=MachineLoad(other_cores=1.7)) for record in records]
    text = text_of(busy)
    assert "got 0.50 of its core, because other programs ran there, too" in text
    assert "other programs used 1.7 cores while this was measured, so a part of it may be theirs" in text
    assert "other programs" not in text_of(records)


@pytest.mark.parametrize(
    ("core_wait", "reason"),
    [(2.0, "ready to run 50 % of the time without getting it: another program"), (0.1, "not ready to run meanwhile")],
)
def test_a_slow_rank_is_named_with_its_reason(core_wait: float, reason: str) -> None:
    records = run(CONFIG, 0.05, (0.05, 0.1), 0.105)
    records = [change_rank(record, 0, cpu_seconds=2.0) for record in records]
    slow = {"cpu_seconds": 2.0, "core_wait_seconds": core_wait}
    records = [change_rank(record, 1, **slow) if record.trial.devices == 2 else record for record in records]
    text = text_of(records)
    assert "waiting for rank 1 on localhost, whose steps take 2.0 times as long" in text
    assert reason in text


def test_a_rank_that_lacks_its_core_is_named_where_its_steps_do_not_show_it() -> None:
    records = run(CONFIG, 0.0048, (0.0065, 0.0068), 0.017)
    several = [record for record in records if record.trial.devices == 2]
    text = text_of([*records[:REPEATS], *give_cores(several, (1.0, 0.5), (0.0, 0.5))])
    assert "waiting for rank 1 on localhost, which does not get its core whole. It got 0.50 of its core" in text
    assert "times as long" not in text


def test_a_loss_with_servers_says_that_it_is_not_the_complement_of_the_efficiency() -> None:
    """The efficiency is relative to one worker with its server, the loss to the work alone."""
    config = small_config(strategy="ps", servers=1)
    alone = trials(config, 1, 0.07)
    assert "loses 50 ± " in (text := text_of([*run(config, 0.06, 0.06, 0.12), *alone]))
    assert "against one device without servers: " in text
    without_work = [*trials(config, 2, 0.12), *alone]
    assert "without servers" not in text_of(without_work)


def test_a_point_that_is_faster_than_one_device_is_suspected_in_one_sentence() -> None:
    config = small_config(strategy="ps", servers=1)
    text = text_of([*trials(config, 1, 0.12), *trials(config, 2, 0.1)])
    assert "is 20 % faster than one device. Suspect the one-device point. note:" in text


def test_a_slow_rank_is_named_where_the_work_alone_is_not_known() -> None:
    config = small_config(strategy="ps", servers=1)
    several = [record for record in run(config, 0.05, (0.05, 0.1), 0.12) if record.trial.devices == 2]
    text = text_of([*several, *trials(config, 1, 0.07)])
    assert "not known, because the strategy independent on 1 device was not measured" in text
    assert "is waiting for rank 1 on localhost, whose steps take 2.0 times as long" in text
    assert "without it a step would take 70.0 ms" in text


def test_what_was_not_measured_is_said_with_the_command_that_measures_it() -> None:
    text = text_of([*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)])
    assert "contention, stragglers and communication together" in text
    assert "not measured: the strategy independent on 2 devices" in text
    assert text.endswith(f"This command measures what is missing: {COMMAND}")


def test_one_repeat_is_said() -> None:
    assert "once or twice only" in text_of(run(CONFIG, 0.06, 0.061, 0.1, repeats=1))


def test_an_impossible_part_is_said() -> None:
    assert "which cannot be" in text_of(run(CONFIG, 0.06, 0.05, 0.1))


def test_a_curve_that_scales_well_is_said() -> None:
    assert "nothing stands out" in text_of(run(CONFIG, 0.05, 0.05, 0.0505))


def test_work_that_is_too_small_is_said_with_the_batch_from_which_on_it_scales() -> None:
    text = text_of(run(replace(CONFIG, batch=1), 0.001, 0.001, 0.005))
    assert "the work is too small to scale. A step computes for 1.00 ms" in text
    assert "From a batch of" in text


def test_work_that_is_too_small_is_said_also_where_its_losses_are_not_separated() -> None:
    config = replace(CONFIG, batch=1)
    records = [*trials(config, 1, 0.001), *trials(config, 2, 0.02)]
    text = " ".join(text_of(records).split())
    assert "and contention, stragglers and communication together take 19.0 ms" in text
    assert "even at 10 Gbit/s the exchange of 4.8 MB would take" in text


def test_a_smaller_batch_that_takes_as_long_is_said() -> None:
    further = {"further_batches": (BatchTime(16, 10, 0.6), BatchTime(32, 10, 0.6))}
    text = text_of(run(CONFIG, 0.06, 0.06, 0.1, rank=further))
    assert "A batch of 16 takes as long as one of 64" in text
    assert "try --compile or a larger batch" in text
    compiled = text_of(run(replace(CONFIG, compile=True), 0.06, 0.06, 0.1, rank=further))
    assert "try a larger batch" in compiled


def test_markdown_has_a_table_for_each_point() -> None:
    text = render_markdown(explain_records(run(CONFIG, 0.06, 0.09, 0.1)), COMMAND)
    assert text.count("| part | share |") == 1
    assert "| contention | 30\u202f% |" in text


def test_json_has_the_parts_as_measured_and_the_sentence() -> None:
    document = json.loads(render_json(explain_records(run(CONFIG, 0.06, 0.09, 0.1)), COMMAND))
    (point,) = document["points"]
    assert [part["causes"] for part in point["parts"]] == [["work"], ["contention"], ["stragglers"], ["communication"]]
    assert sum(part["share"] for part in point["parts"]) == pytest.approx(1)
    assert point["parts"][1]["measured"]["low"] < 0.3 < point["parts"][1]["measured"]["high"]
    assert point["verdict"] == "contention"
    assert "is contention" in point["sentence"]
    assert point["config"]["strategy"] == "allreduce"


def test_a_share_does_not_reach_beyond_all() -> None:
    assert format_share(Interval(0.89, 0.68, 1.02)).replace("\u202f", " ") == "89 (68–100) %"
    assert format_share(Interval(0.31, 0.28, 0.34)).replace("\u202f", " ") == "31 ± 3 %"
