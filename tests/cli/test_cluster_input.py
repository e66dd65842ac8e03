"""Wrong input to ``trainscale cluster``, against a simulated AWS: one message, and nothing is made."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_commands import HERE, UP
from simulated_aws import IMAGE, REGION

from trainscale import cli

pytestmark = [pytest.mark.usefixtures("aws"), pytest.mark.processes]


def changed(**flags: str) -> list[str]:
    """``up`` with other values; an empty one takes the flag away."""
    argv = list(UP)
    for flag, value in flags.items():
        name = f"--{flag.replace('_', '-')}"
        if name in argv:
            del argv[argv.index(name) : argv.index(name) + 2]
        argv += [name, value] if value else []
    return argv


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["cluster"], "cluster: no action"),
        (["cluster", "start"], "unknown action 'start'; did you mean 'status'"),
        (["cluster", "up", "--node", "3"], "the following arguments are required"),
        ([*UP, "--yes"], "--region: in which region?"),
        ([*UP, "--yes", "--region", "oregon"], "--region: 'oregon' is not a region"),
        (
            [*changed(type="p5.48large"), *HERE],
            "--type: unknown instance type 'p5.48large'; did you mean 'p5.48xlarge'",
        ),
        ([*changed(nodes="0"), *HERE], "--nodes: '0' is not valid; valid: a whole number, 1 or more"),
        ([*changed(nodes="many"), *HERE], "--nodes: 'many' is not valid; valid: a whole number, 1 or more"),
        ([*changed(ssh_from=""), *HERE], "the following arguments are required: --ssh-from"),
        ([*changed(ssh_from="0.0.0.0/0"), *HERE], "--ssh-from: 0.0.0.0/0 admits nearly the whole Internet"),
        ([*changed(name="a b"), *HERE], "--name: 'a b'; valid: a letter"),
        ([*changed(master_type="big"), *HERE], "--master-type: unknown instance type 'big'"),
        ([*changed(disk="10"), *HERE], "--disk: 10 GiB are too few"),
        ([*UP, *HERE, "--keys", "x"], "unknown flag '--keys'; did you mean '--key'"),
        ([*changed(zone="us-west-2q"), *HERE, "--yes"], "--zone: unknown zone 'us-west-2q'; did you mean"),
        ([*changed(image="ami-00000000"), *HERE, "--yes"], "--image: there is no image 'ami-00000000' in us-west-2"),
        ([*changed(image="/my/parameter"), *HERE, "--yes"], "--image: us-west-2 has no parameter /my/parameter"),
        *(
            ([*changed(type=name), *HERE, "--yes"], f"--image: no image is known for {name}; name one (ami-…)")
            for name in ("p2.xlarge", "g2.2xlarge", "p3.2xlarge")
        ),
        ([*changed(type="p2.xlarge", image=IMAGE), *HERE, "--yes"], "p2.xlarge is not offered in us-west-2"),
        (["cluster", "status", *HERE], "there is no cluster 'trainscale' in us-west-2"),
        (["cluster", "hosts", *HERE, "--name", "other"], "there is no cluster 'other' in us-west-2"),
        (["cluster", "ssh", *HERE], "there is no cluster 'trainscale' in us-west-2"),
        (["cluster", "status"], "--region: in which region?"),
    ],
    ids=lambda value: " ".join(word for word in value if word not in UP)[:50] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("account")
def test_wrong_input_is_one_message_and_nothing_is_made(
    argv: list[str], message: str, refused: Callable[..., str]
) -> None:
    assert message in refused(*argv)


@pytest.mark.parametrize(
    ("variables", "argv", "code", "message"),
    [
        (
            {"AWS_CONFIG_FILE": "config"},
            [*UP, "--yes"],
            2,
            "--region: in which region?",
        ),  # a profile's own does not count
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, [*UP, *HERE, "--yes"], 2, "AWS: no credentials found"),
        ({"AWS_PROFILE": "nobody"}, [*UP, *HERE, "--yes"], 2, "The config profile (nobody) could not be found"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, ["cluster", "status", *HERE], 1, "AWS cannot be reached"),
    ],
)
def test_an_environment_that_does_not_suffice_is_told(
    variables: dict[str, str], argv: list[str], code: int, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str],
) -> None:  # fmt: skip
    (tmp_path / "config").write_text(f"[default]\nregion = {REGION}\n")
    for name, value in variables.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    assert message in refused(*argv, code=code)


def test_without_boto3_the_extra_that_brings_it_is_named(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert "needs boto3\n  pip install 'trainscale[aws]'" in refused(*UP, *HERE, "--yes")


@pytest.mark.parametrize("action", ["up", "status", "hosts", "ssh", "down"])
def test_every_action_is_in_the_help_and_has_its_own(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["cluster", "--help"], ["cluster", action, "--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0
    actions, output = re.split(r"(?=usage: trainscale cluster [a-z])", capsys.readouterr().out, maxsplit=1)
    assert re.search(rf"^ +{action} ", actions, re.MULTILINE)
    assert f"usage: trainscale cluster {action}" in output
    page = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
    for flag in set(re.findall(r"--[a-z][a-z-]+", output)) - {"--help", "--debug", "--identity", "--output"}:
        assert f"`{flag}" in page or f"{flag}`" in page, flag
