"""What the first steps of a trial must have done to its weights, computed without any framework.

`reference.py` is a network in numpy, `expectation.py` a process that takes the steps of all ranks with it, and
`sketch.py` makes a few numbers of the change of many weights, here and in the ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config

STEPS = 2  # the first starts from the initial weights; the second shows momentum


def count_first_steps(config: Config) -> int:
    """Return how many steps of every rank are compared.

    It is one where ranks take turns, and where epochs are trained, because there only the first step is not timed.
    """
    return 1 if config.strategy == "ps-async" or config.trains_epochs else STEPS
