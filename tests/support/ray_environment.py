"""Ray for the tests: an environment with it in the user's cache directory, and its nodes on the hosts of a lab.
``python tests/support/ray_environment.py`` creates the environment once (about a minute, 0.3 GB); ``make environments``
runs that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab import Lab

# The last: gRPC's handlers of fork() often abort the process that Ray's head starts for a client (gRPC 1.85.1 and Ray
# 2.60: "Check failed: next_worker->state == KICKED"). docs/ray.md tells it.
VARIABLES = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "GRPC_ENABLE_FORK_SUPPORT": "0"}
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


def start_node(lab: Lab, host: str) -> None:
    """Start Ray on a host. The head, which clients reach on port 10001, is on the lab's first one."""
    interpreter = python()
    assert interpreter is not None
    head = f"{lab.address(lab.hosts[0])}:6379"
    is_head = host == lab.hosts[0]
    role = ["--head", "--port", "6379", "--include-dashboard", "false"] if is_head else ["--address", head]
    options = ["--node-ip-address", lab.address(host), "--num-cpus", "2", "--object-store-memory", "100000000"]
    command = [str(interpreter.parent / "ray"), "start", *role, *options, "--disable-usage-stats"]
    done = lab.on(host, command, env={**os.environ, **VARIABLES}, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    make()
