"""``trainscale run --launcher slurm --nodes N`` on a login node: submits a sweep as one job.

The command follows the job; given again, it finds the job or submits one that continues.
"""

import os
import sys
from argparse import Namespace
from pathlib import Path

from ..cluster.allocation import FORGOTTEN, JobStatus
from ..measure import submission
from ..measure.context import choose_directory
from ..measure.watching import FollowedRun, follow
from ..record.journal import RUN, SLURM
from ..record.trial import LOST
from ..report.numbers import format_count, format_rough_duration
from ..runs import Run
from ..spec.experiment import Experiment, format_experiment
from ..spec.plan import Plan
from . import report
from .signals import interrupt_on_signals
from .views import CommandView, describe_kept

_TIME_STEP = 600  # seconds: a time limit that nobody set is a multiple of it


def submit_run(experiment: Experiment, options: Namespace) -> int:
    """Submit the run as a job, or find its job. Follow it, and return the exit code."""
    plan = submission.plan_for_nodes(experiment)
    guess = 2 * plan.seconds + _TIME_STEP
    limit = experiment.slurm.time or submission.format_time(-(-guess // _TIME_STEP) * _TIME_STEP)
    settings = submission.select_directory_settings(experiment)
    directory = choose_directory(options.output, options.fresh, plan, settings)
    # A node may resolve links differently.
    directory = Path(os.path.abspath(directory))  # noqa: PTH100
    flags = ["--retry-failed"] if options.retry_failed else []
    script = submission.make_script(experiment, limit, directory, flags)
    if options.dry_run:
        print(script, end="", flush=True)
        file = directory / SLURM / submission.EXPERIMENT
        print(f"{file} would hold:\n{format_experiment(experiment)}", end="", file=sys.stderr)
        return 0
    run = FollowedRun(directory, plan, options.retry_failed)
    job = submission.find_active_job(directory, experiment)
    if job is None and run.is_complete:
        print(f"all {len(run.records)} trials are in the journal already; --fresh measures anew")
        exit_code = _finish_results(run)
    else:
        with interrupt_on_signals():
            try:
                if job is None:
                    job, warnings = submission.submit_job(script, directory, experiment)
                    if warnings:
                        print(f"Slurm says: {warnings}", file=sys.stderr)
                    _print_submitted(job, plan, limit, directory)
                else:
                    print(f"job {job.number} measures this already, results in {directory}/", flush=True)
                view = CommandView(remote_job=f"job {job.number}")
                status = follow(job, run, view.show_message, view.show_trials)
            except KeyboardInterrupt:
                if job is None:
                    raise
                change = f" with -o {directory} in place of --fresh" if options.fresh else ""
                again = f"the same command{change} follows it again"
                cancel = " ".join(["scancel", *job.cluster_option, job.number])
                print(f"\njob {job.number} goes on; {again}; to end it: {cancel}")
                return 130
        exit_code = finish(job, status, run)
    if options.summary_line and run.records:
        report.print_summary_lines(Run(run.directory))
    return exit_code


def _print_submitted(job: submission.SlurmJob, plan: Plan, limit: str, directory: Path) -> None:
    seconds, slurm = submission.parse_time(limit), plan.experiment.slurm
    nodes = format_count(plan.experiment.cluster.nodes or 1, "node")
    duration = "without a time limit"
    if seconds is not None:
        duration = f"for at most {format_rough_duration(seconds)}"
    estimate = f"very roughly {format_rough_duration(plan.seconds)} of work"
    print(f"job {job.number} submitted: {nodes} {duration}, results in {directory}/", flush=True)
    if slurm.time is None:
        print(f"  the time limit is a guess, from {estimate}; --time sets another")
    elif seconds is not None and plan.seconds > seconds and not (directory / RUN).exists():
        advice = "the same command, given again, measures what remains"
        print(f"trainscale: {estimate}, more than --time {limit}; {advice}", file=sys.stderr)
    has_gpus = submission.choose_gres(plan.experiment) or any("gpu" in option for option in slurm.sbatch)
    if plan.experiment.resources.device == "cuda" and not has_gpus:
        print("trainscale: no GPUs are requested; most sites need -g N or --gres gpu:N", file=sys.stderr)


def finish(job: submission.SlurmJob, status: JobStatus, run: FollowedRun) -> int:
    cause = status.describe_end()
    if run.is_complete if cause else run.wait_for_records(status):
        return _finish_results(run)
    if run.records:
        _finish_results(run)
    if cause:
        advice = "the same command submits again"
        advice += " and continues" if run.has_begun else ""
        if any(record.status == LOST for record in run.records):
            advice += "; --retry-failed repeats the lost trials"
        print(f"job {job.number} {cause}; {describe_kept(len(run.records))}; {advice}")
        return 130
    if status.state == FORGOTTEN:
        failure = "is over and Slurm has forgotten how it ended"
    else:
        exit_reason = f"signal {status.signal}" if status.signal else f"exit code {status.exit_code}"
        failure = f"ended ({status.state}, {exit_reason})"
    log = run.directory / SLURM / f"job-{job.number}.log"
    try:
        lines = log.read_text(errors="replace").splitlines()[-20:]
        failure += "".join(f"\n  {line}" for line in [*lines, f"(from {log})"])
    except OSError:
        failure += f"; there is no log at {log}"
        failure += "\n  the nodes must see this directory too; name one that they share by -o"
    print(f"trainscale: job {job.number} {failure}", file=sys.stderr)
    return status.exit_code or 1


def _finish_results(followed: FollowedRun) -> int:
    """Return the exit code of a run that ended."""
    report.main([str(followed.directory)])
    return 0 if all(record.ok for record in followed.records) else 1
