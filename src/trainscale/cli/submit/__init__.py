"""A whole sweep as one batch job: ``trainscale run --launcher slurm --nodes N`` on a login node submits it and follows
it to its end. The same command again follows the job that is there, or has another one continue the journal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...cluster.allocation import inside_slurm
from ...cluster.devices import UsableHost, find_devices
from ...errors import InputError
from ...launch.launchers.slurm import SlurmSettings
from ...record.files import write_whole
from ...record.journal import RUN, SLURM, check_directory, read_run
from ...record.parity import read_parity
from ...record.trial import LOST
from ...spec.experiment import Experiment
from ...spec.plan import Plan, make_plan
from ...worker.inspection.machine import Gpu, Machine
from ..results import print_results
from ..signals import signals_interrupt
from ..wording import time_words
from .follow import Followed, follow
from .queue import JobStatus, SlurmJob, hand_in, nodes_have, status_of
from .script import Batch, experiment_copy, gres_of, log_of, make_batch, read_time, slurm_time

_ASKED_OF_SLURM = ("nodes", "partition", "time", "account", "gres", "sbatch")
# Settings that decide how a run is carried out, not which run it is. Those of Slurm choose the machine, so they are in
# a directory's name; but whoever names the directory may go on elsewhere.
_PATIENCE = ("time", "account", "timeout", "stall_timeout", "controller_address", "ssh_config", "forward_agent")
_WHERE = ("partition", "gres", "sbatch", "remote_dir", "remote_python", "setup", "python")
_UNKNOWN_NODE = (64, 8)  # CPUs and GPUs, where Slurm does not say
_LOG_LINES = 20
_ROUND = 600  # seconds
_JOB = "job.json"
_ARRIVE_SECONDS = 60.0  # for a shared file system to show here what was written there
_LOOK_SECONDS = 0.5


def wanted(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is to be submitted, not run here. An InputError for wishes to Slurm that nobody would hear."""
    if inside_slurm(environment):
        return False
    if experiment.resources.launcher == "slurm" and experiment.cluster.nodes:
        return True
    asked = [key for key, value in experiment.to_dict().items() if key in _ASKED_OF_SLURM and value]
    if asked and experiment.resources.launcher in (None, "local", "ssh"):
        raise InputError(f"{asked[0]}: nobody asks Slurm for it here; valid with --launcher slurm and --nodes N")
    return False


Choose = Callable[[Path | None, bool, Plan, dict[str, Any]], Path]


def run(words: Sequence[str], options: Namespace, experiment: Experiment, choose_directory: Choose) -> int:
    plan = imagine(experiment)
    limit = experiment.settings_of(SlurmSettings).time or slurm_time(_enough(plan.seconds))
    chosen = choose_directory(options.output, options.fresh, plan, name_of(experiment))
    directory = Path(os.path.abspath(chosen))  # noqa: PTH100 - links as they are: a node may follow them elsewhere
    batch = make_batch(experiment, words, limit, directory=directory, folder=Path.cwd(), python=sys.executable)
    if options.dry_run:
        print(batch.text, end="")
        return 0
    followed = Followed(directory, plan, options.retry_failed)
    job = _job_that_is_there(directory, experiment)
    if job is None and followed.complete:
        print(f"all {len(followed.records)} trials are in the journal already; --fresh measures anew")
        return _results(followed)
    with signals_interrupt():
        try:
            if job is None:
                job = _submit(batch, directory, experiment, options.file)
                _announce(job, plan, limit, directory, experiment)
            else:
                print(f"job {job.number} measures this already, results in {directory}/", flush=True)
            status = follow(job, followed)
        except KeyboardInterrupt:
            if job is None:
                raise
            again = f"the same command with -o {directory} in place of --fresh" if options.fresh else "the same command"
            print(f"\njob {job.number} goes on; {again} follows it again; to end it: {job.cancel}")
            return 130
    return _finish(job, status, followed)


def imagine(experiment: Experiment) -> Plan:
    """A plan for nodes that are not there yet, from what Slurm says of them: to find mistakes before the job waits in
    a queue, and to guess its time.
    """
    cpus, gpus = nodes_have(experiment.settings_of(SlurmSettings).partition) or _UNKNOWN_NODE
    asked = gres_of(experiment)
    kind = experiment.resources.device
    if kind == "auto":
        kind = "cuda" if asked and "gpu" in asked else "cpu"
    if kind == "cuda":
        gpus = max(gpus, experiment.resources.gpus_per_host or 0) or _UNKNOWN_NODE[1]
    shown = tuple(Gpu(index, "", 0, "") for index in range(gpus)) if kind == "cuda" else ()
    hosts = [
        UsableHost(Machine(f"node {n}", "", tuple(range(cpus)), 1, 0, 0, shown, "", 0.0, None), host=f"node {n}")
        for n in range(1, (experiment.cluster.nodes or 1) + 1)
    ]
    return make_plan(experiment, find_devices(hosts, experiment))


def name_of(experiment: Experiment) -> dict[str, Any]:
    """What the name of a directory is made from: the nodes' ladders are not known yet."""
    return _settings(experiment, _PATIENCE)


