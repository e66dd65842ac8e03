"""A folder to which the hosts of tests copy the worker. Python compiles the modules of every new copy, so tests whose
subject is not the copying share one.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def shared_copies() -> Path:
    """Return the folder that all tests of this process share."""
    folder = tempfile.mkdtemp(prefix="trainscale-copies-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
