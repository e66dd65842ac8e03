"""What the processes share that compute numbers for the controller: they read a job and send arrays. Nothing is timed.

A JSON line says what was counted and how many values each array has; the values follow, eight bytes each; all of it is
cut into pieces. The controller reads them without numpy.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from .. import plugins
from ..emitter import Emitter, claim_stdout
from ..events import NumbersPiece, RankError
from ..job import Job
from ..pinning import die_with_parent
from ..training.rank import classify

_PIECE = 2700  # bytes in an event line: 3,600 as text


class CannotCompute(Exception):
    """There is a reason why no numbers are computed, which is the message."""


def run(compute: Callable[[Job, Emitter], None]) -> int:
    """Read the job from standard input, and let ``compute`` send its events. An error is an event too."""
    die_with_parent()
    job = Job.from_json(sys.stdin.readline())
    emit = Emitter(job.rank, claim_stdout())
    try:
        compute(job, emit)
    except CannotCompute as error:
        emit(RankError("refused", str(error)))
        os._exit(1)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        emit(RankError(classify(error), f"{type(error).__name__}: {error}"[:400]))
        os._exit(1)
    return 0


def use_plugins(job: Job) -> None:
    """Make the networks and frameworks of third parties known. They may import numpy, so cores are chosen before."""
    sys.path[:0] = job.python_path
    plugins.use(job.plugins)


def send_arrays(emit: Emitter, arrays: Mapping[str, Any], counts: Mapping[str, Any]) -> None:
    sizes = {name: values.size for name, values in arrays.items()}
    head = json.dumps({**counts, "arrays": sizes}).encode() + b"\n"
    data = head + b"".join(values.astype("<f8").tobytes() for values in arrays.values())
    for start in range(0, len(data), _PIECE):
        emit(NumbersPiece(base64.b64encode(data[start : start + _PIECE]).decode()))
