"""Finds the line that explains an error of TensorFlow, behind headings, nodes and tracebacks."""

from __future__ import annotations

import re

_UNINFORMATIVE = re.compile(
    r"\s*$|=+$|\s*\^|  File |Traceback|Graph execution error|Detected at node|([A-Z_]+: )?From /job:\S*$|\s*\(\d+\)"
    r"|\d+ root error"
)


def find_informative_line(text: str) -> str:
    lines = text.splitlines() or [""]
    return next((line.strip() for line in lines if not _UNINFORMATIVE.match(line)), lines[0])
