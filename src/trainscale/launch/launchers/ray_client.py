"""Holds nodes of a Ray cluster for one run: ``PYTHON ray_client.py REQUEST``, with a CallbackEndpoint in the
environment. It runs on any Python that has Ray, so it imports nothing of this project.

It makes a placement group with a bundle and an actor on each node, which has all its devices. Ray takes all back when
this process ends, on SIGTERM or when the controller is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

# Python puts the folder of a script first: the ray.py there must not hide the real one.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100

import ray  # noqa: E402
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402

Bundle = dict[str, int]  # how much of each resource of a node is reserved
Request = dict[str, Any]  # of ray.py: "nodes" is None for all; a node has "devices", a device has "cores"

CALLBACK_VARIABLE = "TRAINSCALE_CALL"
_POLL_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_CONNECT_SECONDS = 10.0
# With ray://, the head starts a process for every client, which may die at once; the next one works.
_ATTEMPTS = 3
_LAST_ANSWER_SECONDS = 5.0  # for the result of an actor to reach the client
_OUTPUT_CHARACTERS = 2000  # how much of the end of a node's output is kept


class RequestError(Exception):
    """The cluster cannot give what was requested; the message says why."""


class ActorLost(Exception):
    """An actor ended before it was of use; the message names its node."""


def main(request: Request) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end_with_parent()  # the controller
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C
    group = None
    try:
        address = connect(request["address"])
        bundles = choose_bundles(ray.nodes(), request)
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        # Wait until the resources are free. Report what is missing if that takes long.
        report_at: float | None = time.monotonic() + 5 * _POLL_SECONDS
        while not group.wait(_POLL_SECONDS):
            if report_at is not None and time.monotonic() > report_at:
                report_at = None
                available = ray.available_resources()
                free = {name: available[name] for name in ("CPU", "GPU") if name in available} or "nothing"
                requested = f"{len(bundles)} nodes, such as {bundles[0]}, were requested"
                message = f"Ray has not enough free: {requested}; free in the whole cluster: {free}"
                print_event(kind="ray", waiting=message)
        running = start_actors(group, bundles, request, address)
        while running:
            for reference in ray.wait(list(running), timeout=_POLL_SECONDS)[0]:
                node_address, _ = running.pop(reference)
                try:
                    message = ray.get(reference)
                except Exception as error:
                    message = summarise_error(error)
                print_event(kind="ray", lost_address=node_address, lost=message)
    except Exception as error:
        is_input = isinstance(error, RequestError)
        message = str(error) if is_input or isinstance(error, ActorLost) else summarise_error(error)
        print_event(kind="ray", error=message, is_input_error=is_input)
        return 2 if is_input else 1
    finally:
        if group is not None:
            remove_placement_group(group)
        ray.shutdown()
    return 0


def print_event(**event: object) -> None:
    print("@trainscale " + json.dumps(event), flush=True)


def summarise_error(error: BaseException) -> str:
    """Describe an error in one line. Of a traceback in its text, only the end is kept."""
    before, separator, traceback = str(error).partition("Traceback (most recent call last):")
    below = traceback.splitlines()
    frames = [number for number, line in enumerate(below) if line.startswith('  File "')]
    if separator and frames:
        below = [line for line in below[frames[-1] + 1 :] if not line.startswith("    ")]
    words = " ".join([*before.splitlines()[:3], *below[:3]]).split()
    return f"{type(error).__name__}: {' '.join(words)[:400]}"


def connect(wanted: str) -> str:
    """Join a running cluster and return its address. Never start a cluster."""
    address = wanted or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("http"):
        raise RequestError(f"{address} is where Ray takes jobs; valid: ADDRESS:PORT, or ray://ADDRESS:PORT")
    if address != "auto":
        host, _, port = address.rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit():
            valid = "ADDRESS:PORT, such as 10.0.0.1:6379, or ray://ADDRESS:10001"
            raise RequestError(f"ray address {address!r}; valid: {valid}")
        try:  # if no process listens there, Ray itself would try for a minute
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            reason = error.strerror or error
            raise RequestError(f"ray address {address}: {reason}; is there a Ray head?") from None
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
            break
        except ConnectionAbortedError:  # the cluster could not start what this client needs
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_POLL_SECONDS)
        except ConnectionError as error:
            reason = summarise_error(error)
            raise RequestError(f"{reason}; start one (ray start), or name it by --ray-address") from None
    return address


def choose_bundles(nodes: list[dict[str, Any]], request: Request) -> list[Bundle]:
    """Return a bundle for each node: what was requested, or all that it has."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    prefers_gpus = request["device"] == "auto" and any(node.get("GPU", 0) >= 1 for node in alive)
    kind = "GPU" if prefers_gpus or request["device"] == "cuda" else "CPU"
    usable = [node for node in alive if node.get("CPU", 0) >= 1 and node.get(kind, 0) >= 1]
    devices, need = request["devices"], f"a {kind}"
    if devices:
        count = devices if kind == "GPU" else devices * (request["cores"] or 1)
        need = f"{count} {kind}s each"
        usable = [{**node, kind: count} for node in usable if node[kind] >= count]
        if kind == "GPU":  # one core for each
            usable = [{**node, "CPU": min(devices, node["CPU"])} for node in usable]
    names = ("CPU", "GPU") if kind == "GPU" else ("CPU",)
    bundles = [{name: int(node[name]) for name in names} for node in usable]
    most = len(bundles)
    count = request["nodes"] or most
    if not bundles or count > most:
        state = f"Ray has {len(alive)} alive, of which {most} have {need}"
        raise RequestError(f"nodes {request['nodes'] or 'all'}: {state}; valid: 1 … {most}")
    return sorted(bundles, key=lambda bundle: (bundle.get("GPU", 0), bundle["CPU"]), reverse=True)[:count]


