"""The Slurm job of a run: submits it, and remembers it in the run's directory, so that the same command finds it."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from ...errors import InputError
from ...record.files import write_atomically
from ...record.journal import RUN, SLURM, check_directory
from ...spec.experiment import Experiment, format_experiment
from .plan import select_run_settings
from .script import BatchScript, JobPaths
from .slurm import SlurmJob, read_status, submit_script

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
