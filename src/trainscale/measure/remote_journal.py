"""A copy of the journal of a run on another host, which one ssh connection keeps up to date.

The host needs a shell and the usual tools, but not trainscale. A small script there sends what is new once a second. It
ends when the connection does.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from ..cluster.hosts import Host, HostAccess
from ..errors import InputError, TrainscaleError
from ..launch.launchers.ssh import SshSettings, make_ssh_command
from ..launch.ssh_errors import explain_ssh_error
from ..record.journal import RUN, TRIALS

_START_SECONDS = 60.0
_SILENT_SECONDS = 60.0
_END_SECONDS = 5.0

# Every message is a line; after «file NAME BYTES» and «more BYTES» come as many bytes. LC_ALL=C: lengths are in bytes.
_SCRIPT = r"""LC_ALL=C; export LC_ALL
case $1 in "~/"*) folder=$HOME/${1#??} ;; *) folder=$1 ;; esac
cd -- "$folder" 2>/dev/null && [ -f run.json ] || { echo absent; exit 0; }
run= batches= parity= sent=0
while :; do
    for name in run batches parity; do
        [ -f $name.json ] || continue
        text=$(cat $name.json)
        eval "before=\$$name"
        if [ "$text" != "$before" ]; then
            echo "file $name.json ${#text}"
            printf %s "$text"
            eval "$name=\$text"
        fi
    done
    if [ -f trials.jsonl ]; then
        if command -v flock >/dev/null; then
            if flock -n -s trials.jsonl true; then state=free; else state=held; fi
        else
            state=unknown
        fi
        size=$(($(wc -c <trials.jsonl)))
        [ $size -lt $sent ] && { echo again; sent=0; }
        # Only complete lines: an incomplete one may be cut off when the run is continued.
        lines=$(tail -c +$((sent + 1)) trials.jsonl | head -c $((size - sent)) | wc -l)
        if [ $lines -gt 0 ]; then
            new=$(($(tail -c +$((sent + 1)) trials.jsonl | head -n $lines | wc -c)))
            echo "more $new"
            tail -c +$((sent + 1)) trials.jsonl | head -c $new
            sent=$((sent + new))
        fi
    else
        state=free
    fi
    echo "lock $state"
    sleep 1
done
"""


class RemoteJournal:
    """Use it in a with block. Entering it waits until the copy is complete."""

    def __init__(self, host: Host, directory: str, settings: SshSettings) -> None:
        self._host = host
        self._remote_directory = directory
        argv = make_ssh_command(HostAccess(), settings, host)
        self._argv = [*argv, "--", host.name, shlex.join(["exec", "/bin/sh", "-s", "--", directory])]
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-watch-")
        self._news = threading.Condition()
        self._rounds = 0  # how often the host has sent all that is new
        self._lock_state = ""
        self._is_absent = self._is_over = False

    @property
    def directory(self) -> Path:
        return Path(self._folder.name)

    def __enter__(self) -> RemoteJournal:
        self._errors = tempfile.TemporaryFile()
        self._ssh = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._ssh.stdout,), daemon=True)
        self._reader.start()
        try:
            self._ssh.stdin.write(_SCRIPT.encode())
            self._ssh.stdin.close()
        except BrokenPipeError:
            pass  # ssh has ended; its messages say why
        try:
            self._wait_for_round(1, _START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ssh.terminate()
        try:
            self._ssh.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._reader.join(_END_SECONDS)
        if self._ssh.stdout:
            self._ssh.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def is_measured(self) -> bool:
        """Wait for the next round. On a host without the command flock, a run counts as measured."""
        self._wait_for_round(self._rounds + 1, _SILENT_SECONDS)
        return self._lock_state != "free"

    def _wait_for_round(self, number: int, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._rounds >= number or self._is_over, seconds)
        if self._is_absent:
            raise InputError(
                f"{self._host.name}:{self._remote_directory}: no run was recorded there (there is no {RUN});"
                " a relative path begins in the home directory"
            )
        if self._rounds >= number:
            return
        if not self._is_over:
            raise TrainscaleError(f"{self._host.name}: no message for {seconds:.0f} s; the run there is not affected")
        self._ssh.wait()
        self._errors.seek(0)
        error = explain_ssh_error(self._errors.read().decode(errors="replace"), self._host.name)
        remedy = f"\n  {error.remedy}" if error.remedy else ""
        raise TrainscaleError(f"{self._host.name}: {error.reason}{remedy}")

    def _read(self, stream: IO[bytes]) -> None:
        """Write what arrives to the copy, until the connection ends."""
        while line := stream.readline().split():
            kind = line[0]
            if kind == b"file":
                (self.directory / line[1].decode()).write_bytes(stream.read(int(line[2])))
            elif kind == b"again":
                (self.directory / TRIALS).write_bytes(b"")
            elif kind == b"more":
                with (self.directory / TRIALS).open("ab") as file:
                    file.write(stream.read(int(line[1])))
            elif kind == b"lock":
                self._lock_state = line[1].decode()
                self._notify(rounds=1)
            elif kind == b"absent":
                self._is_absent = True
        self._notify(is_over=True)

    def _notify(self, rounds: int = 0, is_over: bool = False) -> None:
        with self._news:
            self._rounds += rounds
            self._is_over = is_over
            self._news.notify_all()
