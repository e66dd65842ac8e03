"""The device counts of a ladder."""

from __future__ import annotations

import pytest

from trainscale.spec.plan import double_up_to


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
        (128, (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)
def test_a_ladder_doubles_and_ends_at_the_maximum_itself(most: int, counts: tuple[int, ...]) -> None:
    assert double_up_to(most) == counts
