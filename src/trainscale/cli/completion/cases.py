"""What bash and zsh write alike: functions that print what may follow a flag, and what an argument may be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .command_lines import CommandLine, Flag, flatten

_FUNCTIONS = """\
# Print what may follow a flag: its kind, and words. Print nothing if the flag takes no value.
_trainscale_values() {
    case "$1 $2" in
@VALUES@
    esac
}

# Print what an argument may be, by its position.
_trainscale_argument() {
    case "$1 $2" in
@ARGUMENTS@
    esac
}"""


def write_functions(commands: tuple[CommandLine, ...]) -> str:
    """Return the functions ``_trainscale_values`` and ``_trainscale_argument``."""
    arguments = "\n".join(line for command in flatten(commands) for line in _write_arguments(command))
    return _FUNCTIONS.replace("@VALUES@", "\n".join(_write_values(commands))).replace("@ARGUMENTS@", arguments)


def fill_script(script: str, parts: dict[str, str]) -> str:
    """Replace ``@NAME@`` by the part of that name."""
    for name, text in parts.items():
        script = script.replace(f"@{name}@", text)
    return script


def _write_values(commands: tuple[CommandLine, ...]) -> Iterator[str]:
    """Yield a line of the case for all flags that take the same values. Many commands share their flags."""
    patterns: defaultdict[str, list[str]] = defaultdict(list)
    for command in flatten(commands):
        for name, flag in _list_flags_with_values(command):
            patterns[str(flag.values)].append(f'"{command.name} {name}"')
    for values, texts in patterns.items():
        yield f'        {" | ".join(texts)}) echo "{values}" ;;'


def _list_flags_with_values(command: CommandLine) -> Iterator[tuple[str, Flag]]:
    """Yield every spelling of every flag that takes a value."""
    return ((name, flag) for flag in command.flags if flag.values for name in flag.names)


def _write_arguments(command: CommandLine) -> Iterator[str]:
    """Yield a line of the case for every argument."""
    for position, argument in enumerate(command.arguments):
        pattern = f'"{command.name} "*' if argument.is_repeated else f'"{command.name} {position}"'
        yield f'        {pattern}) echo "{argument.values}" ;;'
