"""Makes the batch script for a whole sweep. Pure, so that it can be shown before it is submitted and tested exactly."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...launch.launchers.slurm import SlurmSettings
from ...record.journal import SLURM
from ...spec.experiment import Experiment

_LEAST_FOR_A_SIGNAL = 600.0  # seconds: Slurm may send it a minute early, which is too much of a short job
_SECONDS_PER_UNIT = (86400, 3600, 60, 1)


@dataclass(frozen=True)
class BatchScript:
    """The options for sbatch, and the command that the job becomes."""

    options: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = [f"#SBATCH {quote_option(option)}" for option in self.options]
        comment = "# Measures a whole sweep. If it is run again, it continues from its journal."
        # exec: a signal for the batch shell must reach the run, which then ends in order.
        return "\n".join(["#!/bin/bash", *lines, comment, f"exec {shlex.join(self.command)}", ""])

    @property
    def option_names(self) -> set[str]:
        return {option.partition("=")[0] for option in self.options}


@dataclass(frozen=True)
class JobPaths:
    """Paths of a job, which must mean the same on every node."""

    directory: Path  # of the run
    working_directory: Path  # where the command was typed
    python: str  # the interpreter that runs trainscale

    @property
    def experiment_file(self) -> Path:
        return self.directory / SLURM / "experiment.toml"

    def make_log_path(self, job_number: str) -> Path:
        """Return the path of the file for what the job prints."""
        return self.directory / SLURM / f"job-{job_number}.log"


def make_script(experiment: Experiment, time: str, paths: JobPaths, flags: Sequence[str] = ()) -> BatchScript:
    """Return the batch script of a run. ``time`` is in Slurm's notation; ``flags`` are those of the run that are not
    settings.
    """
    seconds = parse_time(time)
    directory = str(paths.directory)
    if "\\" in directory:  # there Slurm would not replace %j by the number of the job
        raise InputError(f"output {directory}: Slurm cannot write to a path with a backslash; name another by -o")
    slurm = experiment.select_settings(SlurmSettings)
    further = [_parse_option(line) for line in slurm.sbatch]
    names = {option.partition("=")[0] for option in further}
    log = str(paths.make_log_path("")).removesuffix(".log").replace("%", "%%")
    options = [
        f"--job-name=trainscale-{paths.directory.name}",
        f"--nodes={experiment.cluster.nodes}",
        "--ntasks-per-node=1",
        "--exclusive",  # otherwise Slurm gives one CPU of each node, and neighbours disturb the measurement
        *(["--mem=0"] if not names & {"--mem", "--mem-per-cpu", "--mem-per-gpu"} else []),
        *([f"--partition={slurm.partition}"] if slurm.partition else []),
        *([f"--account={slurm.account}"] if slurm.account else []),
        *([f"--gres={gres}"] if (gres := choose_gres(experiment)) else []),
        f"--time={time}",
        *(["--signal=B:TERM@60"] if seconds is None or seconds >= _LEAST_FOR_A_SIGNAL else []),
        "--requeue",
        "--open-mode=append",
        f"--chdir={paths.working_directory}",
        f"--output={log}%j.log",
        *further,
    ]
    run = (paths.python, "-P", "-m", "trainscale", "run", str(paths.experiment_file))
    return BatchScript(tuple(options), (*run, "--output", directory, *flags))


def choose_gres(experiment: Experiment) -> str | None:
    """Return the generic resources to request: those of --gres, or the GPUs that --device and -g name."""
    resources, gres = experiment.resources, experiment.select_settings(SlurmSettings).gres
    if gres or resources.device != "cuda" or not resources.gpus_per_host:
        return gres
    return f"gpu:{resources.gpus_per_host}"


def _parse_option(line: str) -> str:
    """Return an option of --sbatch as a single argument: «--qos high» becomes «--qos=high»."""
    match = re.fullmatch(r"(?P<name>--[\w-]+|-\w)(?:(?P<joint>=|\s+)?(?P<value>.*))?", line.strip())
    if match is None:
        raise InputError(f"--sbatch: {line!r} is not an option of sbatch; valid: such as --sbatch=--constraint=gpu")
    if not match["value"]:
        return match["name"]
    return f"{match['name']}{'=' if match['name'].startswith('--') else ''}{match['value']}"


def quote_option(option: str) -> str:
    """Quote an option for a #SBATCH line. sbatch understands double quotes and the backslash, but it is no shell."""
    if "\n" in option:
        raise InputError(f"{option!r}: an option of Slurm cannot contain a line break")
    if re.fullmatch(r"[\w@%+=:,./-]+", option, re.ASCII):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_time(text: str) -> float | None:
    """Return the seconds of Slurm's «90» (minutes), «90:00», «1:30:00», «2-12», «2-12:30», «2-12:30:00».

    None means no limit.
    """
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        raise InputError(f"--time: {text!r} is not a time that Slurm reads; valid: 90 (minutes), 1:30:00, 2-12:30:00")
    days, *parts = (None if part is None else int(part) for part in match.groups())
    numbers = [part for part in parts if part is not None]
    if days is not None:  # the hours come first
        units = [days, *numbers, *[0] * (3 - len(numbers))]
    elif len(numbers) == 3:
        units = [0, *numbers]
    else:  # the minutes come first
        units = [0, 0, *numbers, *[0] * (2 - len(numbers))]
    seconds = sum(unit * per for unit, per in zip(units, _SECONDS_PER_UNIT, strict=True))
    if not seconds:
        raise InputError(f"--time: {text!r} is zero; valid: 90 (minutes), 1:30:00, 2-12:30:00")
    return float(seconds)


def format_time(seconds: float) -> str:
    """Return a duration in Slurm's notation."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-{hours:02}' if days else hours}:{minutes:02}:{seconds_left:02}"
