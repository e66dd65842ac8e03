"""What the first steps of a trial must have done to its weights, computed without any framework.

`reference.py` is a network in numpy, `expectation.py` a process that takes the steps of all ranks with it, and
`sketch.py` makes a few numbers of the change of many weights, here and in the ranks.
"""

from __future__ import annotations

STEPS = 2  # the first starts from the initial weights; the second shows momentum

# How the ranks of a strategy exchange what they learn.
SYNCHRONOUS, INDEPENDENT, ASYNCHRONOUS = "synchronous", "independent", "asynchronous"


def exchange_of(strategy: str) -> str:
    return {"independent": INDEPENDENT, "ps-async": ASYNCHRONOUS}.get(strategy, SYNCHRONOUS)


def steps_of(strategy: str) -> int:
    """Return the steps of each rank. With asynchronous servers the ranks take one step each, in turn: a step of every
    rank is an update, so momentum shows in the first round.
    """
    return 1 if exchange_of(strategy) == ASYNCHRONOUS else STEPS
