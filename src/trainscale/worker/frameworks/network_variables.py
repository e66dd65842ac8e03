"""Environment variables that make frameworks use an interface, and not to use a proxy.

Addresses and ports are in the job; each adapter passes those to its framework itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..job import Job

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # that gRPC obeys


def make_network_variables(job: Job) -> dict[str, str]:
    """Return variables for gloo, NCCL and gRPC, which read them when a process joins the others."""
    variables = {}
    if any(os.environ.get(name) for name in _PROXIES):
        # A proxy is for the internet. Through it gRPC would never reach a peer, and wait forever.
        variables["no_grpc_proxy"] = ",".join(dict.fromkeys(job.addresses))
    if job.interface:
        variables["GLOO_SOCKET_IFNAME"] = job.interface
        variables["NCCL_SOCKET_IFNAME"] = f"={job.interface}"  # exactly this one, not all with this prefix
    return variables
