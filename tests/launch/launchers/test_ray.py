"""The Ray launcher: its command to the letter, the nodes that it chooses, and runs on a real Ray of two hosts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray_environment
from lab_runs import list_trials
from processes import until

from lab import Lab
from trainscale.cluster.hosts import HostAccess
from trainscale.errors import InputError
from trainscale.launch.launchers.callback import CallbackEndpoint, make_callback_program
from trainscale.launch.launchers.ray import CLIENT, RayLauncher
from trainscale.spec.groups import RaySettings

LAB_HOSTS = 2

# ---- its command

CALL = CallbackEndpoint("", 4711, "5ec3e7")
NASTY = """a'; echo "foo" > $HOME `id` \\ !"""


def test_the_client_gets_everything_in_one_argument() -> None:
    access = HostAccess(python=NASTY, setup=(NASTY,), nodes=3, device="cuda", devices=4)
    python, script, text = RayLauncher(access, RaySettings(ray_address=NASTY)).command(CALL)
    assert (python, script) == (NASTY, str(CLIENT))
    request = json.loads(text)
    program = request.pop("program")
    assert program == make_callback_program(
        'os.environ.pop("TRAINSCALE_NUMBER")', address='os.environ.pop("TRAINSCALE_ADDRESS")'
    )
    assert request == {
        "address": NASTY, "nodes": 3, "device": "cuda", "devices": 4, "cores": None, "python": NASTY, "setup": [NASTY],
    }  # fmt: skip


def test_the_token_is_in_the_environment_alone_and_what_is_said_to_ray_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    launcher = RayLauncher(HostAccess(python="python"))
    assert not [argument for argument in launcher.command(CALL) if CALL.token in argument]
    environment = launcher.environment(CALL)
    assert environment["TRAINSCALE_CALL"] == ",4711,5ec3e7"
    assert environment["RAY_AUTH_MODE"] == "token"


