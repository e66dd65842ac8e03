"""The tests' own environment with Ray, in the user's cache directory: made once (about a minute, 0.3 GB), then only
looked at. ``python tests/support/ray_environment.py`` makes it; ``make environments`` does that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

# [client] is what ray:// needs; the dashboard and its many packages are not.
REQUIREMENT = "ray[client]>=2.40,<3"


def home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "trainscale-tests" / f"ray-python{sys.version_info.major}.{sys.version_info.minor}"


def python() -> Path | None:
    """Its interpreter; None where it was not made, or not to its end."""
    mark = home() / "complete"
    return home() / "bin" / "python" if mark.exists() and mark.read_text() == REQUIREMENT else None


def make() -> None:
    folder = home()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one makes it, others wait for it
        if python():
            return
        print(f"making the tests' environment with Ray, {folder}: about a minute, 0.3 GB", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
        (folder / "complete").write_text(REQUIREMENT)


if __name__ == "__main__":
    make()
