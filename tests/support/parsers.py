"""The parsers of all commands, as the commands make them."""

from __future__ import annotations

import sys
from functools import cache
from unittest.mock import patch

from trainscale.cli import COMMANDS, find_command
from trainscale.cli.parser import Parser


class _Reached(BaseException):
    """Ends a command when it reads its arguments."""


@cache
def collect_parsers() -> dict[str, Parser]:
    """Return the parser of every command, and of every action of one, by what is typed: ``run``, ``env create``."""
    parsers = {}

    def read(parser: Parser, _: list[str]) -> None:
        parsers[name] = parser
        raise _Reached

    with patch.object(Parser, "read", read):
        for command in COMMANDS:
            function = find_command(command)
            actions = getattr(sys.modules[function.__module__], "ACTIONS", None)
            for name in [f"{command} {action}" for action in actions] if actions else [command]:
                try:
                    function(name.split()[1:])
                except _Reached:
                    pass
    return parsers
