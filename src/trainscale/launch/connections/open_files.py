"""The limit of open files of this process, which many hosts exceed."""

from __future__ import annotations

import resource

_FILES_PER_HOST = 4  # the pipes of an ssh, and one to spare
_OTHERS = 256  # logs, the journal, sockets


def allow_open_files(host_count: int) -> None:
    """Raise the limit, as far as the system allows, if connections to this many hosts need it. Programs that are
    started here inherit the limit, so it stays as it is where it suffices.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_PER_HOST * host_count + _OTHERS
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
