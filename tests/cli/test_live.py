"""What is seen while a run trains to an accuracy: epochs and steps on a terminal, a line an epoch in a pipe."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import failed_record, make_config
from rich.console import Console
from watched_runs import records, run_info

from trainscale.cli.views import LinePrinter, RunProgress, describe_phase, make_progress_table
from trainscale.launch.trial.state import TrialState
from trainscale.measure.order import NextTrial
from trainscale.measure.watching import make_plan_of_run
from trainscale.record.journal import Journal
from trainscale.record.trial import OK, Epoch, MachineLoad, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import Experiment
from trainscale.worker.data.facts import CIFAR10, KNOWN
from trainscale.worker.job import Measure

CONFIG = Config("torch", "inception-bn-28-small", 64, "allreduce", 28, 10, data="cifar10", epochs=10)
TRIAL = Trial(CONFIG, 2, 0)


def epoch(number: int, valid: float) -> Epoch:
    return Epoch(number, 12.34, 49_920, 1.0, valid - 0.03, 1.0, valid, 10_000)


def finished() -> TrialRecord:
    rank = RankSample(0, "host", 640, 10.0, (1.0,) * 10)
    return TrialRecord(TRIAL, OK, "", 99.0, ranks=(rank,), epochs=(epoch(1, 0.5), epoch(2, 0.7132)))


def progress(*records: TrialRecord) -> RunProgress:
    dataset = SimpleNamespace(is_real=True, facts=KNOWN[CIFAR10])
    plan: Any = SimpleNamespace(
        dataset=dataset,
        configs=(CONFIG,),
        points=[(CONFIG, 2)],
        further_points=(),
        experiment=Experiment.of(repeats=1),
        estimate_seconds=lambda *_: 60.0,
    )
    journal: Any = SimpleNamespace(records=list(records))
    return RunProgress(plan, journal)


def at(phase: str, number: int, *epochs: Epoch) -> RunProgress:
    run = progress()
    run.trial_begins(NextTrial(TRIAL, Measure(10, 100)))
    state = TrialState.begin(TRIAL, 2, 1, 0.0)
    for rank in state.ranks:
        rank.phase, rank.step = phase, number
    state.epochs.extend(epochs)
    run.trial_moves(state)
    return run


def seen(run: RunProgress, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(make_progress_table(run, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("phase", "number", "text"),
    [
        ("epoch 3", 120, "epoch 3/10 · 120/390"),
        ("validation 3", 12, "validation 3/10"),
        ("first step", 0, "first step"),
        ("resident", 25, "on one batch 25"),
        ("warm-up", 4, "warm-up 4"),
    ],
)
def test_the_phase_is_told_with_its_step(phase: str, number: int, text: str) -> None:
    assert describe_phase(at(phase, number, epoch(1, 0.6))) == text


@pytest.mark.parametrize("width", [80, 120])
def test_the_epoch_is_seen_whole_at_every_width_and_the_last_accuracy_stays(width: int) -> None:
    assert "0.7132" in seen(progress(finished()), width)
    text = seen(at("epoch 3", 120, epoch(1, 0.6), epoch(2, 0.7132)), width)
    assert "epoch 3/10 · 120/390" in text
    assert "0.7132" in text


def test_a_pipe_gets_one_line_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    empty = progress()
    listener = LinePrinter(empty.plan, empty.journal)
    listener.trial_begins(NextTrial(TRIAL, Measure(10, 100)))
    state = TrialState.begin(TRIAL, 2, 1, 0.0)
    listener.trial_moves(state)
    state.epochs.append(epoch(1, 0.5))
    listener.trial_moves(state)
    listener.trial_moves(state)
    state.epochs.append(epoch(2, 0.7132))
    listener.trial_moves(state)
    listener.trial_ends(finished())
    label = "torch inception-bn-28-small b64 allreduce · 2 devices · repeat 1"
    assert capsys.readouterr().out.splitlines() == [
        f"{label} · epoch 1/10: train 0.4700, valid 0.5000 (12.3 s)",
        f"{label} · epoch 2/10: train 0.6832, valid 0.7132 (12.3 s)",
        f"{label}: 64 images/s, valid 0.7132 (99 s)",
    ]


# ---- of a run that another process measures


def watched(tmp_path: Path, *trials: TrialRecord) -> RunProgress:
    info = run_info(repeats=3)
    return RunProgress(make_plan_of_run(info), Journal(tmp_path, info, -1, list(trials)), "the run")


def test_the_table_shows_what_is_left(tmp_path: Path) -> None:
    text = seen(watched(tmp_path, *records()[:3]), 100)
    assert "3 of 6 trials · " in text
    assert "Ctrl-C leaves, the run goes on" in text


def test_a_warning_names_the_settings_in_which_candidates_differ(tmp_path: Path) -> None:
    nchw, nhwc = (make_config(layout=layout) for layout in ("nchw", "nhwc"))
    info = run_info(nchw)
    info.spec["series"] += run_info(nhwc).spec["series"]
    progress = RunProgress(make_plan_of_run(info), Journal(tmp_path, info, -1, []))
    for config in (nchw, nhwc):
        progress.trial_ends(replace(records(config)[0], machine=MachineLoad(other_cores=1.5)))
    names = [f"torch alexnet b32 allreduce {layout} · 1 device · repeat 1" for layout in ("nchw", "nhwc")]
    assert progress.warnings == [f"other programs used 1.5 cores during {name}" for name in names]


def test_the_first_trial_corrects_the_estimate_of_all_others(tmp_path: Path) -> None:
    quick, slow = (replace(records()[0], seconds=seconds) for seconds in (0.5, 50.0))
    times = [watched(tmp_path, record).estimate_remaining_seconds() for record in (quick, slow)]
    assert times[1] == pytest.approx(100 * times[0])


def test_warnings_are_shown_as_they_arise_and_only_the_last_ones(tmp_path: Path) -> None:
    progress = watched(tmp_path)
    busy = replace(records()[0], machine=MachineLoad(other_cores=1.5))
    progress.trial_ends(busy)
    assert progress.new_warnings == ["other programs used 1.5 cores during " + busy.trial.label]
    progress.trial_ends(busy)
    assert progress.new_warnings == []  # each is told once
    progress.trial_ends(failed_record(make_config(), 2, message="no memory\nmore"))
    assert "warning: other programs used 1.5 cores" in seen(progress, 100)
    assert ": failed: no memory" in " ".join(seen(progress, 100).split())
    for number in range(3):
        progress.trial_ends(replace(records()[0], notes=(f"note {number}",)))
    text = seen(progress, 100)
    assert "other programs" not in text
    assert "warning: note 2" in text
