"""Describes how a process ended."""

from __future__ import annotations

import signal


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(code: int) -> str:
    """Return "was ended by SIGKILL" for a negative exit code, else "ended with exit code 3"."""
    return f"was ended by {name_signal(-code)}" if code < 0 else f"ended with exit code {code}"
