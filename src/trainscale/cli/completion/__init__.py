"""``trainscale completion bash|zsh|fish``: a script by which a shell completes commands, flags and their values."""

from __future__ import annotations

from ...errors import InputError, explain_unknown
from ..parser import Parser

SHELLS = ("bash", "zsh", "fish")
_HELP = """Print a script that completes commands, flags and values. For this shell only:
  bash: eval "$(trainscale completion bash)"
  zsh: eval "$(trainscale completion zsh)"
  fish: trainscale completion fish | source"""


def main(argv: list[str]) -> int:
    from argparse import RawDescriptionHelpFormatter

    parser = Parser("completion", _HELP, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("shell", nargs="?", metavar="SHELL", help=", ".join(SHELLS))
    shell = parser.read(argv).shell
    if shell is None:
        raise InputError(f"completion: no shell is named\n  valid: {', '.join(SHELLS)}")
    if shell not in SHELLS:
        raise explain_unknown("shell", shell, SHELLS)
    print(make_script(shell), end="")
    return 0


def make_script(shell: str) -> str:
    """Return the script for a shell, made from the parsers of all commands."""
    from . import bash, fish, zsh
    from .command_lines import describe_commands

    write = {"bash": bash.write_script, "zsh": zsh.write_script, "fish": fish.write_script}[shell]
    return write(describe_commands())
