"""Prepares the hosts of a user's program: their facts, and the folder in which the program runs."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ...cluster.devices import UsableHost
from ...cluster.hosts import Host
from ...errors import InputError, TrainscaleError
from ...worker.events import FolderState
from ...worker.inspection.host_facts import HostFacts, HostFactsRequest
from ...worker.keeper.program import FolderRequest
from ..connections.connected_hosts import ConnectOptions
from ..connections.keeper import HostError, select_causes
from ..inspection.host_facts import decode_facts, make_usable_host
from ..inspection.host_tasks import make_role_task, run_host_tasks
from ..launchers.base import Launcher

_SECONDS = 120.0
_NOT_COPIED = (".git", "__pycache__", ".venv")
_MOST_BYTES = 64 * 2**20  # of a folder to copy, compressed: both sides hold it in memory


def prepare_hosts(
    launcher: Launcher, hosts: Sequence[Host], folder: str, archive: str | None = None
) -> list[UsableHost]:
    """Return the usable hosts, once all of them have the folder. ``archive`` is the folder's content to copy."""
    tasks = {
        host.name: [
            make_role_task(host.name, 0, "look", HostFactsRequest(folder=launcher.access.remote_dir)),
            make_role_task(host.name, 1, "program", FolderRequest(folder, archive)),
        ]
        for host in hosts
    }
    facts: dict[str, HostFacts] = {}
    problems: list[str] = []
    with launcher.connect(list(tasks), ConnectOptions(_SECONDS, tolerates_errors=True)) as connected:
        answers = run_host_tasks(connected, tasks, _SECONDS)
        errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
        for name, answer in answers.items():
            if isinstance(answer, HostError):
                continue
            host_facts = decode_facts(answer[0], connected.find_connection(name))
            state = answer[1].find_last(FolderState)
            if isinstance(host_facts, HostError):
                errors.append(host_facts)
            elif state is None:
                errors.append(HostError(name, answer[1].last_line or "does not answer"))
            else:
                facts[name] = host_facts
                problems += [f"{name}: folder {folder} {state.problem}"] if state.problem else []
    if errors:
        raise TrainscaleError("\n".join(str(error) for error in select_causes(errors)))
    if problems:
        hint = "name a folder that every host has by --folder, or copy this one by --copy DIR"
        raise InputError("\n".join([*problems, f"  {hint}"]))
    return [make_usable_host(host, facts[host.name], launcher.access) for host in hosts]


def pack_folder(folder: Path) -> str:
    """Return the content of a folder as text that fits into one line."""

    def filter_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(entry.name).name in _NOT_COPIED else entry

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=filter_entry)
            if raw.tell() > _MOST_BYTES:
                raise InputError(
                    f"copy: {folder} is larger than {_MOST_BYTES // 2**20} MiB, compressed; keep data elsewhere,"
                    " or share the folder and name it by --folder"
                )
    return base64.b64encode(raw.getvalue()).decode()
