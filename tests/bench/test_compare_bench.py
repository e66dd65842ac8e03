"""`bench/compare.py` computes what the command computes and counts what is wrong; a small part of it is repeated."""

import math

import numpy as np
import pytest

import compare as bench
from trainscale.analyse.statistics import make_estimate, mean_interval


@pytest.mark.parametrize("is_sequential", [False, True])
def test_the_estimates_are_those_of_the_command(is_sequential: bool) -> None:
    speeds = bench.DISTRIBUTIONS["outliers"](np.random.default_rng(3), 0.01, (3, 2, 2, 12))
    means, errors, repeats = bench._estimates(speeds, is_sequential)
    for index in np.ndindex(means.shape):
        values = speeds[index][: repeats[index]].tolist()
        expected = make_estimate(mean_interval(values, is_sequential), len(values), is_sequential)
        assert (means[index], errors[index]) == pytest.approx((expected.mean, expected.error))
        if is_sequential and len(values) < 12:
            assert (mean_interval(values, True).relative or 1.0) <= 0.01
            assert len(values) == 4 or (mean_interval(values[:-1], True).relative or 0.0) > 0.01
    assert len(set(repeats.ravel())) > 1 if is_sequential else (repeats == 12).all()


@pytest.mark.parametrize(
    ("factor", "planted", "mistakes"),
    [
        (1.0, 0.0, set()),
        (1.0, 0.01, {"miss of the verdict"}),
        (1.0, 0.03, {"miss of the gate", "miss of the verdict"}),
        (0.95, 0.05, set()),
        (0.95, 0.0, {"alarm of the gate", "alarm of the verdict"}),
        (0.99, 0.0, {"alarm of the verdict"}),
        (1.05, 0.0, {"praise"}),
        (1.05, 0.03, {"praise", "miss of the gate"}),
    ],
)
def test_what_is_not_so_is_a_mistake(factor: float, planted: float, mistakes: set[str]) -> None:
    values = [0.999, 1.0, 1.0, 1.001]
    a, b = (bench.make_side([bench.estimate([scale * value for value in values])]) for scale in (1.0, factor))
    assert set(bench.mistakes(bench.compare(a, b), [planted])) == mistakes


@pytest.mark.parametrize("cv", [0.003, 0.02])
@pytest.mark.parametrize("repeats", [3, 5, None])
@pytest.mark.parametrize("planted", [0.0, 0.03])
def test_mistakes_are_rare(cv: float, repeats: int | None, planted: float) -> None:
    comparisons = 500
    count = bench.simulate(bench.Case("slow tail", cv, repeats, 4, planted, False), comparisons, seed=2)
    # Four standard errors above the promise: one of the 60 shares exceeds it by chance once in 500 seeds.
    allowed = bench.ALLOWED + 4 * math.sqrt(bench.ALLOWED * (1 - bench.ALLOWED) / comparisons)
    assert {name: share for name in bench.MISTAKES if (share := count.share(name)) > allowed} == {}
