"""Reads what Hadoop's programs and the ResourceManager print: what went wrong, and what a container may get at most."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Lines of the distributed shell that do not say what went wrong.
_ROUTINE = re.compile(
    r"Application failed to complete successfully|Breaking monitoring loop|^\s*at |^\s*$|Got application"
)
# Lines of diagnostics that are the same whatever went wrong.
_BOILERPLATE = re.compile(
    r"^\s*$|Exception from container-launch|^Container id:|^Exit code:|^Shell (output|error output):|^Last \d+ bytes of"
    r"|^For more detailed output|Failing this attempt|Failing the application|^Stack trace|^\s*at "
    r"|^(\[[^\]]*\])?Container exited with a non-zero exit code"
)
_EXIT_CODE = re.compile(r"exited with a non-zero exit code -?\d+")
_MOST_LINES, _LONGEST_LINE = 3, 300
_RETRYING = re.compile(r"Retrying connect to server: (\S+?)[.]? Already tried (\d{1,9}) time")
# The spelling of the word differs between versions.
_MAXIMUM = re.compile(r"Max (mem|virtual cores|vcores) capabil\w+ of resources in this cluster (\d{1,18})(?!\d)")


def find_error(output: str) -> str:
    """Return the line in which a Java program says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if not _ROUTINE.search(line)]
    for pattern in (r"Caused by: ", r"Exception\b", r"\b(ERROR|FATAL)\b"):
        matching = [line for line in lines if re.search(pattern, line)]
        if matching:
            return matching[-1].removeprefix("Caused by: ")
    return lines[-1] if lines else "its client ended without a message"


def summarise_diagnostics(text: str) -> str:
    """Return the lines of an application's diagnostics that say what went wrong: the first, and the last ones, among
    which is what a container wrote to its standard error output.
    """
    lines = [line.strip()[:_LONGEST_LINE] for line in text.splitlines() if not _BOILERPLATE.search(line)]
    lines = list(dict.fromkeys(lines))
    if not lines:
        match = _EXIT_CODE.search(text)
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return f"a container {match[0]}" if match else first[:_LONGEST_LINE]
    return "; ".join([lines[0], *lines[1:][-(_MOST_LINES - 1) :]])


def find_retries(output: str) -> str:
    """Return which server the client cannot reach, if it tries again now; else nothing."""
    matches = _RETRYING.findall(output)
    return f"{matches[-1][0]}, tried {int(matches[-1][1]) + 1} times" if matches else ""


def find_caps(output: str, argv: Sequence[str]) -> list[str]:
    """Return a sentence for each resource of which the client's command requests more than a container can get."""
    maxima = {"memory" if name == "mem" else "vcores": int(most) for name, most in _MAXIMUM.findall(output)}
    units = {"memory": "MB of memory", "vcores": "cores"}
    sentences = []
    for name, most in maxima.items():
        option = f"-container_{name}"
        given = next((argv[i + 1] for i, argument in enumerate(argv[:-1]) if argument.lstrip("-") == option[1:]), "")
        if given.isdecimal() and len(given) < 19 and int(given) > most:
            sentences.append(f"a container gets {most} {units[name]}, not {given}: this is the cluster's maximum")
    return sentences
