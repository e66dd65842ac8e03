"""Signals interrupt a run in the main thread; in another thread a run leaves them alone."""

from __future__ import annotations

import os
import signal
import threading

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


def test_in_another_thread_the_handlers_stay() -> None:
    before, during = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with signals_interrupt():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert during == [before]
