"""Ends a process together with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = signal.SIGKILL, parent: int = 0) -> None:
    """Have Linux send this process a signal when its parent ends, even by kill -9. Other systems cannot do that.

    ``parent`` is the expected parent, or 0. It may have ended before this call; then the signal is sent now.
    """
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
