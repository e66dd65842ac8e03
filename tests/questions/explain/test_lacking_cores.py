"""Ranks that do not get their cores whole, with the step times and CPU shares of real trials on two cores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from planted import give_cores, small_config, trials

from trainscale.questions.explain import explain
from trainscale.questions.explain.causes import COMMUNICATION, CONTENTION, SERVERS, STRAGGLERS
from trainscale.questions.explain.explain import PointExplanation, explain_records
from trainscale.questions.explain.ranks import ANOTHER_PROGRAM, LIMIT
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config
from trainscale.spec.further import remove_exchange

CONFIG = small_config()
Shares = Sequence[float]


def measure(
    work: float,
    apart: Sequence[float],
    apart_cores: tuple[Shares, Shares],
    step: float,
    cores: tuple[Shares, Shares],
    config: Config = CONFIG,
) -> list[TrialRecord]:
    """One device and several apart and together; a pair is the shares of their cores and of the waits for them."""
    independent = remove_exchange(config)
    return [
        *trials(independent, 1, work),
        *give_cores(trials(independent, len(apart), apart), *apart_cores),
        *give_cores(trials(config, len(apart), step), *cores),
    ]


def only(records: list[TrialRecord]) -> PointExplanation:
    (point,) = explain_records(records)
    return point


def shares(point: PointExplanation) -> dict[str, float]:
    return {" and ".join(part.causes): part.share for part in point.parts}


@pytest.mark.parametrize(("wait", "reason"), [(0.5, ANOTHER_PROGRAM), (0.03, LIMIT)])
def test_a_rank_with_half_a_core_is_named_though_its_steps_apart_are_not_longer(wait: float, reason: str) -> None:
    """In windows of 0.2 s, ranks that exchange nothing took 6.5 and 6.8 ms a step, and 17 ms together."""
    lacking = ((1.0, 0.5), (0.0, wait))
    point = only(measure(0.0048, (0.0065, 0.0068), lacking, 0.017, ((0.43, 0.48), (0.14, wait))))
    assert point.verdict == explain.SLOW_RANK
    (slow,) = point.slow_ranks
    assert (slow.rank, slow.reason, slow.has_longer_steps) == (1, reason, False)
    # The CPU time of a step, 0.48 of 17 ms, takes twice as long on half a core: 8.2 ms longer.
    assert shares(point)[STRAGGLERS] == pytest.approx(0.48, abs=0.005)
    assert shares(point)[COMMUNICATION] == pytest.approx(1 - 0.48 - 6.5 / 17, abs=0.01)


def test_the_interval_of_a_missing_core_is_that_of_cpu_time_and_not_of_varying_steps() -> None:
    """Without exchange, the steps of a rank that was stopped half of the time took 15 or 22 ms."""
    records = measure(0.008, (0.0077, 0.0225), ((1.0, 0.55), (0.0, 0.1)), 0.0257, ((0.5, 0.55), (0.0, 0.1)))
    slower = [record for record in records if record.trial.devices == 2 and record.trial.repeat != 2]
    other = measure(0.008, (0.0077, 0.0149), ((1.0, 0.55), (0.0, 0.1)), 0.0257, ((0.5, 0.55), (0.0, 0.1)))
    faster = [record for record in other if record.trial.devices == 2 and record.trial.repeat == 2]
    point = only([*records[:5], *slower, *faster])
    waiting = next(part for part in point.parts if part.causes == (STRAGGLERS,))
    assert waiting.measured.low is not None
    assert waiting.measured.low > 0.3
    assert point.verdict == explain.SLOW_RANK


def test_ranks_that_share_a_core_contend_also_in_the_exchange() -> None:
    """On one core two ranks took 12.2 and 7.9 ms apart in every repeat, but neither core is slow."""
    both = ((0.5, 0.5), (0.5, 0.5))
    point = only(measure(0.0049, (0.0122, 0.0079), both, 0.0159, both))
    assert point.verdict == CONTENTION
    assert shares(point)[CONTENTION] == pytest.approx(0.5, abs=0.005)
    assert [slow.reason for slow in point.slow_ranks] == [None]


def test_a_rank_with_half_a_core_behind_a_slow_link_waits_for_the_link() -> None:
    lacking = ((1.0, 0.5), (0.0, 0.5))
    point = only(measure(0.03, (0.03, 0.06), lacking, 0.58, ((0.06, 0.06), (0.0, 0.06))))
    assert point.verdict == COMMUNICATION
    assert shares(point)[STRAGGLERS] == pytest.approx(0.03 / 0.58, abs=0.005)


def test_workers_that_share_cores_but_wait_for_their_server_do_not_contend_more() -> None:
    config = small_config(strategy="ps", servers=1)
    apart, together = ((0.5,) * 4, (0.5,) * 4), ((0.23,) * 4, (0.2,) * 4)
    records = measure(0.006, (0.0135,) * 4, apart, 0.052, together, config)
    point = only([*records, *trials(config, 1, 0.021)])
    assert point.verdict == SERVERS
    assert shares(point)[CONTENTION] == pytest.approx(0.0075 / 0.052, abs=0.005)


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"data": "mnist"}])
def test_little_cpu_time_is_no_missing_core_where_ranks_wait_for_gpus_or_samples(changes: dict[str, str]) -> None:
    lacking = ((1.0, 0.5), (0.0, 0.0))
    point = only(measure(0.05, (0.05, 0.05), lacking, 0.1, lacking, small_config(**changes)))
    assert point.slow_ranks == ()
    assert shares(point)[STRAGGLERS] == 0


def test_ranks_whose_cpu_time_was_not_counted_are_judged_by_their_steps() -> None:
    records = [
        *trials(remove_exchange(CONFIG), 1, 0.05, rank={"cpu_seconds": None}),
        *trials(remove_exchange(CONFIG), 2, (0.05, 0.1), rank={"cpu_seconds": None}),
        *trials(CONFIG, 2, 0.105, rank={"cpu_seconds": None}),
    ]
    point = only(records)
    assert point.verdict == explain.SLOW_RANK
    assert shares(point)[STRAGGLERS] == pytest.approx(0.05 / 0.105, abs=0.005)


def test_without_one_device_the_other_ranks_show_what_a_whole_core_is() -> None:
    records = measure(0.05, (0.05, 0.06), ((1.0, 0.5), (0.0, 0.5)), 0.12, ((0.5, 0.5), (0.1, 0.5)))
    point = only([record for record in records if record.trial.devices == 2])
    assert shares(point)[STRAGGLERS] == pytest.approx(0.5, abs=0.005)
