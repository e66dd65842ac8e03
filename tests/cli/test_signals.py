"""Signals interrupt a run in the main thread; in another thread a run leaves them alone."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainscale.cli.signals import interrupt_on_signals


def test_a_signal_to_terminate_interrupts_and_its_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        _terminate_itself()
    assert signal.getsignal(signal.SIGTERM) is before


def _terminate_itself(number: signal.Signals = signal.SIGTERM) -> None:
    with interrupt_on_signals():
        os.kill(os.getpid(), number)
        signal.pause()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_warning_of_slurm_interrupts_unless_the_program_has_its_own_use_for_it(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        _terminate_itself(number)
    noted: list[int] = []
    before = signal.signal(number, lambda received, _: noted.append(received))
    try:
        with interrupt_on_signals():
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert noted == [number]


# It takes a minute to end in order, and does not listen to exceptions meanwhile.
SLOW_TO_END = """
import contextlib, os, signal, sys, time
from trainscale.cli.signals import interrupt_on_signals
with interrupt_on_signals(ends_process=sys.argv[1] == "command"):
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        end, line = time.monotonic() + 60, b"first\\n"
        while time.monotonic() < end:
            try:
                written, line = line, b""
                os.write(1, written)  # a print that the next signal interrupts would be repeated
                time.sleep(1)
            except KeyboardInterrupt:
                print("again", flush=True)
                if sys.argv[1] != "command":
                    break
sys.exit(3)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("kind", "code"), [("command", 130), ("program", 3)])
def test_a_second_ctrl_c_ends_a_command_at_once_but_not_a_users_program(kind: str, code: int) -> None:
    argv = [sys.executable, "-c", SLOW_TO_END, kind]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's job ignores it
    ) as process:
        assert process.stdout is not None
        for line in ("ready\n", "first\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=40)
    assert process.returncode == code
    assert output == "again\n"
    assert errors.count("interrupted again: ending at once") == (kind == "command")


def test_the_same_signal_from_two_senders_is_one_signal() -> None:
    """As when a terminal is closed: the system and the shell both say so."""
    with interrupt_on_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_journal_opens_is_an_interruption_too(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from trainscale import cli\n"
        "from trainscale.measure import measure\n"
        f"measure.make_launcher = lambda *_, **__: os.kill(os.getpid(), {int(number)})\n"
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
        with interrupt_on_signals():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert during == [before]
