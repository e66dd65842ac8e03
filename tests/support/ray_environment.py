"""An environment with Ray for the tests, in the user's cache directory. ``python tests/support/ray_environment.py``
creates it once (about a minute, 0.3 GB); ``make environments`` runs that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

# ray:// needs [client]; the tests do not need the dashboard and its many packages.
REQUIREMENT = "ray[client]>=2.40,<3"


def home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "trainscale-tests" / f"ray-python{sys.version_info.major}.{sys.version_info.minor}"


def python() -> Path | None:
    """Return its interpreter, or None if it was never created completely."""
    mark = home() / "complete"
    return home() / "bin" / "python" if mark.exists() and mark.read_text() == REQUIREMENT else None


def make() -> None:
    folder = home()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait until it is complete
        if python():
            return
        print(f"creating the environment with Ray for the tests, {folder}: about a minute, 0.3 GB", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
        (folder / "complete").write_text(REQUIREMENT)


if __name__ == "__main__":
    make()
