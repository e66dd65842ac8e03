"""Asks a Ray cluster for nodes and keeps them for one run: ``PYTHON ray_client.py REQUEST``, with the call-back's
address
and token in the environment. Runs on a Python that has Ray, which need not be the controller's; stands alone.

One placement group, one bundle and one actor on each node: an actor that has all of a node's devices, because it is the
keeper there that starts the ranks and gives each its device. Group and actors belong to this process's job: Ray
takes them back when it ends, however it ends. It ends when it is told to, or when the controller is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

# Python puts a script's own folder first: the ray.py there is not the one that is meant.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100

import ray  # noqa: E402
from ray.util.placement_group import placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402

CALL = "TRAINSCALE_CALL"
_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
# By ray:// its head starts a process for every client, which now and then dies while it starts; the next one does not.
_TRIES = 3
_TAIL = 2000  # characters of what a node's program printed


class Wrong(Exception):
    """What was asked for cannot be had; the message says why."""


def main(request: dict[str, Any]) -> int:
    controller = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    group = None
    try:
        address = connect(request["address"], controller)
        bundles = choose(ray.nodes(), request)
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        wait_for(group, bundles, controller)
        actors = start(group, bundles, request, call_for(address))
        stand_by(actors, controller)
    except Wrong as error:
        say(kind="ray-error", message=str(error), input=True)
        return 2
    except Exception as error:
        say(kind="ray-error", message=one_line(error), input=False)
        return 1
    finally:
        if group is not None:
            remove_placement_group(group)
        ray.shutdown()
    return 0


def say(**event: object) -> None:
    print("@trainscale " + json.dumps(event), flush=True)


def one_line(error: BaseException) -> str:
    """What was wrong, in a line: of another process's traceback, which may be inside, its end alone."""
    before, found, traceback = str(error).partition("Traceback (most recent call last):")
    below = traceback.splitlines()
    frames = [number for number, line in enumerate(below) if line.startswith('  File "')]
    raised = [line for line in below[frames[-1] + 1 :] if not line.startswith("    ")] if found and frames else below
    lines = [line.strip() for line in [*before.splitlines()[:3], *raised[:3]] if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:400]}"


def connect(asked: str, controller: int) -> str:
    """Join the cluster, and never begin one. Returns the address by which it was found."""
    address = asked or os.environ.get("RAY_ADDRESS") or "auto"
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if address.startswith("http"):
        raise Wrong(f"{address} is where Ray takes jobs; valid: ADDRESS:PORT of its head, or ray://ADDRESS:PORT")
    if address != "auto":
        if not host or not port.isdigit():
            raise Wrong(f"ray address {address!r}; valid: ADDRESS:PORT, such as 10.0.0.1:6379, or ray://ADDRESS:10001")
        try:  # Ray itself would try for a minute
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            raise Wrong(f"ray address {address}: {error.strerror or error}; is there a Ray head?") from None
    for tried in range(1, _TRIES + 1):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
            break
        except ConnectionAbortedError:  # there is a cluster, and it could not start what this client needs
            if tried == _TRIES:
                raise
            check(controller)
            time.sleep(_POLL_SECONDS)
        except ConnectionError as error:
            raise Wrong(f"{one_line(error)}; start one (ray start), or name it by --ray-address") from None
    return address


