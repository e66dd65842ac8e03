"""What the first steps of a trial must have done to its weights, computed without any framework.

`reference.py` is a network in numpy, `expectation.py` a process that takes the steps of all ranks with it, and
`sketch.py` makes a few numbers of the change of many weights, here and in the ranks.
"""

STEPS = 2  # the first starts from the initial weights; the second shows momentum
