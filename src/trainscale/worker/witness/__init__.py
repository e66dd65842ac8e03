"""What the first steps of a trial must have done to its weights, computed without any framework.

`reference.py` is a network in numpy, `expectation.py` a process that takes the steps of all
ranks with it, and `sketch.py` makes a few numbers of the change of many weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config

STEPS = 2  # the first starts from the initial weights; the second shows momentum


def count_first_steps(config: Config) -> int:
    """Return how many steps of each rank are compared.

    One behind asynchronous servers, where the step of every rank is an update, so that momentum
    shows in the first round; and one of epochs, because only their first step is not timed.
    """
    return 1 if config.strategy == "ps-async" or config.trains_epochs else STEPS
