"""Runs a whole sweep as one Slurm job: whether a command submits one, its plan for nodes that are not allocated yet,
the batch script, and what Slurm says of the job. The same command finds the job again by the run's directory.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..cluster.allocation import FORGOTTEN, JobStatus, count_gpus, is_inside_slurm, parse_exit_code, parse_status
from ..cluster.hosts import find_devices
from ..errors import InputError, TrainscaleError
from ..launch.launchers.slurm import SlurmSettings
from ..record.files import write_atomically
from ..record.journal import RUN, SLURM, check_directory
from ..spec.devices import Host
from ..spec.experiment import Experiment, format_experiment
from ..spec.plan import Plan, make_plan
from ..spec.settings import SettingValues
from ..worker.inspection.host import Gpu, HostFacts, Machine

_FOR_SLURM = ("nodes", "partition", "time", "account", "gres", "sbatch")
# These settings decide how a run is carried out, not which run it is.
_PATIENCE = (
    *("time", "account", "timeout", "stall_timeout", "controller_address", "ssh_config", "forward_agent"),
    *("explain", "cache"),
)
# These settings choose the machine, so the name of a directory depends on them. But a directory that -o names may be
# continued on another machine.
_MACHINE = ("partition", "gres", "sbatch", "remote_dir", "remote_python", "setup", "python")
# Settings that came later. Where one is not set it is left out, so that directories of earlier runs keep their names.
_OMITTED_UNSET = ("study", "strong_batch")
_UNKNOWN_NODE = (64, 8)  # CPUs and GPUs, where Slurm does not say
_ROUND = 600  # seconds


def should_submit(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to submit a job instead of measuring here.

    An InputError is raised for settings of Slurm that would have no effect.
    """
    if is_inside_slurm(environment):
        return False
    if experiment.resources.launcher == "slurm" and experiment.cluster.nodes:
        return True
    without_effect = [key for key, value in experiment.to_dict().items() if key in _FOR_SLURM and value]
    if without_effect and experiment.resources.launcher in (None, "local", "ssh"):
        raise InputError(
            f"{without_effect[0]}: no job is submitted to Slurm here; valid with --launcher slurm and --nodes N"
        )
    return False


def plan_for_nodes(experiment: Experiment) -> Plan:
    """Make a plan for nodes that are not allocated yet, from what Slurm says of its largest node.

    The plan finds mistakes before the job waits in a queue, and estimates its time.
    """
    cpus, gpus = find_largest_node(experiment.select_settings(SlurmSettings).partition) or _UNKNOWN_NODE
    gres = choose_gres(experiment)
    kind = experiment.resources.device
    if kind == "auto":
        kind = "cuda" if gres and "gpu" in gres else "cpu"
    if kind == "cuda":
        gpus = max(gpus, experiment.resources.gpus_per_host or 0) or _UNKNOWN_NODE[1]
    node_gpus = tuple(Gpu(index, "", 0, "") for index in range(gpus)) if kind == "cuda" else ()
    names = [f"node {number}" for number in range(1, (experiment.cluster.nodes or 1) + 1)]
    hosts = [
        Host(alias=name, facts=HostFacts(Machine(name, "", tuple(range(cpus)), 1, 0, 0, node_gpus, "", 0.0, None)))
        for name in names
    ]
    return make_plan(experiment, find_devices(hosts, experiment))


