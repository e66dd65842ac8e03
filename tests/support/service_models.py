"""Keeps the descriptions of AWS's services in memory, which boto3 otherwise reads again for each of its sessions."""

from __future__ import annotations

import functools

from botocore.loaders import JSONFileLoader

from trainscale.cluster.aws.connect import connect

_load_file = JSONFileLoader.load_file


@functools.cache
def _load_once(path: str) -> object:
    return _load_file(JSONFileLoader(), path)


def share_service_models() -> None:
    """Let all sessions of this process, and of processes that are forked from it, read each description once."""
    JSONFileLoader.load_file = lambda self, path: _load_once(path)
    connect("us-west-2")
