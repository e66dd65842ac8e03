"""The completion script for zsh. It may be evaluated, or be a file ``_trainscale`` in a folder of ``$fpath``."""

from __future__ import annotations

from .cases import fill_script, write_functions
from .command_lines import CommandLine, flatten

_SCRIPT = r"""#compdef trainscale
# Completion of trainscale in zsh. Made by: trainscale completion zsh

# Set the array described: every flag of a command, with its help.
_trainscale_flags() {
    case $1 in
@FLAGS@
    esac
}

@FUNCTIONS@

# Offer directories that hold a run, in the typed folder or in the folders there; else all directories.
_trainscale_offer_runs() {
    local -a runs
    runs=(${(Q)PREFIX}*/run.json(N:h) ${(Q)PREFIX}*/*/run.json(N:h))
    if (( $#runs )); then
        compadd -f -- $runs
    else
        _files -/
    fi
}

_trainscale_offer_values() {
    local kind=$1
    (( $# )) && shift
    case $kind in
        words) compadd -- "$@" ;;
        list)
            compset -P '*,'
            compadd -- "$@"
            ;;
        runs) _trainscale_offer_runs ;;
        folders) _files -/ ;;
        files) _files ;;
    esac
}

_trainscale() {
    local line word flag
    local -a described
    integer index=3 position=0
    if (( CURRENT == 2 )); then
        described=(
@COMMANDS@
        )
        _describe command described
        return
    fi
    line=$words[2]
    case $line in
@ACTIONS@
    esac
    for (( ; index < CURRENT; index++ )); do
        word=$words[index]
        if [[ -n $flag ]]; then
            flag=
        elif [[ $word == -* ]]; then
            [[ $word != *=* && -n $(_trainscale_values $line $word) ]] && flag=$word
        else
            (( position++ ))
        fi
    done
    if [[ $PREFIX == --*=* ]]; then
        flag=${PREFIX%%=*}
        compset -P 1 '*='
        _trainscale_offer_values $(_trainscale_values $line $flag)
    elif [[ $PREFIX == -* ]]; then
        _trainscale_flags $line
        _describe -o flag described
    elif [[ -n $flag ]]; then
        _trainscale_offer_values $(_trainscale_values $line $flag)
    else
        _trainscale_offer_values $(_trainscale_argument $line $position)
    fi
}

if [[ $funcstack[1] == _trainscale ]]; then
    _trainscale "$@"
else
    compdef _trainscale trainscale
fi
"""
_ACTIONS = """        {name})
            if (( CURRENT == 3 )); then
                described=(
{actions}
                )
                _describe action described
                return
            fi
            line="$line $words[3]"
            index=4
            ;;"""


def write_script(commands: tuple[CommandLine, ...]) -> str:
    parts = {
        "COMMANDS": "\n".join(" " * 12 + _format_description(command.name, command.help) for command in commands),
        "ACTIONS": "\n".join(_format_actions(command) for command in commands if command.actions),
        "FLAGS": "\n".join(_format_flags(command) for command in flatten(commands)),
        "FUNCTIONS": write_functions(commands),
    }
    return fill_script(_SCRIPT, parts)


def _format_description(name: str, text: str) -> str:
    """Return a word with its description, as _describe takes it."""
    described = f"{name.replace(':', chr(92) + ':')}:{text}"
    return "'" + described.replace("'", "'\\''") + "'"


def _format_actions(command: CommandLine) -> str:
    lines = [" " * 20 + _format_description(action.name.split()[-1], action.help) for action in command.actions]
    return _ACTIONS.format(name=command.name, actions="\n".join(lines))


def _format_flags(command: CommandLine) -> str:
    described = " ".join(_format_description(name, flag.help) for flag in command.flags for name in flag.names)
    return f'        "{command.name}") described=({described}) ;;'
