"""Keeps the descriptions of AWS's services in memory, which boto3 otherwise reads again for each of its sessions."""

from __future__ import annotations

import functools

from botocore.loaders import JSONFileLoader, Loader

from trainscale.cluster.aws import connect

_load_file = JSONFileLoader.load_file
_list_services = Loader.list_available_services


@functools.cache
def _load_once(path: str) -> object:
    return _load_file(JSONFileLoader(), path)


@functools.cache
def _list_services_once(search_paths: tuple[str, ...], type_name: str) -> list[str]:
    return list(_list_services(Loader(list(search_paths)), type_name))


def share_service_models() -> None:
    """Let all sessions of this process, and of processes that are forked from it, read each description once."""
    JSONFileLoader.load_file = lambda self, path: _load_once(path)
    Loader.list_available_services = lambda self, type_name: _list_services_once(tuple(self.search_paths), type_name)
    connect("us-west-2")