def test_the_python_of_the_program_ray_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ray"
    program.touch(0o755)
    program.write_text("#!/usr/bin/env python3\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    assert RayLauncher().python == "/usr/bin/python3"
    program.write_text("#!/an/environment/bin/python3.11\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert RayLauncher().python == "/an/environment/bin/python3.11"


def test_without_ray_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"neither this Python nor the PATH has Ray; valid: pip install"):
        _ = RayLauncher().python


# ---- which nodes


@pytest.fixture(scope="module")
def ray_python() -> Path:
    path = ray_environment.python()
    assert path, "there is no Ray for the tests: make environments makes it"
    return path


@pytest.fixture(scope="module")
def choose(ray_python: Path) -> Iterator[Callable[..., Any]]:
    """The client's own function, in the Python that has Ray: it returns bundles, or the message."""
    program = (
        f"import json, sys; sys.path.insert(0, {str(CLIENT.parent)!r}); import ray_client\n"
        "for line in sys.stdin:\n"
        "    nodes, request = json.loads(line)\n"
        "    try: print(json.dumps(ray_client.choose_bundles(nodes, request)), flush=True)\n"
        "    except ray_client.RequestError as error: print(json.dumps(str(error)), flush=True)\n"
    )
    process = subprocess.Popen(
        [str(ray_python), "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask(*resources: dict[str, float], **request: Any) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        nodes = [{"Alive": "dead" not in has, "Resources": has} for has in resources]
        settings = {"nodes": None, "device": "auto", "devices": None, "cores": None, **request}
        process.stdin.write(json.dumps([nodes, settings]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        yield ask


BIG, SMALL = {"CPU": 16.0, "GPU": 4.0, "memory": 1e9}, {"CPU": 8.0, "memory": 1e9}


@pytest.mark.hosts
def test_all_of_every_node_is_taken_or_what_was_asked_for_and_gpus_where_some_have_them(
    choose: Callable[..., Any],
) -> None:
    assert choose(SMALL, {"CPU": 4.0}) == [{"CPU": 8}, {"CPU": 4}]
    assert choose(SMALL, BIG, device="cpu") == [{"CPU": 16}, {"CPU": 8}]
    assert choose(SMALL, BIG) == [{"CPU": 16, "GPU": 4}]
    assert choose(SMALL, BIG, device="cuda") == [{"CPU": 16, "GPU": 4}]
    assert choose(SMALL, BIG, devices=2) == [{"CPU": 2, "GPU": 2}]
    # Dead nodes and heads without CPUs are left out.
    assert choose({"CPU": 0.0}, {"memory": 1.0}, {**SMALL, "dead": 1.0}, SMALL) == [{"CPU": 8}]
    assert choose(SMALL, SMALL, SMALL, nodes=2) == [{"CPU": 8}, {"CPU": 8}]
    assert choose(SMALL, SMALL, devices=2, cores=3) == [{"CPU": 6}, {"CPU": 6}]
    assert choose(BIG, device="cuda", devices=2) == [{"CPU": 2, "GPU": 2}]


@pytest.mark.hosts
def test_what_cannot_be_had_is_told_with_what_can(choose: Callable[..., Any]) -> None:
    assert choose(SMALL, nodes=2) == "nodes 2: Ray has 1 alive, of which 1 have a CPU; valid: 1 … 1"
    message = choose(SMALL, BIG, nodes=2, device="cuda", devices=2)
    assert message == "nodes 2: Ray has 2 alive, of which 1 have 2 GPUs each; valid: 1 … 1"
    assert "0 have 4 CPUs each" in choose({"CPU": 2.0}, devices=4)


@pytest.mark.hosts
def test_of_a_traceback_of_rays_only_its_end_is_told(ray_python: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 7, in serve\n    raise RuntimeError(\n'
    program = (
        f"import sys; sys.path.insert(0, {str(CLIENT.parent)!r}); import ray_client\n"
        f"error = ConnectionAbortedError({f'No luck:{chr(10)}{trace}RuntimeError: it died;{chr(10)}  see b.err'!r})\n"
        "print(ray_client.summarise_error(error))\n"
        "print(ray_client.summarise_error(ValueError('first\\n\\nsecond')))\n"
    )
    done = subprocess.run([str(ray_python), "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "ConnectionAbortedError: No luck: RuntimeError: it died; see b.err",
        "ValueError: first second",
    ]


@pytest.mark.hosts
def test_an_actor_ends_with_its_program_even_if_nobody_takes_its_answer(ray_python: Path) -> None:
    """As after a cut link, when the program has noticed that its controller is gone."""
    program = (
        f"import sys, time; sys.path.insert(0, {str(CLIENT.parent)!r}); import ray_client\n"
        "ray_client._LAST_ANSWER_SECONDS = 0.1\n"
        "print(ray_client.HostActor().serve(['/bin/sh', '-c', 'echo it is over >&2'], {}), flush=True)\n"
        "time.sleep(60); sys.exit(3)\n"
    )
    done = subprocess.run([str(ray_python), "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "it is over\n"), done.stderr


# ---- a real cluster

ARGUMENTS = ("--models", "mnist:8", "--warmup", "2", "-g", "1")
SHIM = "setup_worker.py -m ray.util.client.server"  # becomes what serves one client of Ray's head


class RayHosts:
    """Ray on all hosts of a lab, the first of them its head."""

    def __init__(self, lab: Lab, python: Path) -> None:
        self.lab, self.python = lab, python
        self.environment = {**os.environ, **ray_environment.VARIABLES, "COLUMNS": "160"}
        self.head = f"{lab.address(lab.hosts[0])}:6379"
        self.client = f"ray://{lab.address(lab.hosts[0])}:10001"
        for host in lab.hosts:
            ray_environment.start_node(lab, host)

    def ask(self, expression: str) -> Any:
        """What Ray says of itself, from its head."""
        program = f"import json, ray; ray.init('auto', log_to_driver=False); print('answer:', json.dumps({expression}))"
        done = self.lab.on(self.lab.hosts[0], [str(self.python), "-c", program], env=self.environment, timeout=120)
        assert done.returncode == 0, done.stderr
        (answer,) = [line for line in done.stdout.splitlines() if line.startswith("answer: ")]  # Ray may warn there
        return json.loads(answer.removeprefix("answer: "))

    def command(self, verb: str, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "trainscale", verb, "--launcher", "ray"]
        return [*command, "--remote-python", str(self.python), *ARGUMENTS, *arguments]

    def begin(self, folder: Path, verb: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command at the controller, which is outside of Ray's cluster."""
        return self.lab.popen(
            self.command(verb, "--ray-address", self.client, *arguments),
            cwd=folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def plan_on_head(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = self.command("plan", *arguments)
        return self.lab.on(self.lab.hosts[0], argv, cwd=self.lab.shared, env=self.environment, timeout=120)

    def complaints(self) -> str:
        """What Ray's head wrote about its clients."""
        paths = self.lab.file(self.lab.hosts[0], "/tmp/ray").glob("session_2*/logs/ray_client_server*")
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(paths))

    def ours(self) -> list[str]:
        """Processes of trainscale on the hosts."""
        everybody = [line for host in self.lab.hosts if self.lab.has_power(host) for line in self.lab.processes(host)]
        return [line for line in everybody if "TRAINSCALE_CALL" in line or "start.py" in line or "HostActor" in line]

    def assert_all_is_given_back(self) -> None:
        until(lambda: self.ours() == [], "the end of keepers and actors")
        states = self.ask("[group['state'] for group in ray.util.placement_group_table().values()]")
        assert set(states) <= {"REMOVED"}
        free = "ray.available_resources().get('CPU', 0)"
        alive = sum(self.lab.has_power(host) for host in self.lab.hosts)
        until(lambda: self.ask(free) == 2.0 * alive, "free CPUs")


@pytest.fixture(scope="module")
def cluster(lab: Lab, ray_python: Path) -> RayHosts:
    return RayHosts(lab, ray_python)


@pytest.mark.hosts
def test_a_ladder_over_two_nodes_from_outside_and_all_is_given_back(cluster: RayHosts, tmp_path: Path) -> None:
    with cluster.begin(tmp_path, "run", "--steps", "3", "--repeats", "1", "-o", "out") as run:
        printed, errors = run.communicate(timeout=240)
    assert run.returncode == 0, printed + errors + cluster.complaints()
    records = list_trials(tmp_path)
    assert [(trial["devices"], trial["status"], trial["hosts"]) for trial in records] == [(1, "ok", 1), (2, "ok", 2)]
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
def test_the_cluster_of_this_machine_is_found_and_its_nodes_come_by_address(cluster: RayHosts) -> None:
    done = cluster.plan_on_head()
    assert done.returncode == 0, done.stderr
    assert "node1, node2" in done.stdout
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
@pytest.mark.slow
def test_a_client_that_ray_could_not_serve_comes_again(cluster: RayHosts, tmp_path: Path) -> None:
    """The process that Ray's head starts for a client dies while it starts."""
    with cluster.begin(tmp_path, "plan") as plan:
        until(lambda: cluster.lab.kill_matching("node1", SHIM) > 0, "the client's server")
        printed, errors = plan.communicate(timeout=240)
    assert plan.returncode == 0, errors
    assert "node1, node2" in printed
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
def test_more_nodes_than_there_are_is_wrong_input(cluster: RayHosts) -> None:
    done = cluster.plan_on_head("--nodes", "3", "--ray-address", cluster.head)
    assert done.returncode == 2
    message = "nodes 3: Ray has 2 alive, of which 2 have 1 CPUs each; valid: 1 … 2"
    assert f"trainscale: launcher ray: {message}" in done.stderr


@pytest.mark.hosts
@pytest.mark.slow
def test_a_cluster_that_is_busy_is_told_and_not_waited_for_too_long(cluster: RayHosts, lab: Lab) -> None:
    program = (
        "import ray, sys; ray.init('auto', log_to_driver=False)\n"
        "from ray.util.placement_group import placement_group\n"
        "ray.get(placement_group([{'CPU': 2}]).ready()); print('taken', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [*lab.inside("node1"), str(cluster.python), "-c", program],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        done = cluster.plan_on_head("--nodes", "2", "--timeout", "12s")
    assert done.returncode == 1
    assert "launcher ray: no host called back within 12 s (--timeout), on port " in done.stderr
    assert "Ray has not enough free: 2 nodes, such as {'CPU': 1}, were requested" in done.stderr
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
@pytest.mark.slow
def test_what_is_killed_leaves_nothing_an_actor_or_the_controller(cluster: RayHosts, tmp_path: Path) -> None:
    with cluster.begin(tmp_path, "run", "--steps", "100000", "--repeats", "1", "-o", "out") as run:
        until(lambda: any(line.endswith(" rank") for line in cluster.ours()), "a trial", seconds=200.0)
        cluster.lab.signal("node2", ["ray::HostActor."])
        until(
            lambda: not any("start.py keeper" in line for line in cluster.lab.processes("node2")),
            "the actor's keeper",
        )
        run.send_signal(signal.SIGKILL)
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
@pytest.mark.slow
@pytest.mark.parametrize("is_serving", [False, True], ids=["before it serves", "before its host calls"])
def test_an_actor_that_is_killed_at_the_start_is_told_with_its_node(
    cluster: RayHosts, lab: Lab, tmp_path: Path, is_serving: bool
) -> None:
    setup = ["--setup", "sleep 100"] if is_serving else []
    name = "ray::HostActor.serve" if is_serving else "ray::HostActor"
    with cluster.begin(tmp_path, "plan", *setup) as plan:
        until(lambda: lab.kill_matching("node2", name) > 0, "the actor", 100)
        _, errors = plan.communicate(timeout=90)
    assert plan.returncode == 1, errors
    assert lab.address("node2") in errors
    cluster.assert_all_is_given_back()


@pytest.mark.hosts
@pytest.mark.slow
def test_a_node_without_power_costs_the_points_that_need_it(cluster: RayHosts, tmp_path: Path) -> None:
    with cluster.begin(tmp_path, "run", "--steps", "30", "--repeats", "2", "-o", "out") as run:
        until(lambda: sum(line.endswith(" rank") for line in cluster.ours()) == 2, "both ranks", seconds=200.0)
        cluster.lab.kill("node2")
        printed, errors = run.communicate(timeout=240)
    assert run.returncode == 1, printed + errors
    records = list_trials(tmp_path)
    assert {trial["status"] for trial in records if trial["devices"] == 1} == {"ok"}
    lost = [trial for trial in records if trial["devices"] == 2]
    assert {trial["status"] for trial in lost} == {"lost"}
    assert all("node2" in trial["failure"]["message"] for trial in lost), lost
    until(lambda: cluster.ours() == [], "the end of keepers and actors")
    cluster.lab.boot("node2")
    ray_environment.start_node(cluster.lab, "node2")
    until(lambda: cluster.ask("sum(node['Alive'] for node in ray.nodes())") == 2, "the node that is back")


def plan_here(folder: Path, python: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "trainscale", "plan", "--launcher", "ray", "--remote-python", str(python), *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.hosts
def test_an_address_where_no_ray_is_is_wrong_input(ray_python: Path, tmp_path: Path) -> None:
    for address, message in {
        "127.0.0.1:1": "ray address 127.0.0.1:1: Connection refused; is there a Ray head?",
        "http://127.0.0.1:8265": "http://127.0.0.1:8265 is where Ray takes jobs; valid: ADDRESS:PORT",
        "nonsense": "ray address 'nonsense'; valid: ADDRESS:PORT, such as 10.0.0.1:6379",
    }.items():
        done = plan_here(tmp_path, ray_python, "--ray-address", address)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr


@pytest.mark.processes
def test_a_python_without_ray_is_named(tmp_path: Path) -> None:
    done = plan_here(tmp_path, sys.executable)
    assert done.returncode == 1
    assert f"launcher ray: {sys.executable} ray_client.py: ModuleNotFoundError: No module named 'ray'" in done.stderr
