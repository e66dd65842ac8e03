"""Commands that measure what an answer lacks."""

import shlex
from collections.abc import Collection

from ..record.run import RunInfo

# Flags without a value; another one may stand behind --search.
_SWITCHES = {"--study", "--fresh", "--retry-failed", "--json", "--quiet", "--explain"}
_SEARCHES = ("default", "lists")


def change_command(run: RunInfo, without: Collection[str], *added: str) -> str:
    """Return the command of a run without some flags, and with others."""
    kept, removed = [], ""
    for word in shlex.split(run.read_provenance().command or "trainscale run"):
        flag = word.partition("=")[0]
        is_value = bool(removed) and (removed != "--search" or word in _SEARCHES)
        removed = ""
        if is_value:
            continue
        if flag not in without:
            kept.append(word)
        elif "=" not in word and flag not in _SWITCHES:
            removed = flag
    return shlex.join([*kept, *added])
