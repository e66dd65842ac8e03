"""``trainscale study DIR --for proposal``: a run as the text that a request for computing time needs."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..analyse.prediction.predict import Refusal
from ..analyse.series import build_series
from ..analyse.study import (
    GOOD_EFFICIENCY,
    Study,
    StudyQuestion,
    Training,
    make_studies,
    predict_size,
    select_studied_records,
    select_studied_series,
)
from ..errors import InputError, explain_unknown
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..record.run import RunInfo
from ..spec.value_types import whole
from .damage import warn_of_damage
from .parser import Parser

PURPOSES = ("proposal",)
FORMATS = ("text", "markdown", "latex", "json")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")
# Flags of the run's command that a study sets itself, and whether a value follows them.
_REPLACED = {"--scaling", "--devices", "-x", "--max-devices", "-o", "--output", "--repeats", "--budget"}
_REPLACED |= {"--until-interval", "--until-accuracy", "--epochs"}
_REPLACED_SWITCHES = {"--study", "--fresh", "--retry-failed", "--json", "--quiet"}


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    for name, value, valid in (("purpose", options.purpose, PURPOSES), ("format", options.format, FORMATS)):
        if value not in valid:
            raise explain_unknown(name, value, valid, "--for" if name == "purpose" else "--format")
    directory, efficiency = options.directory, _read_efficiency(options.efficiency)
    devices = None if options.devices is None else _read_count(options.devices, "--devices")
    run, records = read_run(directory), read_trials(directory, warn_of_damage)
    records = select_studied_records(run, records)
    if not records:
        raise InputError(f"{directory}: no trial of this run has finished; continue it with the command that began it")
    all_series = build_series(records, read_parity(directory), by_budget=run.is_sequential)
    training = _read_training(options, run)
    studied = select_studied_series(all_series)
    if not studied:
        raise InputError(
            f"{directory}: this run has no result on several devices, so there is no scaling; this command measures"
            f" it:\n  {make_measuring_command(run)}"
        )
    largest = max(point.devices for series in studied for point in series.good)
    question = StudyQuestion(devices or largest, efficiency, training)
    studies = [predict_size(study, run) for study in make_studies(all_series, records, question, run.is_sequential)]
    _check_is_known(studies, run)
    _write(_make_document(options.format, studies, run), options.output)
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        "study",
        "Write the scaling part of a request for computing time: tables of weak and strong scaling, the efficiency at"
        " a size, the cost of a training, and the method. A size that was not measured is predicted if the measured"
        " points allow it.",
    )
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run; trainscale run --study measures all of it")
    add("--for", dest="purpose", default=PURPOSES[0], metavar="PURPOSE", help=f"{', '.join(PURPOSES)} (default)")
    add("--devices", metavar="N", help="the number of devices that is requested (default: the most that were measured)")
    add(
        "--efficiency",
        metavar="SHARE",
        help=f"name the largest size with at least this efficiency (default: {GOOD_EFFICIENCY:.0%})".replace("%", "%%"),
    )
    add("--epochs", metavar="N", help="compute the cost of a training of N epochs")
    add("--data-size", metavar="N", help="samples of an epoch (default: those of the data set of the run)")
    add("-o", "--output", type=Path, metavar="FILE", help="the file (default: standard output)")
    add("--format", default="text", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: text)")
    return parser


# ---- reading the command line


def _read_count(text: str, flag: str) -> int:
    try:
        return int(whole(1).parse(text))
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from None


def _read_efficiency(text: str | None) -> float:
    if text is None:
        return GOOD_EFFICIENCY
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise InputError(f"--efficiency {text}: valid: above 0, at most 100%, such as 70% or 0.7")
    return share


def _read_training(options: argparse.Namespace, run: RunInfo) -> Training | None:
    if options.epochs is None:
        if options.data_size is not None:
            raise InputError("--data-size: valid together with --epochs")
        return None
    epochs = _read_count(options.epochs, "--epochs")
    if options.data_size is not None:
        return Training(epochs, _read_count(options.data_size, "--data-size"))
    data = run.read_provenance().data
    if data is None or data.train is None:
        raise InputError("--epochs: this run has synthetic data, which has no size; valid together with --data-size")
    return Training(epochs, data.train)


def _check_is_known(studies: Sequence[Study], run: RunInfo) -> None:
    """Raise an error if the size that is asked for was neither measured nor can be predicted."""
    ladders = [ladder for study in studies for ladder in study.ladders]
    refusals = [ladder.predicted for ladder in ladders if isinstance(ladder.predicted, Refusal)]
    if len(refusals) < len(ladders):
        return
    devices = studies[0].devices
    measured = sorted({point.devices for ladder in ladders for point in ladder.series.points})
    reasons = "; ".join(dict.fromkeys(refusal.reason for refusal in refusals))
    raise InputError(
        f"--devices {devices}: not measured, and a prediction would be a guess: {reasons};"
        f" measured: {', '.join(map(str, measured))}; this command measures it:"
        f"\n  {make_measuring_command(run, [*measured, devices])}"
    )


def make_measuring_command(run: RunInfo, devices: Sequence[int] = ()) -> str:
    """Return the command of the run as one that measures both ladders, on these device counts if there are any."""
    kept, is_value = [], False
    for word in shlex.split(run.read_provenance().command or "trainscale run"):
        flag = word.partition("=")[0]
        if is_value:
            is_value = False
        elif flag in _REPLACED:
            is_value = "=" not in word
        elif word not in _REPLACED_SWITCHES:
            kept.append(word)
    ladder = ["--devices", ",".join(map(str, sorted(devices)))] if devices else []
    return shlex.join([*kept, "--study", *ladder])


def _make_document(name: str, studies: Sequence[Study], run: RunInfo) -> str:
    from ..report import study_formats
    from ..report.study_document import make_study_blocks

    command = make_measuring_command(run)
    documents = [list(make_study_blocks(study, run, command)) for study in studies]
    if name == "json":
        return study_formats.render_study_json(studies, documents, command)
    writers = {
        "text": study_formats.render_study_text,
        "markdown": study_formats.render_study_markdown,
        "latex": study_formats.render_study_latex,
    }
    return writers[name](documents)


def _write(text: str, path: Path | None) -> None:
    if path is None:
        print(text, end="")
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"--output {path}: {error.strerror}") from error
    print(f"{path}: written")
