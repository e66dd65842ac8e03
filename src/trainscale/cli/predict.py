"""``trainscale predict DIR``: what more devices than were measured would bring, or why that would be a guess."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..questions.predict.predict import MOST_TIMES
from ..spec.settings import whole
from .damage import warn_of_damage
from .parser import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        "predict",
        "Predict the speed on more devices than were measured, with an interval, or explain why that would be a guess."
        " The exit code is 1 if nothing can be predicted.",
    )
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run")
    add(
        "--devices",
        metavar="N,…",
        help=f"device counts (default: 2 and {MOST_TIMES} times the largest that was measured; more is refused)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.read(argv)
    try:
        words = options.devices.split(",") if options.devices is not None else []
        counts = list(dict.fromkeys(int(whole(1).read_text(word.strip())) for word in words))
    except ValueError as error:
        raise InputError(f"--devices: {error}") from None
    from ..runs import Run, predict

    all_predicted = predict(Run.open(options.directory, warn_of_damage), counts)
    from ..questions.predict import text

    if options.json:
        print(text.render_prediction_json(all_predicted), end="")
    elif options.markdown:
        print(text.render_prediction_markdown(all_predicted), end="")
    else:
        text.print_predictions(all_predicted)
    return 0 if any(predicted.predictions for predicted in all_predicted) else 1
