"""Downloads a published file over HTTP: from one of several servers, continued after an interruption, and checked.

The file is ``NAME.part`` until it is complete and its checksum is right. Size and checksum are known beforehand, so a
download can continue on another server, and a file that was replaced is noticed.
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
from ..worker.data.published_files import PublishedFile, compute_md5

_BLOCK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0  # without a byte
_MAX_FRUITLESS = 3  # connections to one server that bring nothing, before the next server is tried
_PAUSE_SECONDS = 1.0
_PERMANENT_STATUSES = (400, 401, 403, 404, 405, 410, 451)  # the same request would fail again

# Called with the name of a file, the number of its bytes that are here, and its size.
Watch = Callable[[str, int, int], None]


class DownloadFailed(TrainscaleError):
    """No server has the file, or none can be reached."""


class _ServerFailed(Exception):
    """One server did not deliver the file; ``is_permanent`` if it would fail again."""

    def __init__(self, reason: str, is_permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_permanent = reason, is_permanent


def download(file: PublishedFile, addresses: Sequence[str], target: Path, watch: Watch) -> None:
    """Put the complete file to ``target``. Raise DownloadFailed, or TrainscaleError if it cannot be written."""
    part = target.with_name(f"{target.name}.part")
    reasons = {}
    for address in addresses:
        try:
            _download_from(file, address, part, watch)
        except _ServerFailed as error:
            reasons[address] = error.reason
            continue
        with explain_write_errors(target):
            part.replace(target)
        return
    size = _find_size(part)
    if not size:
        part.unlink(missing_ok=True)
    remark = f"; {size / 1e6:.1f} MB of it are here, and the same command continues" if size else ""
    lines = "\n".join(f"  {address}: {reason}" for address, reason in reasons.items())
    raise DownloadFailed(f"{file.name} could not be downloaded{remark}\n{lines}\n  --from URL names another server")


def _download_from(file: PublishedFile, address: str, part: Path, watch: Watch) -> None:
    """Complete the file from one server, in as many connections as it takes. Raise _ServerFailed."""
    fruitless, has_older_part = 0, _find_size(part) > 0
    while True:
        before = _find_size(part)
        try:
            if before < file.size:
                _receive(file, address, part, watch)
        except _ServerFailed as error:
            if error.is_permanent:
                raise
            has_progress = _find_size(part) > before
            fruitless = 0 if has_progress else fruitless + 1
            if fruitless == _MAX_FRUITLESS:
                raise
            if not has_progress:
                time.sleep(_PAUSE_SECONDS)
            continue
        md5 = compute_md5(str(part))
        if md5 == file.md5:
            return
        part.unlink()
        if not has_older_part:
            raise _ServerFailed(f"it sends another file than the published one: MD5 {md5}, not {file.md5}", True)
        has_older_part = False  # the part of an earlier download may have been wrong, so try again without it


def _receive(file: PublishedFile, address: str, part: Path, watch: Watch) -> None:
    """Append what one connection brings. Raise _ServerFailed if the file is not complete then."""
    offset = _find_size(part)
    headers = {"User-Agent": f"trainscale/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            start = _read_start(response, offset, file)
            with explain_write_errors(part), part.open("r+b" if start else "wb") as out:
                out.seek(start)
                _copy(response, out, file, start, watch)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        raise _ServerFailed(f"{error.code} {error.reason}", error.code in _PERMANENT_STATUSES) from None
    except urllib.error.URLError as error:
        raise _ServerFailed(_describe(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise _ServerFailed(_describe(error)) from None
    if _find_size(part) < file.size:
        raise _ServerFailed(f"the connection ended after {_find_size(part):,} of {file.size:,} bytes")


def _read_start(response: Any, offset: int, file: PublishedFile) -> int:
    """Return the offset at which the response begins: 0 if the server does not support ranges."""
    content_range = ""
    if response.status != http.client.PARTIAL_CONTENT:
        start, total = 0, response.headers.get("Content-Length")
    else:
        content_range, _, total = str(response.headers.get("Content-Range", "")).removeprefix("bytes ").partition("/")
        start = offset if content_range.startswith(f"{offset}-") else -1
    if total and total.isdigit() and int(total) != file.size:
        raise _ServerFailed(f"its file has {int(total):,} bytes, not {file.size:,}: it is another file", True)
    if start < 0:
        raise _ServerFailed(f"it sends another range than requested: {content_range or 'unknown'}", True)
    return start


def _copy(response: Any, out: IO[bytes], file: PublishedFile, start: int, watch: Watch) -> None:
    done = start
    watch(file.name, done, file.size)
    while block := _read_block(response):
        done += len(block)
        if done > file.size:
            raise _ServerFailed(f"it sends more than the {file.size:,} bytes of the file", True)
        out.write(block)
        watch(file.name, done, file.size)


def _read_block(response: Any) -> bytes:
    """Read what has arrived. An error here is one of the connection, and not of the disk."""
    try:
        return bytes(response.read1(_BLOCK_BYTES))
    except (OSError, http.client.HTTPException) as error:
        raise _ServerFailed(_describe(error)) from None


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into TrainscaleError with a message for the user."""
    try:
        yield
    except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name another folder") from None
    except OSError as error:
        raise TrainscaleError(f"{path} cannot be written: {error.strerror}; the same command continues") from None


def _find_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _describe(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT_SECONDS:.0f} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
