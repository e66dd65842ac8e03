"""The batch script for a whole sweep. Pure, so that it can be shown before it is submitted and tested to the letter."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...launch.launchers.catalog import launcher_groups
from ...launch.launchers.slurm import SlurmSettings
from ...record.journal import SLURM
from ...spec.experiment import Experiment
from ...spec.groups import collect_settings
from ...spec.value_types import SWITCH

# Asked of sbatch, not of the run inside the job.
_SUBMITTING = ("nodes", "partition", "time", "account", "gres", "sbatch")
_OWN_FLAGS = ("-o", "--output", "--fresh", "--dry-run")
_SWITCHES = ("--fresh", "--dry-run", "--retry-failed", "-h", "--help")
_LEAST_FOR_A_SIGNAL = 600.0  # seconds: Slurm may send it a minute early, which is too much of a short job
_PER_UNIT = (86400, 3600, 60, 1)


@dataclass(frozen=True)
class Batch:
    """What makes one job: the options for sbatch, and the command that the job becomes."""

    options: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = [f"#SBATCH {quoted(option)}" for option in self.options]
        about = "# Measures a whole sweep. Run again, it goes on from its journal."
        # exec: so that a signal for the batch shell reaches the run, which then ends in order.
        return "\n".join(["#!/bin/bash", *lines, about, f"exec {shlex.join(self.command)}", ""])

    @property
    def names(self) -> set[str]:
        return {option.partition("=")[0] for option in self.options}


def make_batch(
    experiment: Experiment, words: Sequence[str], time: str, *, directory: Path, folder: Path, python: str
) -> Batch:
    """``words`` are those typed after «run», ``folder`` is where they were typed. ``time`` is in Slurm's words. Paths
    must mean the same on every node.
    """
    seconds = read_time(time)
    if "\\" in str(directory):  # there it means that %j is not the job's number
        raise InputError(f"output {directory}: Slurm cannot write to a path with a backslash; name another by -o")
    slurm = experiment.settings_of(SlurmSettings)
    further = [_option(line) for line in slurm.sbatch]
    names = {option.partition("=")[0] for option in further}
    options = [
        f"--job-name=trainscale-{directory.name}",
        f"--nodes={experiment.cluster.nodes}",
        "--ntasks-per-node=1",
        "--exclusive",  # else one CPU of each node, and neighbours that disturb the measurement
        *(["--mem=0"] if not names & {"--mem", "--mem-per-cpu", "--mem-per-gpu"} else []),
        *([f"--partition={slurm.partition}"] if slurm.partition else []),
        *([f"--account={slurm.account}"] if slurm.account else []),
        *([f"--gres={gres}"] if (gres := gres_of(experiment)) else []),
        f"--time={time}",
        *(["--signal=B:TERM@60"] if seconds is None or seconds >= _LEAST_FOR_A_SIGNAL else []),
        "--requeue",
        "--open-mode=append",
        f"--chdir={folder}",
        f"--output={str(log_of(directory, '')).replace('%', '%%')}%j.log",
        *further,
    ]
    command = (python, "-P", "-m", "trainscale", "run", *inner_words(words, directory), "--output", str(directory))
    return Batch(tuple(options), command)


def log_of(directory: Path, job: str) -> Path:
    """What the job prints; without a job, what is before its number."""
    return directory / SLURM / (f"job-{job}.log" if job else "job-")


def gres_of(experiment: Experiment) -> str | None:
    resources, gres = experiment.resources, experiment.settings_of(SlurmSettings).gres
    if gres or resources.device != "cuda" or not resources.gpus_per_host:
        return gres
    return f"gpu:{resources.gpus_per_host}"


def inner_words(words: Sequence[str], directory: Path) -> list[str]:
    """The same words without those that are for the submission. An experiment file is the copy in the directory: the
    job may start long after the file was changed.
    """
    settings = collect_settings(launcher_groups())
    dropped = {flag for key in _SUBMITTING for flag in settings[key].flags} | set(_OWN_FLAGS)
    kept: list[str] = []
    for flag, parts in _parts(words):
        if flag is None:
            kept.append(str(experiment_copy(directory)))
        elif flag not in dropped:
            kept += parts
    return kept


def experiment_copy(directory: Path) -> Path:
    return directory / SLURM / "experiment.toml"


def _parts(words: Sequence[str]) -> list[tuple[str | None, list[str]]]:
    """Flags with their values; None for the experiment file. The words were read before: they are right."""
    settings = collect_settings(launcher_groups()).values()
    switches = {
        *_SWITCHES,
        *(flag for field in settings if field.value_type is SWITCH for flag in _both(field.flags)),
    }
    found: list[tuple[str | None, list[str]]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found += [(None, [one]) for one in left]
            break
        if not word.startswith("-"):
            found.append((None, [word]))
            continue
        long = word.startswith("--")
        flag = word.partition("=")[0] if long else word[:2]
        alone = flag in switches or ("=" in word if long else len(word) > 2)
        found.append((flag, [word] if alone else [word, left.pop(0)]))
    return found


def _both(flags: Sequence[str]) -> list[str]:
    return [*flags, *(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--"))]


def _option(line: str) -> str:
    """One more option as one word: «--qos high» is «--qos=high»."""
    match = re.fullmatch(r"(?P<name>--[\w-]+|-\w)(?:(?P<joint>=|\s+)?(?P<value>.*))?", line.strip())
    if match is None:
        raise InputError(f"--sbatch: {line!r} is not an option of sbatch; valid: such as --sbatch=--constraint=gpu")
    if not match["value"]:
        return match["name"]
    return f"{match['name']}{'=' if match['name'].startswith('--') else ''}{match['value']}"


def quoted(option: str) -> str:
    """For a line that sbatch reads, which knows double quotes and the backslash, but is no shell."""
    if "\n" in option:
        raise InputError(f"{option!r}: a line break cannot be told to Slurm")
    if re.fullmatch(r"[\w@%+=:,./-]+", option, re.ASCII):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_time(text: str) -> float | None:
    """Seconds of Slurm's «90» (minutes), «90:00», «1:30:00», «2-12», «2-12:30», «2-12:30:00»; None for no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        raise InputError(f"--time: {text!r} is not a time of Slurm's; valid: 90 (minutes), 1:30:00, 2-12:30:00")
    days, *parts = (None if part is None else int(part) for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is not None:  # hours come first
        units = [days, *given, *[0] * (3 - len(given))]
    elif len(given) == 3:
        units = [0, *given]
    else:  # minutes do
        units = [0, 0, *given, *[0] * (2 - len(given))]
    seconds = sum(unit * per for unit, per in zip(units, _PER_UNIT, strict=True))
    if not seconds:
        raise InputError(f"--time: {text!r} is no time at all; valid: 90 (minutes), 1:30:00, 2-12:30:00")
    return float(seconds)


def slurm_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"
