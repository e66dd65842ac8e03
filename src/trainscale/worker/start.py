"""Runs a role: ``python .../worker/start.py ROLE``. Works wherever this folder was copied to.

The folder is made importable as ``trainscale.worker`` without putting its neighbours on the
module path: those may belong to another environment than the interpreter that runs this.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import types

START = os.path.abspath(__file__)
_PR_SET_PDEATHSIG = 1

ROLES = {
    "rank": "training.rank",
    "keeper": "keeper.keeper",
    "look": "inspection.host",
    "links": "inspection.links",
    "probe": "inspection.probe",
    "parity": "inspection.parity",
    "expectation": "witness.expectation",
    "program": "keeper.program",
    "loader": "data.loader",
}


def start(arguments: list[str]) -> int:
    here = os.path.dirname(START)
    # Python puts the script's own folder first; our `data` and `models` must not hide a user's.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    if "trainscale" not in sys.modules:
        package = types.ModuleType("trainscale")
        package.__path__ = [os.path.dirname(here)]
        sys.modules["trainscale"] = package
    if len(arguments) < 1 or arguments[0] not in ROLES:
        print(f"usage: start.py {'|'.join(ROLES)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"trainscale.worker.{ROLES[arguments[0]]}")
    return int(module.main(arguments[1:]))


def end_with_parent(number: int = signal.SIGKILL, parent: int = 0) -> None:
    """Have Linux send a signal when the parent ends, or now if ``parent`` has ended already."""
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    except (OSError, AttributeError):
        return
    ancestor = os.getppid()
    while parent and ancestor != parent and ancestor > 1:  # a wrapper script may stand between
        try:
            with open(f"/proc/{ancestor}/stat") as file:
                ancestor = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return  # this cannot be known here
    if parent and ancestor != parent:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