class HostActor:
    """Holds the resources of a node and runs the keeper there."""

    def find_address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def serve(self, command: list[str], variables: dict[str, str]) -> str:
        """Return the end of the program's output. The actor ends soon after it."""
        environment = {**os.environ, **variables}
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            if b"OMP_NUM_THREADS=" not in file.read():
                environment.pop("OMP_NUM_THREADS", None)  # Ray sets it for the actor itself
        try:
            done = subprocess.run(
                [sys.executable if argument == "PYTHON" else argument for argument in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                preexec_fn=end_with_parent,
            )
        finally:
            timer = threading.Timer(_LAST_ANSWER_SECONDS, os._exit, (0,))
            timer.daemon = True
            timer.start()
        output = done.stderr.decode(errors="replace").strip()
        return output[-_OUTPUT_CHARACTERS:] or f"exit code {done.returncode}"


def end_with_parent() -> None:
    """Have Linux end this process when its parent ends, even by kill -9."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start_actors(group: Any, bundles: list[Bundle], request: Request, ray_address: str) -> dict[Any, Any]:
    """Start an actor on each node; return its future result, with the node's address and the actor."""
    actor_class = ray.remote(HostActor)
    actors = [
        actor_class.options(
            num_cpus=bundle["CPU"],
            num_gpus=bundle.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote()
        for index, bundle in enumerate(bundles)
    ]
    addresses = []
    for index, reference in enumerate([actor.find_address.remote() for actor in actors]):
        try:
            addresses.append(ray.get(reference))
        except Exception as error:
            node_id = placement_group_table(group).get("bundles_to_node_id", {}).get(index)
            name = f"node {node_id}"
            for node in ray.nodes():
                if node["NodeID"] == node_id:
                    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            raise ActorLost(f"{name}: its actor ended while it started: {summarise_error(error)}") from error
    command = [request["python"] or "PYTHON", "-c", request["program"]]
    if request["setup"]:
        command = ["/bin/bash", "-lc", " && ".join([*request["setup"], 'exec "$0" "$@"']), *command]
    # The nodes call where a person said, else this machine's address in Ray's cluster.
    controller, port, token = os.environ[CALLBACK_VARIABLE].rsplit(",", 2)
    if not controller and ray_address.startswith("ray://"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((ray_address.rpartition("://")[2].rpartition(":")[0], 9))
            controller = probe.getsockname()[0]
    controller = controller or ray.util.get_node_ip_address()
    print_event(kind="ray", nodes=len(actors))
    results = {}
    for number, (address, actor) in enumerate(sorted(zip(addresses, actors), key=lambda pair: pair[0])):
        variables = {
            CALLBACK_VARIABLE: f"{controller},{port},{token}",
            "TRAINSCALE_NUMBER": str(number),
            "TRAINSCALE_ADDRESS": address,
        }
        results[actor.serve.remote(command, variables)] = (address, actor)
    return results


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
