"""GPUs whose clocks were limited: as a note, and as the reason of a slow rank."""

from __future__ import annotations

from planted import change_rank, run, small_config, trials

from trainscale.questions.explain.explain import explain_records
from trainscale.questions.explain.ranks import SLOW_CLOCK, LimitedGpu, find_limited_gpus, find_slow_ranks
from trainscale.questions.explain.text import render_text
from trainscale.record.trial import GpuState, TrialRecord

CONFIG = small_config(device="cuda")


def gpu(mhz: float, share: float = 0.0, **reasons: float) -> GpuState:
    by = {name.replace("_", " "): value for name, value in reasons.items()}
    return GpuState(8, sm_mhz_mean=mhz, sm_mhz_min=int(mhz), sm_mhz_limit=1980, limited_share=share, limited_by=by)


CAPPED = gpu(1200.0, 0.6, temperature=0.1, power_cap=0.6)
FREE = gpu(1950.0, 0.05, power_cap=0.05)


def with_gpus(records: list[TrialRecord], first: GpuState | None, second: GpuState | None) -> list[TrialRecord]:
    return [change_rank(change_rank(record, 0, gpu=first), 1, gpu=second) for record in records]


def text_of(records: list[TrialRecord]) -> str:
    return " ".join(render_text(explain_records(records), "").replace("\u202f", " ").split())


def test_a_gpu_that_was_limited_is_named_with_its_clock_and_the_reasons() -> None:
    (limited,) = find_limited_gpus(with_gpus(trials(CONFIG, 2, 0.05), FREE, CAPPED))
    assert limited == LimitedGpu(1, "localhost", 1200.0, 1980, 0.6, ("power cap", "temperature"))


def test_limits_of_moments_and_settings_that_leave_the_clock_high_are_not_named() -> None:
    short = gpu(1500.0, 0.05, power_cap=0.05)
    high = gpu(1960.0, 1.0, application_clocks=1.0)
    assert find_limited_gpus(with_gpus(trials(CONFIG, 2, 0.05), short, high)) == ()


def test_without_samples_there_is_nothing_to_name() -> None:
    assert find_limited_gpus(trials(CONFIG, 2, 0.05)) == ()
    assert "GPU" not in text_of(run(CONFIG, 0.05, 0.05, 0.1))


def test_a_note_of_the_explanation_names_the_gpu() -> None:
    text = text_of(with_gpus(run(CONFIG, 0.05, 0.05, 0.1), FREE, CAPPED))
    assert (
        "note: the GPU of rank 1 on localhost ran at 1,200 MHz of 1,980 (power cap, temperature in 60 % of the window)"
        in text
    )
    assert "of rank 0" not in text


def test_many_limited_gpus_are_one_note() -> None:
    records = []
    for record in run(CONFIG, 0.05, 0.05, 0.1, devices=8):
        for rank in range(8):
            record = change_rank(record, rank, gpu=gpu(1200.0 + 10 * rank, 0.6, power_cap=0.6))
        records.append(record)
    assert (
        "the GPUs of 8 of 8 ranks ran below their highest clock of 1,980 MHz, from 1,200 MHz (rank 0 on localhost) to"
        " 1,270 MHz; limited by power cap"
    ) in text_of(records)


def test_the_clock_of_its_gpu_is_the_reason_of_a_slow_rank() -> None:
    records = with_gpus(run(CONFIG, 0.05, (0.05, 0.08), 0.085), FREE, CAPPED)
    (slow,) = find_slow_ranks([record for record in records if len(record.ranks) == 2][:5])
    assert (slow.reason, slow.gpu_mhz, slow.others_gpu_mhz) == (SLOW_CLOCK, 1200.0, 1950.0)
    assert (
        "Its GPU ran at 1,200 MHz of 1,980 (power cap, temperature in 60 % of the window), those of the others at"
        " 1,950 MHz"
    ) in text_of(records)


def test_an_equal_clock_is_not_the_reason() -> None:
    text = text_of(with_gpus(run(CONFIG, 0.05, (0.05, 0.08), 0.085), FREE, FREE))
    assert "Its GPU ran at 1,950 MHz and those of the others at 1,950 MHz, so it is not the clock" in text


def test_contention_says_whether_the_clocks_of_gpus_that_train_together_are_lower() -> None:
    slower = [
        change_rank(change_rank(record, 0, gpu=FREE if len(record.ranks) == 1 else CAPPED), 1, gpu=CAPPED)
        for record in run(CONFIG, 0.05, 0.09, 0.095)
    ]
    text = text_of(slower)
    assert "is contention" in text
    assert "Their GPUs ran at 1,200 MHz on average, one alone at 1,950 MHz; without it" in text
    equal = with_gpus(run(CONFIG, 0.05, 0.09, 0.095), FREE, FREE)
    assert "one alone at 1,950 MHz, so it is not the clock; without it" in text_of(equal)
