"""Commands with actions: ``trainscale env``, ``trainscale data`` and ``trainscale cluster``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import InputError, explain_unknown

Action = Callable[[list[str]], int]


def run_action(command: str, argv: list[str], actions: Mapping[str, Action], help_text: str) -> int:
    """Call the action that ``argv`` begins with, or print the help; return the exit code."""
    if argv and argv[0] in ("-h", "--help", "help"):
        print(help_text)
        return 0
    if not argv:
        raise InputError(f"{command}: no action\n  valid: {', '.join(f'{command} {name}' for name in actions)}")
    if argv[0] not in actions:
        raise explain_unknown("flag" if argv[0].startswith("-") else "action", argv[0], (*actions, "--help", "--debug"))
    return actions[argv[0]](argv[1:])
