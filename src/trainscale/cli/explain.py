"""``trainscale explain DIR``: where the efficiency of a run went, from its journal."""

from __future__ import annotations

from pathlib import Path

from .damage import warn_of_damage
from .parser import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        "explain", "Explain where the efficiency of a run went. The step time of every point is split by cause."
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of a run")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.read(argv)
    from ..runs import Run, explain

    explanation = explain(Run.open(options.directory, warn_of_damage))
    if options.json:
        print(explanation.to_json())
    elif options.markdown:
        print(explanation.to_markdown())
    else:
        print(explanation.text, end="")
    return 0
