"""The Ray launcher: its command to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainscale.cluster.hosts import HostAccess, HostRequest
from trainscale.errors import InputError
from trainscale.launch.launchers.callback import CallbackEndpoint, make_callback_program
from trainscale.launch.launchers.ray import CLIENT, RayLauncher, RaySettings, find_python

CALL = CallbackEndpoint("", 4711, "5ec3e7")
NASTY = """a'; echo "foo" > $HOME `id` \\ !"""


def test_the_client_gets_everything_in_one_argument() -> None:
    access = HostAccess(python=NASTY, setup=(NASTY,), request=HostRequest(nodes=3, device="cuda", devices=4))
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


def test_the_python_of_the_program_ray_is_found(tmp_path: Path) -> None:
    program = tmp_path / "ray"
    program.write_text("#!/usr/bin/env python3\n")
    program.chmod(0o755)
    assert find_python({"PATH": f"{tmp_path}:/usr/bin"}) == "/usr/bin/python3"
    program.write_text("#!/an/environment/bin/python3.11\n")
    assert find_python({"PATH": str(tmp_path)}) == "/an/environment/bin/python3.11"


def test_without_ray_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither this Python nor the PATH has Ray; valid: pip install"):
        find_python({"PATH": str(tmp_path)})
