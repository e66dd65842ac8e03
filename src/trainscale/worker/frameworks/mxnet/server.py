"""MXNet's own parameter server or scheduler. In those roles the import of MXNet is the server. It ends when all workers
have left, and would end the interpreter with it.
"""

from __future__ import annotations

import errno
from types import TracebackType

from ...events import ServerResult
from .environment import restore_numpy_names


def serve() -> ServerResult:
    """Serve until the workers are done. A scheduler counts nothing."""
    restore_numpy_names()
    try:
        import mxnet  # noqa: F401
    except SystemExit as end:
        return _read_statistics(end.__traceback__)
    except Exception as error:
        # MXNet's own error type cannot be named: its import has just failed.
        if "bind failed" in str(error):
            raise OSError(errno.EADDRINUSE, "Address already in use: the port of MXNet's scheduler") from error
        raise
    raise RuntimeError("MXNet was imported as by a worker, not as a server or scheduler")


def _read_statistics(trace: TracebackType | None) -> ServerResult:
    """Read the server's store, a local variable of the loop that has just ended.

    It updates weights in Python, with a momentum for each array that it holds. Without momentum its size is unknown.
    """
    while trace is not None:
        updater = getattr(trace.tb_frame.f_locals.get("kvstore"), "_updater", None)
        if updater is not None:
            momenta = [momentum for momentum in updater.states.values() if momentum is not None]
            size = sum(momentum.size * momentum.dtype(0).itemsize for momentum in momenta)
            return ServerResult(updates=updater.optimizer.num_update, bytes=size if momenta else None)
        trace = trace.tb_next
    return ServerResult()
