"""Gets a published file over HTTP: from one of several places, continued after a cut, believed by its checksum.

What has come lies in ``NAME.part`` beside its place until all of it is there and right; only then does it get its name.
Size and checksum are known beforehand, so bytes of one place continue those of another, and a file that is another one
now is noticed.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .. import __version__
from ..errors import InputError, TrainscaleError
from ..worker.data.published_files import PublishedFile, md5_of

_BLOCK = 1 << 18
_SECONDS = 30.0  # without a byte
_FRUITLESS = 3  # connections to one place that bring nothing, before the next place is tried
_PAUSE_SECONDS = 1.0
_WORTHLESS = (400, 401, 403, 404, 405, 410, 451)  # asking again changes nothing

# Called with a file's name, how many of its bytes are here, and how many it has.
Watch = Callable[[str, int, int], None]


class NotGot(TrainscaleError):
    """No place has the file, or none can be reached."""


class _Refused(Exception):
    """By one place; ``final`` where it is no use to ask it again."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final = reason, final


def fetch(file: PublishedFile, addresses: Sequence[str], target: Path, watch: Watch) -> None:
    """The file, whole and right, at ``target``. Raises NotGot, or a TrainscaleError where it cannot be written."""
    part = target.with_name(f"{target.name}.part")
    reasons = {}
    for address in addresses:
        try:
            _from_one(file, address, part, watch)
        except _Refused as refused:
            reasons[address] = refused.reason
            continue
        with writing(target):
            part.replace(target)
        return
    told = "\n".join(f"  {address}: {reason}" for address, reason in reasons.items())
    kept = part.stat().st_size if part.exists() else 0
    if not kept:
        part.unlink(missing_ok=True)
    so_far = f"; {kept / 1e6:.1f} MB of it are kept, the same command continues" if kept else ""
    raise NotGot(f"{file.name} could not be got{so_far}\n{told}\n  --from URL names another place")


def _from_one(file: PublishedFile, address: str, part: Path, watch: Watch) -> None:
    """All of the file from one place, from where it stopped. Raises _Refused."""
    fruitless, older = 0, _size(part) > 0
    while True:
        before = _size(part)
        try:
            if before < file.size:
                _receive(file, address, part, watch)
        except _Refused as refused:
            if refused.final:
                raise
            gained = _size(part) > before
            fruitless = 0 if gained else fruitless + 1
            if fruitless == _FRUITLESS:
                raise
            if not gained:
                time.sleep(_PAUSE_SECONDS)
            continue
        found = md5_of(str(part))
        if found == file.md5:
            return
        part.unlink()
        if not older:
            raise _Refused(f"what it sends is not the published file: its MD5 is {found}, not {file.md5}", final=True)
        older = False  # what lay here from another time may have been what was wrong


def _receive(file: PublishedFile, address: str, part: Path, watch: Watch) -> None:
    """What one connection brings, until the file is whole. Raises _Refused."""
    here = _size(part)
    head = {"User-Agent": f"trainscale/{__version__}", "Accept-Encoding": "identity"}
    if here:
        head["Range"] = f"bytes={here}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=head), timeout=_SECONDS) as answer:
            start = _start(answer, here, file)
            with writing(part), part.open("r+b" if start else "wb") as out:
                out.seek(start)
                _copy(answer, out, file, start, watch)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        raise _Refused(f"{error.code} {error.reason}", final=error.code in _WORTHLESS) from None
    except urllib.error.URLError as error:
        raise _Refused(_words(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Refused(_words(error)) from None
    if _size(part) < file.size:
        raise _Refused(f"the connection ended after {_size(part):,} of {file.size:,} bytes")


def _start(answer: Any, here: int, file: PublishedFile) -> int:
    """Where in the file the answer begins: at its beginning, where the server does not know of parts."""
    if answer.status != http.client.PARTIAL_CONTENT:
        start, total = 0, answer.headers.get("Content-Length")
    else:
        place, _, total = str(answer.headers.get("Content-Range", "")).removeprefix("bytes ").partition("/")
        start = here if place.startswith(f"{here}-") else -1
    if total and total.isdigit() and int(total) != file.size:
        raise _Refused(f"the file there has {int(total):,} bytes, not {file.size:,}: it is another one", final=True)
    if start < 0:
        raise _Refused(f"it sends another part than was asked for: {place or 'unknown'}", final=True)
    return start


def _copy(answer: Any, out: IO[bytes], file: PublishedFile, start: int, watch: Watch) -> None:
    done = start
    watch(file.name, done, file.size)
    while block := _read(answer):
        done += len(block)
        if done > file.size:
            raise _Refused(f"it sends more than the {file.size:,} bytes of the file", final=True)
        out.write(block)
        watch(file.name, done, file.size)


def _read(answer: Any) -> bytes:
    """As much as is there; a broken connection is the place's fault, and not the disk's."""
    try:
        return bytes(answer.read1(_BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _Refused(_words(error)) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what a disk says into what a person reads."""
    try:
        yield
    except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name another folder") from None
    except OSError as error:
        raise TrainscaleError(f"{path} cannot be written: {error.strerror}; the same command continues") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_SECONDS:.0f} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