def choose_time_limit(experiment: Experiment, plan: Plan) -> str:
    """Return the job's time limit in Slurm's notation.

    By default it is twice the estimate, which may be far off, and ten minutes for what comes before the first trial.
    """
    limit = experiment.select_settings(SlurmSettings).time
    return limit or format_time(-(-(2 * plan.seconds + _ROUND) // _ROUND) * _ROUND)


def select_directory_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that a directory is named after. The ladders of the nodes are not known yet."""
    return _leave_out_settings(experiment, _PATIENCE)


def select_run_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that must be the same to continue a run in a given directory."""
    return _leave_out_settings(experiment, (*_PATIENCE, *_MACHINE))


def _leave_out_settings(experiment: Experiment, keys: tuple[str, ...]) -> SettingValues:
    """Return settings as they would be read back from a JSON file."""
    values = {key: value for key, value in experiment.to_dict().items() if value or key not in _OMITTED_UNSET}
    settings = {key: value for key, value in values.items() if key not in keys}
    return dict(json.loads(json.dumps(settings)))


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


_TIMEOUT_SECONDS = 60
# sbatch prefers these variables to the options in a script. The names of most follow from the option.
_VARIABLES = {"--time": "SBATCH_TIMELIMIT", "--mem": "SBATCH_MEM_PER_NODE"}


class SlurmUnreachable(TrainscaleError):
    """Slurm does not answer now; it may answer later."""


@dataclass(frozen=True)
class SlurmJob:
    number: str
    cluster: str = ""  # where a login node serves several

    @property
    def cancel_command(self) -> str:
        return " ".join(["scancel", *self.cluster_option, self.number])

    @property
    def cluster_option(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []


def submit_script(script: BatchScript) -> tuple[SlurmJob, str]:
    """Return the job and sbatch's warnings. An InputError repeats Slurm's message when it refuses the job."""
    overriding = {_VARIABLES.get(name, f"SBATCH_{name[2:].replace('-', '_').upper()}") for name in script.option_names}
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"],
            input=script.text,
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if name not in overriding},
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        message = "launcher slurm: there is no sbatch on the PATH, so no job can be submitted from here"
        raise InputError(f"{message}; run this on a login node of the cluster, or use --hosts FILE for ssh") from None
    except subprocess.TimeoutExpired:
        raise TrainscaleError(
            f"sbatch did not answer within {_TIMEOUT_SECONDS} s; squeue --me shows whether it accepted the job"
        ) from None
    if done.returncode:
        reason = join_messages(done.stderr) or f"exit code {done.returncode}, no message"
        raise InputError(f"Slurm did not accept the job: {reason}")
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    return SlurmJob(number, cluster), join_messages(done.stderr)


def read_status(job: SlurmJob) -> JobStatus:
    """Ask Slurm for the status of a job. ``SlurmUnreachable`` is raised when Slurm does not answer."""
    done = _call(["scontrol", *job.cluster_option, "show", "job", "--oneliner", job.number])
    if done.returncode == 0:
        return parse_status(done.stdout)
    if "Invalid job id" not in done.stderr:
        raise SlurmUnreachable(f"Slurm does not answer: {join_messages(done.stderr) or 'no message'}")
    # The job is over and the controller has forgotten it; some sites keep accounts.
    done = _call(["sacct", *job.cluster_option, "-X", "-n", "-P", "-j", job.number, "-o", "State,ExitCode"])
    state, _, code = done.stdout.strip().partition("|")
    if done.returncode or not state:
        return JobStatus(FORGOTTEN)
    exit_code, signal = parse_exit_code(code)
    return JobStatus(state.split()[0], exit_code=exit_code, signal=signal)


def find_largest_node(partition: str | None) -> tuple[int, int] | None:
    """Return the most CPUs and GPUs of a node of a partition, or of all. None where Slurm does not say."""
    partition_option = [f"--partition={partition}"] if partition else []
    try:
        done = _call(["sinfo", "--noheader", "--format=%c|%G", *partition_option])
    except (SlurmUnreachable, InputError):
        return None
    nodes = [line.strip().split("|") for line in done.stdout.splitlines() if line.count("|") == 1]
    cpus = [int(digits[0]) for count, _ in nodes if (digits := re.findall(r"^\d+", count))]
    gpus = [count_gpus(gres) for _, gres in nodes]
    return (max(cpus), max(gpus)) if cpus else None


def _call(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        raise InputError(f"there is no {argv[0]} on the PATH; run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        message = f"Slurm does not answer: nothing from {argv[0]} within {_TIMEOUT_SECONDS} s"
        raise SlurmUnreachable(message) from None


def join_messages(stderr: str) -> str:
    """Return Slurm's messages on one line, each once, without the names of its programs."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


_JOB = "job.json"


def find_active_job(directory: Path, experiment: Experiment) -> SlurmJob | None:
    """Return the job that waits or runs for this directory.

    An InputError is raised if the directory is for another experiment.
    """
    path = directory / SLURM / _JOB
    if not path.exists():
        if not (directory / RUN).exists():
            check_directory(directory, {})
        return None
    try:
        document = json.loads(path.read_text())
        job, their_settings = SlurmJob(document["job"], document["cluster"]), document["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as the record of a job: {error}") from None
    settings = select_run_settings(experiment)
    different = [key.replace("_", " ") for key, value in settings.items() if value != their_settings.get(key, value)]
    if different:
        message = f"output {directory}: this directory is for another run, which differs in {', '.join(different)}"
        raise InputError(f"{message}; name a new one, or repeat that run's command to continue it")
    return None if read_status(job).is_over else job


def submit_job(script: BatchScript, paths: JobPaths, experiment: Experiment) -> tuple[SlurmJob, str]:
    """Submit the script, and return the job with sbatch's warnings. If Slurm refuses it, no new folder remains."""
    folder = paths.directory / SLURM
    first_new = next((path for path in reversed((folder, *folder.parents)) if not path.exists()), None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {paths.directory}: this directory cannot be made: {error.strerror}") from None
    try:
        write_atomically(paths.experiment_file, format_experiment(experiment))
        job, warnings = submit_script(script)
    except BaseException:
        if first_new is not None:
            shutil.rmtree(first_new)
        raise
    document = {
        "job": job.number,
        "cluster": job.cluster,
        "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": select_run_settings(experiment),
    }
    write_atomically(folder / _JOB, json.dumps(document, indent=2) + "\n")
    write_atomically(folder / f"job-{job.number}.sh", script.text)
    return job, warnings
