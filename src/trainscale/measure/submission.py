"""Runs a whole sweep as one Slurm job, which the same command finds again by the run's directory."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..cluster.allocation import FORGOTTEN, JobStatus, count_gpus, parse_exit_code, parse_status
from ..cluster.hosts import find_devices
from ..errors import InputError, TrainscaleError
from ..record.files import write_atomically
from ..record.journal import RUN, SLURM, check_directory
from ..spec.devices import Host
from ..spec.experiment import Experiment, format_experiment
from ..spec.plan import Plan, make_plan
from ..spec.settings import SettingValues
from ..worker.inspection.host import Gpu, HostFacts, Machine

# These settings decide how a run is carried out, not which run it is.
_PATIENCE = (
    *("time", "account", "timeout", "stall_timeout", "controller_address", "ssh_config", "forward_agent"),
    *("explain", "cache"),
)
# These choose the machine and with it the name of a directory, but not with -o.
_MACHINE = ("partition", "gres", "sbatch", "remote_dir", "remote_python", "setup", "python")
# Left out where they are not set, so that directories of earlier runs keep their names.
_OMITTED_UNSET = ("study", "strong_batch")
_UNKNOWN_NODE = (64, 8)  # CPUs and GPUs, where Slurm does not say


def plan_for_nodes(experiment: Experiment) -> Plan:
    """Make a plan before the job waits in a queue, for Slurm's largest node."""
    partition = experiment.slurm.partition
    cpus, gpus = _UNKNOWN_NODE
    with suppress(SlurmUnreachable, InputError):
        option = [f"--partition={partition}"] if partition else []
        lines = _call(["sinfo", "--noheader", "--format=%c|%G", *option]).stdout.splitlines()
        nodes = [line.strip().split("|") for line in lines if re.match(r"\s*\d+[^|]*\|[^|]*$", line)]
        if nodes:
            cpus = max(int(re.findall(r"\d+", count)[0]) for count, _ in nodes)
            gpus = max(count_gpus(of_node) for _, of_node in nodes)
    gres = choose_gres(experiment)
    kind = experiment.resources.device
    if kind == "auto":
        kind = "cuda" if gres and "gpu" in gres else "cpu"
    if kind == "cuda":
        gpus = max(gpus, experiment.resources.gpus_per_host or 0) or _UNKNOWN_NODE[1]
    node_gpus = tuple(Gpu(index, "", 0, "") for index in range(gpus)) if kind == "cuda" else ()
    names = [f"node {number}" for number in range(1, (experiment.cluster.nodes or 1) + 1)]
    hosts = []
    for name in names:
        machine = Machine(name, "", tuple(range(cpus)), 1, 0, 0, node_gpus, "", 0.0, None)
        hosts.append(Host(alias=name, facts=HostFacts(machine)))
    return make_plan(experiment, find_devices(hosts, experiment))


def select_directory_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that a directory is named after."""
    values = experiment.to_dict()
    omitted = {*_PATIENCE, *(key for key in _OMITTED_UNSET if not values[key])}
    settings = {key: value for key, value in values.items() if key not in omitted}
    return dict(json.loads(json.dumps(settings)))


def _select_run_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that a continued run must have too."""
    settings = select_directory_settings(experiment)
    return {key: value for key, value in settings.items() if key not in _MACHINE}


_LEAST_FOR_A_SIGNAL = 600.0  # seconds: Slurm may send it a minute early
_SECONDS_PER_UNIT = (86400, 3600, 60, 1)


def make_script(experiment: Experiment, time: str, directory: Path, flags: Sequence[str] = ()) -> str:
    """Return the batch script. Its paths must mean the same on every node.

    ``flags`` are those of the run that are not settings.
    """
    seconds = parse_time(time)
    if "\\" in str(directory):  # there Slurm would not replace %j by the number of the job
        problem = "Slurm cannot write to a path with a backslash"
        raise InputError(f"output {directory}: {problem}; name another by -o")
    slurm = experiment.slurm
    further = []  # each as a single argument: "--qos high" becomes "--qos=high"
    for line in slurm.sbatch:
        match = re.fullmatch(r"(?P<name>--[\w-]+|-\w)(?:(?P<joint>=|\s+)?(?P<value>.*))?", line.strip())
        if match is None:
            valid = "valid: such as --sbatch=--constraint=gpu"
            raise InputError(f"--sbatch: {line!r} is not an option of sbatch; {valid}")
        joint = "=" if match["value"] and match["name"].startswith("--") else ""
        further.append(f"{match['name']}{joint}{match['value'] or ''}")
    names = {option.partition("=")[0] for option in further}
    folder = directory / SLURM
    log_folder = str(folder).replace("%", "%%")
    options = [
        f"--job-name=trainscale-{directory.name}",
        f"--nodes={experiment.cluster.nodes}",
        "--ntasks-per-node=1",
        "--exclusive",  # otherwise Slurm gives one CPU of each node, and neighbours disturb
        *(["--mem=0"] if not names & {"--mem", "--mem-per-cpu", "--mem-per-gpu"} else []),
        *([f"--partition={slurm.partition}"] if slurm.partition else []),
        *([f"--account={slurm.account}"] if slurm.account else []),
        *([f"--gres={gres}"] if (gres := choose_gres(experiment)) else []),
        f"--time={time}",
        *(["--signal=B:TERM@60"] if seconds is None or seconds >= _LEAST_FOR_A_SIGNAL else []),
        "--requeue",
        "--open-mode=append",
        f"--chdir={Path.cwd()}",
        f"--output={log_folder}/job-%j.log",
        *further,
    ]
    arguments = [str(folder / EXPERIMENT), "--output", str(directory), *flags]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {quote_option(option)}" for option in options),
        "# Measures a whole sweep. If it is run again, it continues from its journal.",
        # exec: a signal for the batch shell must reach the run, which then ends in order.
        f"exec {shlex.join([sys.executable, '-P', '-m', 'trainscale', 'run', *arguments])}",
    ]
    return "\n".join([*lines, ""])


