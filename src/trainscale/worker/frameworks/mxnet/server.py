"""MXNet's own parameter server or scheduler. In those roles the import of MXNet is the server: it ends when all workers
have left, and would end the interpreter with it.
"""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Any

from .environment import restore_numpy_names


def serve() -> dict[str, Any]:
    """Until the workers are done; what a server held and how often it updated that. A scheduler holds nothing."""
    restore_numpy_names()
    try:
        import mxnet  # noqa: F401
    except SystemExit as end:
        return _served(end.__traceback__)
    except Exception as error:
        # MXNet's own error type cannot be named: its import has just failed.
        if "bind failed" in str(error):
            raise OSError(errno.EADDRINUSE, "Address already in use: the port of MXNet's scheduler") from error
        raise
    raise RuntimeError("MXNet was imported as by a worker, not as a server or scheduler")


def _served(trace: TracebackType | None) -> dict[str, Any]:
    """The server's store is a local variable of the loop that has just ended. It updates weights in Python, with one
    momentum for each array that it holds; without momentum nobody can tell how much it held.
    """
    while trace is not None:
        updater = getattr(trace.tb_frame.f_locals.get("kvstore"), "_updater", None)
        if updater is not None:
            momenta = [momentum for momentum in updater.states.values() if momentum is not None]
            held = {"bytes": sum(momentum.size * momentum.dtype(0).itemsize for momentum in momenta)} if momenta else {}
            return {"updates": updater.optimizer.num_update, **held}
        trace = trace.tb_next
    return {}