def _enough(seconds: float) -> float:
    """A limit for a guess that may be wrong by half, and for what comes before the first trial; in whole ten
    minutes.
    """
    return -(-(2 * seconds + _ROUND) // _ROUND) * _ROUND


def _settings(experiment: Experiment, without: Sequence[str]) -> dict[str, Any]:
    """As they come back from a file of JSON."""
    values = {key: value for key, value in experiment.to_dict().items() if key not in without}
    return dict(json.loads(json.dumps(values)))


def _job_that_is_there(directory: Path, experiment: Experiment) -> SlurmJob | None:
    """The job that waits or runs for this directory. An InputError if the directory is for another experiment."""
    path = directory / SLURM / _JOB
    if not path.exists():
        if not (directory / RUN).exists():
            check_directory(directory, {})
        return None
    try:
        said = json.loads(path.read_text())
        job, theirs = SlurmJob(said["job"], said["cluster"]), said["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as the record of a job: {error}") from None
    ours = _settings(experiment, (*_PATIENCE, *_WHERE))
    differ = [key.replace("_", " ") for key in ours if ours[key] != theirs.get(key, ours[key])]
    if differ:
        words = f"output {directory}: this directory is for another run, which differs in {', '.join(differ)}"
        raise InputError(f"{words}; name a new one, or repeat that run's command to continue it")
    return None if status_of(job).over else job


def _submit(batch: Batch, directory: Path, experiment: Experiment, file: Path | None) -> SlurmJob:
    """Whole or not at all: what was made for a job that Slurm refuses is taken away."""
    folder = directory / SLURM
    made = next((path for path in reversed((folder, *folder.parents)) if not path.exists()), None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {directory}: this directory cannot be made: {error.strerror}") from None
    try:
        if file is not None:
            write_whole(experiment_copy(directory), file.read_bytes())
        job, said = hand_in(batch)
    except BaseException:
        if made is not None:
            shutil.rmtree(made)
        raise
    if said:
        print(f"Slurm says: {said}", file=sys.stderr)
    note = {
        "job": job.number,
        "cluster": job.cluster,
        "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": _settings(experiment, (*_PATIENCE, *_WHERE)),
    }
    write_whole(folder / _JOB, json.dumps(note, indent=2) + "\n")
    write_whole(folder / f"job-{job.number}.sh", batch.text)
    return job


def _announce(job: SlurmJob, plan: Plan, limit: str, directory: Path, experiment: Experiment) -> None:
    seconds = read_time(limit)
    count = f"{experiment.cluster.nodes} node{'s' if experiment.cluster.nodes != 1 else ''}"
    most = "without a time limit" if seconds is None else f"for at most {time_words(seconds)}"
    print(f"job {job.number} submitted: {count} {most}, results in {directory}/", flush=True)
    if experiment.settings_of(SlurmSettings).time is None:
        print(f"  the time limit is a guess, from very roughly {time_words(plan.seconds)} of work; --time sets another")
    elif seconds is not None and plan.seconds > seconds and not (directory / RUN).exists():
        words = f"very roughly {time_words(plan.seconds)} of work, more than --time {limit}"
        print(f"trainscale: {words}; what is left then is for the same command, given again", file=sys.stderr)
    sbatch = experiment.settings_of(SlurmSettings).sbatch
    if experiment.resources.device == "cuda" and not gres_of(experiment) and not any("gpu" in line for line in sbatch):
        print("trainscale: no GPUs were asked for; most sites want -g N or --gres gpu:N", file=sys.stderr)


def _finish(job: SlurmJob, status: JobStatus, run: Followed) -> int:
    """Results as after a local run; then, where something is left to do, why."""
    stopped = _stopped(status)
    if run.complete if stopped else _arrived(status, run):
        return _results(run)
    if run.records:
        _results(run)
    if not stopped:
        print(f"trainscale: job {job.number} {_failed(status)}{_log(run.directory, job)}", file=sys.stderr)
        return status.exit_code or 1
    kept = len(run.records)
    trials = f"{kept} finished trial{'s are' if kept != 1 else ' is'} kept"
    go_on = "the same command submits again and continues" if run.begun else "the same command submits again"
    retry = "; --retry-failed tries again what was lost" if any(r.status == LOST for r in run.records) else ""
    print(f"job {job.number} {stopped}; {trials}; {go_on}{retry}")
    return 130


def _arrived(status: JobStatus, run: Followed) -> bool:
    """Whether all is in the journal as it is seen from here: after a job that ended well, it will be."""
    until = time.monotonic() + (_ARRIVE_SECONDS if status.state == "COMPLETED" else 0)
    while not run.all_measured:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _stopped(status: JobStatus) -> str:
    """How a job was ended from outside; nothing if it ended by itself."""
    limit = f" of {status.time_limit}" if status.time_limit else ""
    if status.state == "FAILED" and status.exit_code == 130:
        return f"was told to end, as Slurm does shortly before the time limit{limit}"
    return {
        "TIMEOUT": f"reached its time limit{limit}",
        "CANCELLED": "was cancelled",
        "PREEMPTED": "had to make room for another (PREEMPTED)",
        "NODE_FAIL": "lost a node (NODE_FAIL)",
        "BOOT_FAIL": "did not get its nodes started (BOOT_FAIL)",
        "DEADLINE": "reached its deadline",
        "REVOKED": "was revoked",
    }.get(status.state, "")


def _failed(status: JobStatus) -> str:
    if status.state == "FORGOTTEN":
        return "is over and Slurm has forgotten how it ended"
    how = f"signal {status.signal}" if status.signal else f"exit code {status.exit_code}"
    return f"ended ({status.state}, {how})"


def _log(directory: Path, job: SlurmJob) -> str:
    path = log_of(directory, job.number)
    try:
        lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return f"; there is no log at {path}\n  the nodes must see this directory too; name one that they share by -o"
    return "".join(f"\n  {line}" for line in [*lines, f"(from {path})"])


def _results(run: Followed) -> int:
    from ...report.outputs import write_outputs

    verdicts = read_parity(run.directory)
    info = read_run(run.directory)
    write_outputs(run.directory, info, run.records, verdicts)
    print_results(run.directory, run.records, verdicts, info)
    return 0 if all(record.ok for record in run.records) else 1
