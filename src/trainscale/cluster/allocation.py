"""What a batch system gave to this process, read from its variables and by its programs: hosts, GPUs, and the settings
of the older Slurm scripts.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..worker.frameworks.catalog import WITH_SERVERS
from .hosts import Host

_SECONDS = 30
_GPU = re.compile(r"(?:^|,)gpu(?::[^:(,]+)?:(\d+)")  # «gpu:2(IDX:0-1)», «gpu:a100:4(IDX:0-3)»


@dataclass(frozen=True)
class Allocation:
    launcher: str
    hosts: tuple[Host, ...]
    words: str


def find_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """None outside of any."""
    if inside_slurm(environment):
        job, nodes = environment["SLURM_JOB_ID"], environment["SLURM_JOB_NODELIST"]
        hosts = tuple(Host(name) for name in expand_node_list(nodes))
        return Allocation("slurm", hosts, f"Slurm job {job}")
    if environment.get("PBS_NODEFILE"):
        path = Path(environment["PBS_NODEFILE"])
        try:
            names = dict.fromkeys(path.read_text().split())  # one line a slot
        except OSError as error:
            raise InputError(f"PBS_NODEFILE {path}: {error.strerror}") from None
        return Allocation("mpi", tuple(Host(name) for name in names), f"PBS job {environment.get('PBS_JOBID', '')}")
    return None


def inside_slurm(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"))


def expand_node_list(nodes: str) -> list[str]:
    """«node[1-3,7],login» → names, by Slurm's own program."""
    what = f"read the nodes of this job, {nodes}"
    names = _scontrol(["show", "hostnames", nodes], what).split()
    if not names:
        raise InputError(f"scontrol cannot {what}: it names none")
    return names


def gpus_per_host(environment: Mapping[str, str]) -> int:
    """How many GPUs this job has on every one of its hosts. None of the variables says it for all ways of asking."""
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return 0
    return parse_gpus_per_host(_scontrol(["show", "job", "--details", "--oneliner", job], f"show job {job}"))


def parse_gpus_per_host(shown: str) -> int:
    """From «… Nodes=node[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:2(IDX:0-1) Nodes=…», one such group for hosts alike."""
    groups = re.findall(r" GRES=(\S*)", shown)
    return min((sum(map(int, _GPU.findall(group))) for group in groups), default=0)


def _scontrol(words: list[str], what: str) -> str:
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, check=False, timeout=_SECONDS)
    except FileNotFoundError:
        raise InputError(f"inside a Slurm job, but there is no scontrol on the PATH to {what}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"scontrol cannot {what}: no answer within {_SECONDS} s") from None
    if done.returncode:
        raise InputError(f"scontrol cannot {what}: {done.stderr.strip() or 'no message'}")
    return done.stdout


# Variables of the older Slurm scripts, and the settings that they mean. Their names are kept; so are their meanings.
_OLDER = {
    "TF_NUM_PS": "servers",
    "TF_NUM_WORKERS": "max_devices",
    "TF_PS_PER_NODE": "servers_per_host",
    "TF_WORKER_PER_NODE": "gpus_per_host",
    "TF_PS_IN_WORKER": "server_placement",
}
_OF_SERVERS = ("servers", "servers_per_host", "server_placement")
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True)
class LegacySettings:
    """Settings, and the variables that they were taken from."""

    settings: dict[str, Any]
    variables: tuple[str, ...]

    @property
    def words(self) -> str:
        names = {"max_devices": "max devices", "gpus_per_host": "devices per host"}
        said = [
            f"{names.get(key, key.replace('_', ' '))} {','.join(value) if isinstance(value, tuple) else value}"
            for key, value in self.settings.items()
        ]
        return f"taken from {', '.join(self.variables)}: {', '.join(said)}"


def read_legacy_settings(environment: Mapping[str, str], given: Mapping[str, Any]) -> LegacySettings:
    """What those variables say of an experiment where neither flag nor file (``given``) does. TF_NUM_PS makes the
    strategy ps, unless one is named.
    """
    named = [str(name).lower() for name in given.get("strategies") or ()]
    serves = (
        any(name.partition(":")[0] in WITH_SERVERS for name in named) if named else bool(environment.get("TF_NUM_PS"))
    )
    settings: dict[str, Any] = {}
    taken = []
    for variable, key in _OLDER.items():
        text = environment.get(variable, "").strip()
        if not text or key in given or (key == "max_devices" and "devices" in given):
            continue
        if key in _OF_SERVERS and not serves:
            continue
        settings[key] = _placement(text) if key == "server_placement" else _count(variable, text)
        taken.append(variable)
    if serves and not named:
        settings["strategies"] = ("ps",)
    return LegacySettings(settings, tuple(taken))


def _count(variable: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{variable} {text!r}; valid: a whole number, 1 or more")
    return int(text)


def _placement(text: str) -> str:
    if text.lower() not in (*_YES, *_NO):
        raise InputError(f"TF_PS_IN_WORKER {text!r}; valid: true or false")
    return "beside" if text.lower() in _YES else "apart"