def choose_gres(experiment: Experiment) -> str | None:
    """Return the resources to request: --gres, or the GPUs of --device and -g."""
    resources, gres = experiment.resources, experiment.slurm.gres
    if gres or resources.device != "cuda" or not resources.gpus_per_host:
        return gres
    return f"gpu:{resources.gpus_per_host}"


def quote_option(option: str) -> str:
    if "\n" in option:
        raise InputError(f"{option!r}: an option of Slurm cannot contain a line break")
    if re.fullmatch(r"[\w@%+=:,./-]+", option, re.ASCII):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_time(text: str) -> float | None:
    """Return the seconds of a time as Slurm reads it. None means no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    valid = "valid: 90 (minutes), 1:30:00, 2-12:30:00"
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        raise InputError(f"--time: {text!r} is not a time that Slurm reads; {valid}")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    # After days come the hours; three numbers begin with the hours, one or two with the minutes.
    units = [int(days or 0), *([] if days is not None or len(numbers) == 3 else [0]), *numbers]
    seconds = sum(unit * per for unit, per in zip(units, _SECONDS_PER_UNIT, strict=False))
    if not seconds:
        raise InputError(f"--time: {text!r} is zero; {valid}")
    return float(seconds)


def format_time(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-{hours:02}' if days else hours}:{minutes:02}:{seconds_left:02}"


_TIMEOUT_SECONDS = 60
# sbatch prefers these variables to a script's options. Most names follow from the option.
_VARIABLES = {"--time": "SBATCH_TIMELIMIT", "--mem": "SBATCH_MEM_PER_NODE"}


class SlurmUnreachable(TrainscaleError):
    """Slurm does not answer now; it may answer later."""


@dataclass(frozen=True)
class SlurmJob:
    number: str
    cluster: str = ""  # where a login node serves several

    @property
    def cluster_option(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []


def read_status(job: SlurmJob) -> JobStatus:
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


def _call(
    argv: Sequence[str], text: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        remedy = "run this on a login node of the cluster, or use --hosts FILE for ssh"
        raise InputError(f"launcher slurm: there is no {argv[0]} on the PATH; {remedy}") from None
    except subprocess.TimeoutExpired:
        message = f"Slurm does not answer: nothing from {argv[0]} within {_TIMEOUT_SECONDS} s"
        raise SlurmUnreachable(message) from None


def join_messages(stderr: str) -> str:
    """Return Slurm's messages on one line, each once."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


EXPERIMENT, _JOB = "experiment.toml", "job.json"


def find_active_job(directory: Path, experiment: Experiment) -> SlurmJob | None:
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
    settings = _select_run_settings(experiment)
    different = [key for key, value in settings.items() if value != their_settings.get(key, value)]
    if different:
        names = ", ".join(different).replace("_", " ")
        message = f"output {directory}: this directory is for another run, which differs in {names}"
        raise InputError(f"{message}; name a new one, or repeat that run's command to continue it")
    return None if read_status(job).is_over else job


def submit_job(script: str, directory: Path, experiment: Experiment) -> tuple[SlurmJob, str]:
    """Submit the script. Return the job and sbatch's warnings. A refusal leaves no new folder."""
    folder = directory / SLURM
    first_new = next((path for path in reversed((folder, *folder.parents)) if not path.exists()), None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {directory}: this directory cannot be made: {error.strerror}") from None
    options = re.findall(r'^#SBATCH "?(--[\w-]+)', script, re.MULTILINE)
    overriding = {_VARIABLES.get(name, f"SBATCH_{name[2:].replace('-', '_').upper()}") for name in options}
    environment = {name: value for name, value in os.environ.items() if name not in overriding}
    try:
        write_atomically(folder / EXPERIMENT, format_experiment(experiment))
        done = _call(["sbatch", "--parsable"], script, environment)
        if done.returncode:
            reason = join_messages(done.stderr) or f"exit code {done.returncode}, no message"
            raise InputError(f"Slurm did not accept the job: {reason}")
    except BaseException as error:
        if first_new is not None:
            shutil.rmtree(first_new)
        if isinstance(error, SlurmUnreachable):
            raise TrainscaleError(f"{error}; squeue --me shows whether it accepted the job") from None
        raise
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    document = {
        "job": number,
        "cluster": cluster,
        "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": _select_run_settings(experiment),
    }
    write_atomically(folder / _JOB, json.dumps(document, indent=2) + "\n")
    write_atomically(folder / f"job-{number}.sh", script)
    return SlurmJob(number, cluster), join_messages(done.stderr)
