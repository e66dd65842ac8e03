"""TensorFlow's errors begin with headings: the line that says something is the one that is reported."""

import pytest

from trainscale.worker.frameworks.tensorflow import find_informative_line

MESSAGE = "ValueError: the network of rank 1 does not like this image"


@pytest.mark.parametrize(
    "heading",
    [
        "",
        "From /job:worker/replica:0/task:1:\n",
        "INVALID_ARGUMENT: From /job:worker/replica:0/task:1:\n",
        "Graph execution error:\n\nDetected at node 'x' defined at (most recent call last):\n  File a.py\n",
        "2 root error(s) found.\n  (0) INVALID_ARGUMENT: first\n",
    ],
)
def test_headings_are_passed_over(heading: str) -> None:
    assert find_informative_line(f"{heading}{MESSAGE}\nTraceback (most recent call last):\n") == MESSAGE


def test_an_error_of_headings_alone_gives_its_first() -> None:
    assert find_informative_line("From /job:worker/task:1:\n\n") == "From /job:worker/task:1:"
    assert find_informative_line("") == ""
