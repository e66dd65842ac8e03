"""Signals interrupt a run in the main thread; in another thread a run leaves them alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainscale.cli.signals import signals_interrupt


def test_a_signal_to_terminate_interrupts_and_its_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        _terminate_itself()
    assert signal.getsignal(signal.SIGTERM) is before


def _terminate_itself() -> None:
    with signals_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_journal_opens_is_an_interruption_too(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from trainscale import cli\n"
        "from trainscale.cli import run\n"
        f"run.find_target = lambda *_, **__: os.kill(os.getpid(), {int(number)})\n"
        "sys.exit(cli.main(['run', '--models', 'mnist:8', '-o', 'out']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # these tests may run under nohup
    )
    assert (done.returncode, done.stderr) == (130, "trainscale: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_in_another_thread_the_handlers_stay() -> None:
    before, during = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with signals_interrupt():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert during == [before]
