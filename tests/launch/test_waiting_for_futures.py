"""Ctrl-C ends waits of the main thread also if another thread received the signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from trainscale.launch.connected_hosts import wait_for_futures


def interrupt_elsewhere() -> None:
    """Let a thread other than the main one receive Ctrl-C."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.fixture(autouse=True)
def _ctrl_c_is_noticed() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_ctrl_c_ends_a_wait_for_futures() -> None:
    endless: Future[None] = Future()
    threading.Timer(0.3, interrupt_elsewhere).start()
    with pytest.raises(KeyboardInterrupt):
        wait_for_futures([endless])


def test_an_exception_ends_the_wait_though_other_futures_go_on() -> None:
    endless, failed = Future[None](), Future[None]()
    failed.set_exception(ValueError("no numbers"))
    with pytest.raises(ValueError, match="no numbers"):
        wait_for_futures([endless, failed])


def test_all_futures_are_waited_for() -> None:
    results: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        wait_for_futures([pool.submit(results.append, number) for number in range(5)])
        assert sorted(results) == [0, 1, 2, 3, 4]
    wait_for_futures([])