def choose(nodes: list[dict[str, Any]], request: dict[str, Any]) -> list[dict[str, float]]:
    """One bundle for each node that is wanted: what was asked for, or all that the node has."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = request["device"] == "auto" and any(has.get("GPU", 0) >= 1 for has in alive)
    kind = "GPU" if gpus or request["device"] == "cuda" else "CPU"
    usable = [has for has in alive if has.get("CPU", 0) >= 1 and has.get(kind, 0) >= 1]
    devices, cores = request["devices"], request["cores"] or 1
    if devices and kind == "GPU":
        bundles = [{"CPU": min(devices, int(has["CPU"])), "GPU": devices} for has in usable if has["GPU"] >= devices]
    elif devices:
        bundles = [{"CPU": devices * cores} for has in usable if has["CPU"] >= devices * cores]
    else:
        names = ("CPU", "GPU") if kind == "GPU" else ("CPU",)
        bundles = [{name: int(has[name]) for name in names} for has in usable]
    count = request["nodes"] or len(bundles)
    if not bundles or count > len(bundles):
        need = f"{devices if kind == 'GPU' else devices * cores} {kind}s each" if devices else f"a {kind}"
        raise Wrong(
            f"nodes {request['nodes'] or 'all'}: Ray has {len(alive)} alive, of which {len(bundles)} have {need};"
            f" valid: 1 … {len(bundles)}"
        )
    return sorted(bundles, key=lambda has: (has.get("GPU", 0), has["CPU"]), reverse=True)[:count]


def wait_for(group: Any, bundles: list[dict[str, float]], controller: int) -> None:
    """Until no other job has what is wanted. Says what it waits for when that takes long."""
    began, told = time.monotonic(), False
    while not group.wait(_POLL_SECONDS):
        check(controller)
        if not told and time.monotonic() - began > 5 * _POLL_SECONDS:
            told = True
            free = {name: left for name, left in ray.available_resources().items() if name in ("CPU", "GPU")}
            say(kind="waiting", message=f"Ray has not enough free: {len(bundles)} nodes, such as {bundles[0]}, were"
                f" asked for; free in the whole cluster: {free or 'nothing'}")  # fmt: skip


def call_for(address: str) -> str:
    """Where the nodes shall call: as a person said, else by this machine's address in Ray's cluster."""
    where, port, token = os.environ[CALL].rsplit(",", 2)
    if not where and address.startswith("ray://"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect((address.rpartition("://")[2].rpartition(":")[0], 9))
            where = one.getsockname()[0]
    return ",".join([where or ray.util.get_node_ip_address(), port, token])


class Attendant:
    """An actor: holds a node's resources, and runs there the program that stands by."""

    def address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def serve(self, command: list[str], variables: dict[str, str]) -> str:
        """Returns when that program has ended, with its last words."""
        environment = {**os.environ, **variables}
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            if b"OMP_NUM_THREADS=" not in file.read():
                environment.pop("OMP_NUM_THREADS", None)  # Ray's own idea, for what runs in the actor itself
        command = [sys.executable if word == "PYTHON" else word for word in command]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stderr.decode(errors="replace").strip()[-_TAIL:] or f"exit code {done.returncode}"


def start(group: Any, bundles: list[dict[str, float]], request: dict[str, Any], call: str) -> dict[Any, Any]:
    """An actor on each node: what each does, with its node's address and itself. Bundles are not in the order of the
    nodes, so numbers go by address.
    """
    kind = ray.remote(Attendant)
    actors = [
        kind.options(
            num_cpus=has["CPU"],
            num_gpus=has.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote()
        for index, has in enumerate(bundles)
    ]
    addresses = ray.get([actor.address.remote() for actor in actors])
    command = [request["python"] or "PYTHON", "-c", request["program"]]
    if request["setup"]:
        command = ["/bin/bash", "-lc", " && ".join([*request["setup"], 'exec "$0" "$@"']), *command]
    say(kind="crew", hosts=len(actors), address=call.rsplit(",", 2)[0])
    serving = {}
    for number, (address, actor) in enumerate(sorted(zip(addresses, actors), key=lambda one: one[0])):
        variables = {CALL: call, "TRAINSCALE_NUMBER": str(number), "TRAINSCALE_ADDRESS": address}
        serving[actor.serve.remote(command, variables)] = (address, actor)
    return serving


def stand_by(serving: dict[Any, Any], controller: int) -> None:
    """Until nobody serves any more."""
    left = dict(serving)
    while left:
        check(controller)
        for reference in ray.wait(list(left), timeout=_POLL_SECONDS)[0]:
            address, _ = left.pop(reference)
            try:
                words = ray.get(reference)
            except Exception as error:
                words = one_line(error)
            say(kind="lost", address=address, message=words)


def check(controller: int) -> None:
    if os.getppid() != controller:
        sys.exit(1)  # it was killed


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
