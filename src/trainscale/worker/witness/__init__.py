"""What the first steps of a trial must have done to its weights, computed without any framework.

`reference.py` is a network in numpy, `expectation.py` a process that takes the steps of all ranks with it, and
`sketch.py` makes a few numbers of the change of many weights, here and in the ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config

STEPS = 2  # the first starts from the initial weights; the second shows momentum

# How the ranks of a strategy exchange what they learn.
SYNCHRONOUS, INDEPENDENT, ASYNCHRONOUS = "synchronous", "independent", "asynchronous"


def find_exchange(strategy: str) -> str:
    return {"independent": INDEPENDENT, "ps-async": ASYNCHRONOUS}.get(strategy, SYNCHRONOUS)


def count_first_steps(config: Config) -> int:
    """Return how many steps of each rank are compared.

    It is one with asynchronous servers, where ranks take turns: a step of every rank is an update, so momentum shows in
    the first round. It is one where epochs are trained, too, because only their first step is not timed.
    """
    return 1 if find_exchange(config.strategy) == ASYNCHRONOUS or config.trains_epochs else STEPS
