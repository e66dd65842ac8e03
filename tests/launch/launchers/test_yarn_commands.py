"""The YARN launcher: its commands to the letter."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainscale.cluster.hosts import HostAccess, HostRequest
from trainscale.cluster.yarn import YarnClient
from trainscale.errors import InputError
from trainscale.launch.launchers.callback import CallbackEndpoint
from trainscale.launch.launchers.yarn import YarnLauncher, YarnSettings, make_container_command

CALL = CallbackEndpoint("10.0.0.1", 4711, "5ec3e7")
NASTY = """a'; echo "foo" > $HOME `id` \\ !"""


def launcher(**request: Any) -> YarnLauncher:
    settings = YarnSettings(**{key: request.pop(key) for key in ("queue", "yarn") if key in request})
    yarn_launcher = YarnLauncher(HostAccess(request=HostRequest(**{"nodes": 2, **request})), settings)
    yarn_launcher.client = YarnClient("/opt/hadoop/bin/yarn", "/opt/the jars/shell.jar")
    return yarn_launcher


def options(argv: list[str]) -> dict[str, str]:
    assert argv[:4] == [
        "/opt/hadoop/bin/yarn",
        "jar",
        "/opt/the jars/shell.jar",
        "org.apache.hadoop.yarn.applications.distributedshell.Client",
    ]
    return dict(zip(argv[4::2], argv[5::2], strict=True))


# ---- the client's command


def test_one_application_is_asked_for_with_a_container_for_each_node() -> None:
    yarn_launcher = launcher()
    values = options(yarn_launcher.command(CALL))
    assert values.pop("-shell_command") == make_container_command(CALL, yarn_launcher.access)
    assert values.pop("-appname").startswith("trainscale-")
    assert values == {
        "-jar": "/opt/the jars/shell.jar",
        "-queue": "default",
        "-num_containers": "2",
        "-container_memory": "4096",
        "-container_vcores": "1",
        "-timeout": "2147483647",
    }


def test_what_is_asked_for_grows_with_the_devices_of_a_host() -> None:
    values = options(launcher(nodes=8, devices=4, cores_per_device=2, queue=NASTY).command(CALL))
    assert values["-num_containers"] == "8"
    assert values["-container_vcores"] == "8"
    assert values["-container_memory"] == "16384"
    assert values["-queue"] == NASTY
    assert "-container_resources" not in values


def test_gpus_are_asked_for_by_yarns_name_of_them() -> None:
    assert options(launcher(device="cuda", devices=4).command(CALL))["-container_resources"] == "yarn.io/gpu=4"


def test_the_persons_options_come_first_and_in_place_of_ours() -> None:
    argv = launcher(yarn=("-container_memory 8192", "--node_label_expression 'gpu nodes'")).command(CALL)
    assert argv[4:8] == ["-container_memory", "8192", "--node_label_expression", "gpu nodes"]
    assert argv.count("-container_memory") == 1


@pytest.mark.parametrize("option", ["-num_containers 3", "--shell_command date", "-queue q"])
def test_options_that_are_ours_are_refused(option: str) -> None:
    with pytest.raises(InputError, match="trainscale sets this option itself"):
        launcher(yarn=(option,)).command(CALL)


def test_an_option_with_an_open_quote_is_named() -> None:
    with pytest.raises(InputError, match="yarn -node_label_expression 'gpu: No closing quotation"):
        launcher(yarn=("-node_label_expression 'gpu",)).command(CALL)


def test_the_number_of_containers_must_be_said() -> None:
    with pytest.raises(InputError, match="how many containers"):
        launcher(nodes=None).command(CALL)


def test_the_token_is_neither_in_the_clients_environment_nor_in_what_everybody_reads_on_the_nodes() -> None:
    yarn_launcher = launcher()
    assert not [value for value in yarn_launcher.environment(CALL).values() if CALL.token in value]
    assert "-shell_env" not in yarn_launcher.command(CALL)


# ---- the containers' command


def test_a_containers_command_has_nothing_that_a_shell_reads_between_double_quotes() -> None:
    command = make_container_command(CALL, HostAccess(python=NASTY, setup=(NASTY,)))
    assert not set(command) & set("\"'$`\\!*?{}()<\n")
    echo, wrapped, rest = command.split(" ", 2)
    assert (echo, rest) == ("echo", "| base64 -d > trainscale.sh && exec /bin/bash -l trainscale.sh")
    script = base64.b64decode(wrapped).decode()
    assert script.startswith("export TRAINSCALE_CALL=10.0.0.1,4711,5ec3e7\n" + NASTY + " && exec ")


@pytest.mark.processes
def test_a_containers_command_runs_what_it_says(tmp_path: Path) -> None:
    """Between double quotes in a script, as a NodeManager puts it."""
    python = tmp_path / 'it\'s; a "python"'
    python.write_text('#!/bin/sh\necho "$0|$WORD|$TRAINSCALE_CALL|$1" > printed\n')
    python.chmod(0o755)
    where = HostAccess(python=str(python), setup=("export WORD='two words; $5'",))
    script = tmp_path / "launch_container.sh"
    script.write_text(f'#!/bin/bash\nexec /bin/bash -c "{make_container_command(CALL, where)}  1>out 2>err "\n')
    subprocess.run(["bash", str(script)], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "printed").read_text() == f"{python}|two words; $5|10.0.0.1,4711,5ec3e7|-c\n"


def test_the_worker_is_unpacked_in_the_containers_own_folder_unless_told() -> None:
    assert YarnLauncher(HostAccess()).access.remote_dir == "."
    assert YarnLauncher(HostAccess(remote_dir="/scratch")).access.remote_dir == "/scratch"
