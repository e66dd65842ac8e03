"""The completion script for bash, from version 3.2. It uses no other package, such as bash-completion."""

from __future__ import annotations

from .cases import fill_script, write_functions
from .command_lines import CommandLine, flatten

_SCRIPT = r"""# Completion of trainscale in bash. Made by: trainscale completion bash

_trainscale_flags() {
    case $1 in
@FLAGS@
    esac
}

@FUNCTIONS@

# Offer the words that continue the current word after $1.
_trainscale_offer() {
    local head=$1 word
    shift
    for word in "$@"; do
        [[ $head$word == "$current"* ]] && COMPREPLY+=("$head$word")
    done
}

# Offer directories that hold a run, in the typed folder or in the folders there; else all directories.
_trainscale_offer_runs() {
    local head=$1 typed=$2 file
    for file in "$typed"*/run.json "$typed"*/*/run.json; do
        [[ -e $file ]] && COMPREPLY+=("$head${file%/run.json}")
    done
    ((${#COMPREPLY[@]})) || _trainscale_offer_paths "$head" "$typed" -d
}

_trainscale_offer_paths() {
    local head=$1 typed=$2 path
    while IFS= read -r path; do
        COMPREPLY+=("$head$path")
    done < <(compgen "$3" -- "$typed")
}

# Offer values of a kind. $1 stands before the value in the current word, such as --models=
_trainscale_offer_values() {
    local head=$1 kind=$2 typed
    shift 2
    typed=${current#"$head"}
    case $kind in
        words) _trainscale_offer "$head" "$@" ;;
        list)
            [[ $typed == *,* ]] && head=$head${typed%,*},
            _trainscale_offer "$head" "$@"
            ;;
        runs | folders | files)
            typed=${typed//\\/}
            compopt -o filenames 2>/dev/null
            case $kind in
                runs) _trainscale_offer_runs "$head" "$typed" ;;
                folders) _trainscale_offer_paths "$head" "$typed" -d ;;
                files) _trainscale_offer_paths "$head" "$typed" -f ;;
            esac
            ;;
    esac
}

# Put the words of the line into the array words. bash also splits at = and :, here they stay together.
_trainscale_split() {
    local rest=$COMP_LINE word index
    words=()
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if ((index == 0)) || [[ $rest == [[:space:]]* ]]; then
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
        rest=${rest#"$word"}
    done
}

# bash replaces only what follows the last = or : of the current word.
_trainscale_shorten() {
    local breaks=$COMP_WORDBREAKS prefix= index
    [[ $breaks == *=* && $current == *=* ]] && prefix=${current%"${current##*=}"}
    if [[ $breaks == *:* && $current == *:* && ${#current} -gt 0 ]]; then
        local other=${current%"${current##*:}"}
        ((${#other} > ${#prefix})) && prefix=$other
    fi
    for index in "${!COMPREPLY[@]}"; do
        COMPREPLY[index]=${COMPREPLY[index]#"$prefix"}
    done
}

_trainscale() {
    local words current command flag= position=0 index=2 last
    COMPREPLY=()
    _trainscale_split
    last=$((${#words[@]} - 1))
    current=${words[last]}
    if ((last <= 1)); then
        _trainscale_offer "" @COMMANDS@
        return
    fi
    command=${words[1]}
    case $command in
@ACTIONS@
    esac
    for ((; index < last; index++)); do
        if [[ $flag ]]; then
            flag=
        elif [[ ${words[index]} == -* ]]; then
            [[ ${words[index]} != *=* && $(_trainscale_values "$command" "${words[index]}") ]] && flag=${words[index]}
        else
            ((position++))
        fi
    done
    if [[ $current == --*=* ]]; then
        _trainscale_offer_values "${current%%=*}=" $(_trainscale_values "$command" "${current%%=*}")
    elif [[ $current == -* ]]; then
        _trainscale_offer "" $(_trainscale_flags "$command")
    elif [[ $flag ]]; then
        _trainscale_offer_values "" $(_trainscale_values "$command" "$flag")
    else
        _trainscale_offer_values "" $(_trainscale_argument "$command" "$position")
    fi
    _trainscale_shorten
}

complete -F _trainscale trainscale
"""
_ACTIONS = """        {name})
            if ((last == 2)); then
                _trainscale_offer "" {actions}
                return
            fi
            command="$command ${{words[2]}}"
            index=3
            ;;"""


def write_script(commands: tuple[CommandLine, ...]) -> str:
    parts = {
        "COMMANDS": " ".join(command.name for command in commands),
        "ACTIONS": "\n".join(_format_actions(command) for command in commands if command.actions),
        "FLAGS": "\n".join(_format_flags(command) for command in flatten(commands)),
        "FUNCTIONS": write_functions(commands),
    }
    return fill_script(_SCRIPT, parts)


def _format_actions(command: CommandLine) -> str:
    names = " ".join(action.name.split()[-1] for action in command.actions)
    return _ACTIONS.format(name=command.name, actions=names)


def _format_flags(command: CommandLine) -> str:
    names = " ".join(name for flag in command.flags for name in flag.names)
    return f'        "{command.name}") echo "{names}" ;;'
