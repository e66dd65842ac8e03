"""``trainscale study DIR --for proposal``: a run as the text that a request for computing time needs."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, explain_unknown
from ..questions.study.study import FORMATS, GOOD_EFFICIENCY, Training
from ..record.files import write_atomically
from ..spec.settings import whole
from .damage import warn_of_damage
from .parser import Parser

if TYPE_CHECKING:
    from ..runs import Run

PURPOSES = ("proposal",)
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    for name, value, valid in (("purpose", options.purpose, PURPOSES), ("format", options.format, FORMATS)):
        if value not in valid:
            raise explain_unknown(name, value, valid, "--for" if name == "purpose" else "--format")
    efficiency = _read_efficiency(options.efficiency)
    devices = _read_count(options.devices, "--devices")
    from ..runs import Run, study

    run = Run.open(options.directory, warn_of_damage)
    studies = study(run, devices, efficiency, _read_training(options, run))
    from ..questions.study.render import render_studies

    text = render_studies(studies, options.format)
    if options.output is None:
        print(text, end="")
        return 0
    if not options.output.parent.is_dir():
        raise InputError(f"--output {options.output}: No such file or directory")
    try:
        write_atomically(options.output, text)
    except OSError as error:
        raise InputError(f"--output {options.output}: {error.strerror}") from error
    print(f"{options.output}: written")
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


def _read_count(text: str | None, flag: str) -> int | None:
    try:
        return None if text is None else int(whole(1).read_text(text))
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


def _read_training(options: Namespace, run: Run) -> Training | None:
    epochs, samples = _read_count(options.epochs, "--epochs"), _read_count(options.data_size, "--data-size")
    if epochs is None:
        if samples is not None:
            raise InputError("--data-size: valid together with --epochs")
        return None
    if samples is None:
        data = run.info.read_provenance().data
        if data is None or data.train is None:
            raise InputError(
                "--epochs: this run has synthetic data, which has no size; valid together with --data-size"
            )
        samples = data.train
    return Training(epochs, samples)
