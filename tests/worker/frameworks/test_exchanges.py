"""What a trial with --explain measures after its window, in real processes of every framework."""

from pathlib import Path

import pytest
import trials

from trainscale.worker.training.loop import EXCHANGE_SIZES

pytestmark = pytest.mark.framework

SLOW = pytest.mark.slow
EXCHANGING = [
    ("torch", "allreduce"),
    ("torch", "ps:2"),
    pytest.param("torch", "sharded", marks=SLOW),
    ("tensorflow", "allreduce"),
    ("jax", "allreduce"),
    pytest.param("jax", "sharded", marks=SLOW),
    pytest.param("keras-torch", "allreduce", marks=SLOW),
    pytest.param("keras-tensorflow", "allreduce", marks=SLOW),
    pytest.param("keras-jax", "allreduce", marks=SLOW),
    ("mxnet", "ps:1"),
]


@pytest.mark.parametrize(("framework", "strategy"), EXCHANGING)
def test_every_rank_times_exchanges_alone(tmp_path: Path, framework: str, strategy: str) -> None:
    settings = {"models": ("plain-graph:8",), "strategies": (strategy,), "explain": True}
    record = trials.run_trial(tmp_path, forks=True, devices=2, framework=framework, **settings).record
    assert record.ok, record.failure
    assert record.parameters
    gradients = 4 * record.parameters
    sizes = [*(size for size in EXCHANGE_SIZES if size < gradients), gradients]
    # Servers of torch take all parameters at once, and nothing smaller.
    expected = sizes[-1:] if (framework, strategy) == ("torch", "ps:2") else sizes
    for rank in record.ranks:
        assert [entry.bytes for entry in rank.exchanges] == expected
        assert all(entry.seconds > 0 and entry.count > 0 for entry in rank.exchanges)
        assert rank.further_batches == ()


def test_one_device_times_other_batches(tmp_path: Path) -> None:
    record = trials.run_trial(tmp_path, forks=True, strategies=("independent",), explain=True).record
    (rank,) = record.ranks
    assert [entry.batch for entry in rank.further_batches] == [4, 2]
    assert rank.exchanges == ()


@pytest.mark.parametrize("strategy", ["allreduce", "independent"])
def test_without_the_setting_nothing_is_added(tmp_path: Path, strategy: str) -> None:
    record = trials.run_trial(tmp_path, forks=True, devices=2, strategies=(strategy,)).record
    assert all(rank.exchanges == () and rank.further_batches == () for rank in record.ranks)
