"""The process that draws all charts of this process (draw_charts.py).

V8 reserves more addresses than some sites allow (``ulimit -v``), and then ends its process. So it has one of its own,
and a run whose charts cannot be drawn has its tables all the same.
"""

import atexit
import base64
import json
import os
import resource
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from ..errors import TrainscaleError
from ..folders import find_cache_folder
from ..launch.connection import describe_exit
from ..record.files import write_atomically

_PROGRAM = Path(__file__).resolve().with_name("draw_charts.py")


class ChartsUnavailable(TrainscaleError):
    """Charts cannot be drawn; the message says why."""


# By the process that started it, so that a fork has none; with its standard error.
_processes: dict[int, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}


def begin_drawing() -> None:
    """Start the process unless it runs."""
    if os.getpid() in _processes and _processes[os.getpid()][0].poll() is not None:
        end_drawing()
    if os.getpid() in _processes:
        return
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
    # A session of its own: Ctrl-C ends the controller in order, which may draw the charts of what there is.
    process = subprocess.Popen(
        [sys.executable, "-P", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    _processes[os.getpid()] = process, errors


def call_vl_convert(name: str, *arguments: Any) -> Any:
    """Call vl_convert. Raises ChartsUnavailable if the process has ended."""
    if os.getpid() not in _processes:
        begin_drawing()
    process, errors = _processes[os.getpid()]
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{json.dumps([name, *arguments])}\n".encode())
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = b""
    except BaseException:  # such as Ctrl-C: the next answer would be the one to this request
        process.kill()
        raise
    if not line:
        raise ChartsUnavailable(_explain_end(process.wait(), errors))
    kind, answer = json.loads(line)
    if kind == "error":
        raise ValueError(answer)
    return base64.b64decode(answer) if kind == "bytes" else answer


def _explain_end(code: int, errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = [line.strip("# \n") for line in errors.read().decode(errors="replace").splitlines()]
    fatal = [line for line in lines if line.startswith("Fatal ")] or [line for line in lines if line][-1:]
    message = f"the process that draws them {describe_exit(code)}{f': {fatal[0]}' if fatal else ''}"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return message
    return f"{message}; its addresses are limited to {limit / 2**30:.0f} GiB (ulimit -v), and it needs more"


@atexit.register
def end_drawing() -> None:
    process, errors = _processes.pop(os.getpid(), (None, None))
    if process and errors:
        process.kill()
        process.communicate()  # closes its pipes
        errors.close()


@cache
def load_vega_bundle() -> str:
    """Return the JavaScript of Vega; to make it takes more than a second."""
    path = find_cache_folder() / "vega" / f"{metadata.version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    bundle: str = call_vl_convert("javascript_bundle", "window.vegaEmbed = vegaEmbed;")
    bundle = bundle.replace("</script", "<\\/script")
    try:
        write_atomically(path, bundle)
    except OSError:
        pass  # such as a home that cannot be written: the next report makes it again
    return bundle
