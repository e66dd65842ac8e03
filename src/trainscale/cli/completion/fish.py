"""The completion script for fish, from version 3."""

from __future__ import annotations

from collections.abc import Iterator

from .command_lines import FILES, FOLDERS, LIST, RUNS, WORDS, CommandLine, Flag, Values, flatten

_FUNCTIONS = r"""# Completion of trainscale in fish. Made by: trainscale completion fish

# Whether the typed words begin with these.
function __trainscale_at
    set -l typed (commandline -opc)
    set -e typed[1]
    test (count $typed) -ge (count $argv)
    or return 1
    set -l first $typed[1..(count $argv)]
    test "$first" = "$argv"
end

# Whether so many words are typed before the current one.
function __trainscale_typed
    test (count (commandline -opc)) -eq $argv[1]
end

# Print the current word up to its last comma, with each of these words.
function __trainscale_list
    set -l typed (commandline -ct | string replace -r '^--[^=]*=' '')
    set -l head (string match -r '^.*,' -- $typed)
    set -q head[1]
    or set head ''
    printf '%s\n' $head$argv
end

# Print directories that hold a run, in the typed folder or in the folders there; else all directories.
function __trainscale_runs
    set -l typed (commandline -ct | string replace -r '^--[^=]*=' '')
    set -q typed[1]
    or set typed ''
    set -l runs $typed*/run.json $typed*/*/run.json
    if set -q runs[1]
        string replace -r '/run.json$' '' -- $runs
    else
        __fish_complete_directories $typed ''
    end
end

complete -c trainscale -f
"""
_QUOTE = str.maketrans({"\\": "\\\\", "'": "\\'"})


def write_script(commands: tuple[CommandLine, ...]) -> str:
    return _FUNCTIONS + "\n".join(_write_lines(commands)) + "\n"


def _write_lines(commands: tuple[CommandLine, ...]) -> Iterator[str]:
    for command in commands:
        yield _format_line("__trainscale_typed 1", f"-a {_quote(command.name)} -d {_quote(command.help)}")
        for action in command.actions:
            condition = f"__trainscale_at {command.name}; and __trainscale_typed 2"
            yield _format_line(condition, f"-a {_quote(action.name.split()[-1])} -d {_quote(action.help)}")
    for command in flatten(commands):
        condition = f"__trainscale_at {command.name}"
        for flag in command.flags:
            yield _format_line(condition, f"{_format_names(flag)}{_format_values(flag.values)} -d {_quote(flag.help)}")
        for argument in command.arguments:
            offered = _format_offer(argument.values)
            if offered:
                yield _format_line(f"{condition}; and not __trainscale_typed 1", offered)


def _format_line(condition: str, rest: str) -> str:
    return f"complete -c trainscale -n {_quote(condition)} {rest}"


def _format_names(flag: Flag) -> str:
    return " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)


def _format_values(values: Values | None) -> str:
    """Return the part of the line for what follows a flag."""
    if values is None:
        return ""
    offered = _format_offer(values)
    return f" -r {offered}" if offered else " -x"


def _format_offer(values: Values) -> str:
    """Return how values are offered. Empty for values that nothing is known about."""
    joined_words = " ".join(values.words)
    offers = {
        WORDS: f"-f -a {_quote(joined_words)}",
        LIST: f"-f -a {_quote(f'(__trainscale_list {joined_words})')}",
        RUNS: "-f -a '(__trainscale_runs)'",
        FOLDERS: "-f -a '(__fish_complete_directories)'",
        FILES: "-F",
    }
    return offers.get(values.kind, "")


def _quote(text: str) -> str:
    return f"'{text.translate(_QUOTE)}'"
