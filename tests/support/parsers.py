"""The parsers of all commands, as the commands make them."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

from trainscale.cli import COMMANDS, find_command
from trainscale.cli.parser import Parser


class _Reached(BaseException):
    """Ends a command when it reads its arguments."""


@cache
def collect_parsers() -> dict[str, Parser]:
    """Return the parser of every command, and of every action of one, by what is typed: ``run``, ``env create``."""
    parsers: dict[str, Parser] = {}

    def read(parser: Parser, _: list[str]) -> None:
        actions = parser.by_action.items()
        parsers.update({f"{command} {name}": of_action for name, of_action in actions} or {command: parser})
        raise _Reached

    with patch.object(Parser, "read", read):
        for command in COMMANDS:
            try:
                find_command(command)([])
            except _Reached:
                pass
    return parsers
