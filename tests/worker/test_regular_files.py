"""Files that a person names: what is no regular file is refused and not waited for."""

import os
import socket
from pathlib import Path

import pytest

from trainscale.worker.regular_files import open_regular, read_regular


def reason(path: str | Path, most_bytes: int = 100) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        read_regular(path, most_bytes)
    return str(caught.value.strerror)


def test_what_never_ends_is_no_file_or_can_be_no_name_is_refused(tmp_path: Path) -> None:
    assert reason(tmp_path) == "Is a directory"
    assert reason(tmp_path / "none") == "No such file or directory"
    assert reason(tmp_path / ("a" * 5000)) == "File name too long"
    assert reason("a\0b") == "its name has a NUL character"
    os.mkfifo(tmp_path / "fifo")
    assert reason(tmp_path / "fifo") == "this is a FIFO; valid: a file"
    assert reason("/dev/zero") == "this is a device; valid: a file"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert reason(tmp_path / "socket") == "this is a socket; valid: a file"


def test_a_file_is_read_unless_it_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"texts")
    assert read_regular(tmp_path / "file", 5) == b"texts"
    assert reason(tmp_path / "file", 4) == "it is too long; valid: at most 4 bytes"


def test_a_pipe_that_a_shell_passes_is_read() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"text")
    os.close(write_end)
    with open_regular(f"/dev/fd/{read_end}", pipes=True) as file:
        assert file.read() == b"text"
    os.close(read_end)
