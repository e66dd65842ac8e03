"""What frameworks are told of the network by variables: on which interface to speak, and to call their peers directly.

Addresses and ports are in the job; each adapter hands those to its framework itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..job import Job

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # that gRPC heeds


def network_variables(job: Job) -> dict[str, str]:
    """For gloo, NCCL and gRPC, whichever the framework uses. They are read when a process joins the others."""
    variables = {}
    if any(os.environ.get(name) for name in _PROXIES):
        # A proxy is for the world outside. gRPC would ask it for the way to every peer, and wait for ever.
        variables["no_grpc_proxy"] = ",".join(dict.fromkeys(job.addresses))
    if job.interface:
        variables["GLOO_SOCKET_IFNAME"] = job.interface
        variables["NCCL_SOCKET_IFNAME"] = f"={job.interface}"  # this one, not all whose names begin so
    return variables
