"""A program that runs trainscale commands for tests in forked processes. It imports the package once, reads one request
per line from its input, and prints the exit code of each command. It runs nothing in its own process, so every command
starts from freshly imported modules. A fork saves the time that Python and its libraries need to start.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path


def import_libraries() -> None:
    """Import the controller's modules and the libraries that its commands import when they need them."""
    import trainscale.cli
    import trainscale.cluster
    import trainscale.launch
    import trainscale.report

    for package in (trainscale.cli, trainscale.cluster, trainscale.launch, trainscale.report):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("ray_client", "__main__")):
                importlib.import_module(module.name)
    for name in ("altair", "boto3", "jinja2", "rich.table", "rich.progress", "scipy.special"):
        importlib.import_module(name)
    importlib.import_module("simulated_aws").share_service_models()
    importlib.import_module("forked_keepers")


def run(request: dict) -> int:
    """Run one command in a forked process and return its exit code, which is negative for a signal."""
    pid = os.fork()
    if pid == 0:
        framework_server.exit_with(lambda: become_command(request))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def module_path(environment: dict[str, str]) -> list[str]:
    """Return the module path of a process with this environment, without the folder at its front."""
    folders, own_folders = (settings.get("PYTHONPATH", "").split(os.pathsep) for settings in (environment, os.environ))
    return [*filter(None, folders), *(entry for entry in sys.path[1:] if entry not in own_folders)]


def become_command(request: dict) -> int:
    os.setsid()
    # A terminal that is opened by the leader of a new session becomes the terminal of that session.
    ends = [os.open(request[name], os.O_RDWR | os.O_CREAT) for name in ("stdin", "stdout", "stderr")]
    sys.path[:] = [request["folder"], *module_path(request["environment"])]  # as `python -m` has it
    framework_server.take_over(ends, request["folder"], request["environment"])
    sys.argv = [str(Path(sys.modules["trainscale"].__file__ or "").with_name("__main__.py")), *request["arguments"]]
    for name, value in request["constants"].items():
        module, _, constant = name.rpartition(".")
        assert hasattr(sys.modules[f"trainscale.{module}"], constant), name
        setattr(sys.modules[f"trainscale.{module}"], constant, value)
    if request["framework_server"]:
        forked_keepers = sys.modules["forked_keepers"]
        client = forked_keepers.FrameworkClient(request["framework_server"])
        forked_keepers.LocalLauncher.open = forked_keepers.keeper_opener(client)
    return int(sys.modules["trainscale.cli"].main())


if __name__ == "__main__":
    # Here, because what a command spawns reads this file again, without this folder on its path.
    import framework_server

    import_libraries()
    framework_server.KEPT = framework_server.open_descriptors()
    gc.collect()
    gc.freeze()  # so that the garbage collector of a forked process does not copy all these objects
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)
