"""A cluster on AWS: what is checked before it is requested, AWS's errors in words, and stacks in every state.

The simulated AWS of the command's tests knows no states in between and no failures; here the answers are scripted.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.stub import Stubber

from trainscale.cluster import aws as stacks
from trainscale.cluster.aws import AwsClients, CannotStartWorkers, add_hint, explain_errors, find_region
from trainscale.cluster.aws_template import (
    CPU_IMAGE,
    GPU_IMAGE,
    INSTANCE_TYPES,
    ClusterRequest,
    MachineImage,
    create_stack,
    find_image,
    find_instance_type,
    parse_ssh_range,
    render_template,
)
from trainscale.errors import InputError, TrainscaleError

ID = "arn:aws:cloudformation:us-west-2:1:stack/demo/1"
QUOTA = "You have requested more vCPU capacity than your current vCPU limit of 0 allows (VcpuLimitExceeded)"
NO_ROOM = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested"


@pytest.mark.parametrize(
    ("given", "taken"),
    [("203.0.113.7", "203.0.113.7/32"), ("198.51.100.0/24", "198.51.100.0/24"), ("10.0.0.0/8", "10.0.0.0/8")],
)
def test_a_range_or_an_address_may_log_in(given: str, taken: str) -> None:
    assert parse_ssh_range(given) == taken


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("128.0.0.0/1", "--ssh-from: 128.0.0.0/1 admits nearly the whole Internet"),
        ("198.51.100.7/24", "--ssh-from: 198.51.100.7/24 has host bits set"),
        ("home", "--ssh-from: 'home' does not appear to be"),
        ("2001:db8::/32", "is IPv6; the master has an IPv4 address"),
        ("", "--ssh-from:"),
    ],
)
def test_other_ranges_are_refused_with_the_way_to_find_ones_own(given: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_ssh_range(given)
    assert message in str(caught.value)
    assert "checkip.amazonaws.com" in str(caught.value)


def test_the_region_comes_from_the_flag_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert find_region(None) == "eu-west-2"
    assert find_region("us-gov-east-1") == "us-gov-east-1"
    monkeypatch.setenv("AWS_REGION", "oregon")
    with pytest.raises(InputError, match="AWS_REGION: 'oregon' is not a region"):
        find_region(None)
    with pytest.raises(InputError, match="--region: 'us-east' is not a region"):
        find_region("us-east")


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("ExpiredToken", InputError, "AWS does not accept these credentials"),
        ("InvalidClientTokenId", InputError, "AWS does not accept these credentials"),
        ("AccessDenied", TrainscaleError, "AWS does not allow this"),
        ("UnauthorizedOperation", TrainscaleError, "AWS does not allow this"),
        ("VpcLimitExceeded", TrainscaleError, "a quota of your account is used up"),
        ("Throttling", TrainscaleError, "AWS refused CreateStack: Throttling: the message"),
    ],
)
def test_a_refusal_is_one_message_with_what_to_do(code: str, kind: type[TrainscaleError], message: str) -> None:
    with pytest.raises(TrainscaleError) as caught, explain_errors():
        raise ClientError({"Error": {"Code": code, "Message": "the message"}}, "CreateStack")
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert "the message" in str(caught.value)
    with pytest.raises(InputError, match=r"no credentials found.*\n.*aws configure"), explain_errors():
        raise NoCredentialsError


class Script:
    """Answers in the order in which they are requested. An answer that is not requested fails the test."""

    def __init__(self) -> None:
        arguments: dict[str, Any] = {"region_name": "us-west-2", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
        formation, scaling = boto3.client("cloudformation", **arguments), boto3.client("autoscaling", **arguments)
        self.formation, self.scaling = Stubber(formation), Stubber(scaling)
        self.aws = AwsClients("us-west-2", formation, None, scaling, None)

    def state(self, status: str, tag: str = stacks.MARK) -> Script:
        stack = {"StackName": "demo", "StackId": ID, "StackStatus": status, "CreationTime": datetime.now(UTC)}
        stacks_ = [{**stack, "Tags": [{"Key": tag, "Value": "demo"}]}]
        self.formation.add_response("describe_stacks", {"Stacks": stacks_})
        return self

    def resource(self, name: str, status: str, reason: str = "") -> Script:
        item = {"LogicalResourceId": name, "PhysicalResourceId": f"demo-{name}", "ResourceType": "x"}
        item |= {"ResourceStatus": status, "ResourceStatusReason": reason}
        resources = [{**item, "Timestamp": datetime.now(UTC)}]
        self.formation.add_response("describe_stack_resources", {"StackResources": resources})
        return self

    def not_started(self, *messages: str) -> Script:
        self.resource("Workers", "CREATE_COMPLETE")
        activity = {"ActivityId": "1", "AutoScalingGroupName": "g", "Cause": "x", "StartTime": datetime.now(UTC)}
        done = [{**activity, "StatusCode": "Successful"}]
        failed = [{**activity, "StatusCode": "Failed", "StatusMessage": message} for message in messages]
        expected = {"AutoScalingGroupName": "demo-Workers"}
        self.scaling.add_response("describe_scaling_activities", {"Activities": [*done, *failed]}, expected)
        return self

    def deletion(self) -> Script:
        self.formation.add_response("delete_stack", {}, {"StackName": ID})
        return self


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(stacks, "_INTERVAL", 0.001)
    script = Script()
    with script.formation, script.scaling:
        yield script
    script.formation.assert_no_pending_responses()
    script.scaling.assert_no_pending_responses()


def test_creation_is_followed_and_missing_room_is_told_once_and_waited_for(script: Script) -> None:
    script.state("CREATE_IN_PROGRESS").not_started(NO_ROOM)
    script.state("CREATE_IN_PROGRESS").not_started(NO_ROOM, NO_ROOM).state("CREATE_IN_PROGRESS")
    script.not_started("Your instance is being started").state("CREATE_COMPLETE")
    told: list[str] = []
    stack = stacks.wait_until_settled(script.aws, ID, told.append)
    assert stack.status == "CREATE_COMPLETE"
    assert told[0].startswith(f"Workers not started yet: {NO_ROOM}\n  AWS has no capacity")
    assert told[1:] == ["Workers not started yet: Your instance is being started"]
    # CloudFormation would wait for half an hour: for it the group is made, only its instances are not.
    script.state("CREATE_IN_PROGRESS").not_started(QUOTA)
    with pytest.raises(CannotStartWorkers, match="quota for this family is too small"):
        stacks.wait_until_settled(script.aws, ID, print)


def test_a_roll_back_is_followed_to_its_end_and_the_first_reason_counts(script: Script) -> None:
    script.state("ROLLBACK_IN_PROGRESS").state("ROLLBACK_COMPLETE")
    stack = stacks.wait_until_settled(script.aws, ID, print)
    assert stack.has_failed
    events = [
        ("demo", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [WayOut]"),
        ("WayOut", "CREATE_FAILED", "NatGatewayLimitExceeded: no more"),
        ("Master", "CREATE_FAILED", "Resource creation cancelled"),
        ("Network", "CREATE_IN_PROGRESS", ""),
    ]
    keys = ("LogicalResourceId", "ResourceStatus", "ResourceStatusReason")
    common = {"StackId": ID, "EventId": "1", "StackName": "demo", "Timestamp": datetime.now(UTC)}
    answer = {"StackEvents": [{**common, **dict(zip(keys, event, strict=True))} for event in events]}
    script.formation.add_response("describe_stack_events", answer)
    assert stacks.find_first_failure(script.aws, ID) == add_hint("WayOut: NatGatewayLimitExceeded: no more")


def test_a_stack_of_somebody_else_is_never_touched(script: Script) -> None:
    for action in (stacks.find_stack, stacks.find_cluster, stacks.check_name_is_free):
        script.state("CREATE_COMPLETE", tag="team")
        with pytest.raises(InputError, match="not made by trainscale"):
            action(script.aws, "demo")


@pytest.mark.parametrize("state", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"])
def test_a_name_that_a_failed_start_holds_is_told_with_the_way_out(state: str, script: Script) -> None:
    script.state(state)
    with pytest.raises(InputError, match=r"the remains of a failed start\)\n.*\n.*cluster down --name demo"):
        stacks.check_name_is_free(script.aws, "demo")


def take_down(script: Script) -> None:
    stack = stacks.Stack("demo", ID, "CREATE_COMPLETE", "", datetime.now(UTC), {}, {})
    stacks.delete_stack(script.aws, stack)


def test_a_deletion_that_fails_is_requested_again_then_explained(script: Script) -> None:
    script.deletion().state("DELETE_IN_PROGRESS").state("DELETE_FAILED")
    script.deletion().state("DELETE_IN_PROGRESS").state("DELETE_COMPLETE")
    take_down(script)
    for _ in range(2):
        script.deletion().state("DELETE_FAILED")
    script.resource("PublicSubnet", "DELETE_FAILED", "it is held by eni-1")
    with pytest.raises(TrainscaleError) as caught:
        take_down(script)
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "not all of demo could be removed, and AWS may bill for it:",
        "  PublicSubnet demo-PublicSubnet: it is held by eni-1",
    ]
    assert lines[-1].endswith("its Tag Editor finds the tag trainscale-stack = demo")
    script.formation.add_client_error("delete_stack", "AccessDenied", "User is not authorized")
    with pytest.raises(TrainscaleError, match="AWS does not allow this: User is not authorized"):
        take_down(script)


LINT = Path(sys.executable).with_name("cfn-lint")
# One type for every number of network cards.
TYPES = {instance.efa: instance.name for instance in INSTANCE_TYPES.values()}
WORLD = ("0.0.0.0/0", "::/0")


class Loader(yaml.SafeLoader):
    """Reads !Ref X as {"Ref": X} and so on, as CloudFormation does."""


def _tag(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    name = suffix if suffix == "Ref" else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        return {name: value.split(".") if suffix == "GetAtt" else value}
    assert isinstance(node, yaml.SequenceNode)
    return {name: loader.construct_sequence(node, deep=True)}


Loader.add_multi_constructor("!", _tag)


@cache
def parsed(type_name: str = "p4d.24xlarge") -> dict[str, Any]:
    return yaml.load(render_template(find_instance_type(type_name)), Loader)


def of_kind(kind: str, type_name: str = "p4d.24xlarge") -> dict[str, dict[str, Any]]:
    resources = parsed(type_name)["Resources"].items()
    return {name: item.get("Properties", {}) for name, item in resources if item["Type"] == f"AWS::{kind}"}


@pytest.mark.processes
def test_cfn_lint_finds_nothing_for_any_number_of_network_cards_but_would_find_a_mistake(tmp_path: Path) -> None:
    texts = {str(cards): render_template(find_instance_type(name)) for cards, name in TYPES.items()}
    assert all(len(text.encode()) <= 51_200 for text in texts.values()), "CloudFormation takes no larger request"
    texts["mistaken"] = texts["0"].replace("Strategy: cluster", "Strategy: close")
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    command = [LINT, "--format", "json", *(tmp_path / name for name in texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    findings = {(Path(finding["Filename"]).name, finding["Rule"]["Id"]) for finding in json.loads(done.stdout)}
    assert ("mistaken", "E3030") in findings
    assert {name for name, _ in findings} == {"mistaken"}


def test_the_parameters_are_those_that_up_gives() -> None:
    image = MachineImage("ami-1", "name", "/dev/sda1")
    instance = find_instance_type("g5.xlarge")
    request = ClusterRequest(
        "name", 2, instance, instance, image, image, 100, "key", "ubuntu", "us-west-2a", "192.0.2.0/24"
    )
    requests: list[dict[str, Any]] = []
    aws: Any = SimpleNamespace(
        cloudformation=SimpleNamespace(create_stack=lambda **named: requests.append(named) or {"StackId": "id"})
    )
    assert create_stack(aws, request) == "id"
    assert set(parsed()["Parameters"]) == {item["ParameterKey"] for item in requests[0]["Parameters"]}


def test_only_ssh_to_the_master_is_open_and_nodes_reach_each_other_and_the_file_system() -> None:
    groups = of_kind("EC2::SecurityGroup").items()
    rules = [(name, rule) for name, group in groups for rule in group.get("SecurityGroupIngress", [])]
    rules += of_kind("EC2::SecurityGroupIngress").items()
    from_addresses = [(name, rule) for name, rule in rules if "SourceSecurityGroupId" not in rule]
    assert [(name, rule["FromPort"], rule["ToPort"], rule["CidrIp"]) for name, rule in from_addresses] == [
        ("Ssh", 22, 22, {"Ref": "SshFrom"})
    ]
    assert not any(str(rule.get("CidrIp")) in WORLD for _, rule in rules)
    (rule,) = of_kind("EC2::SecurityGroup")["Nfs"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["SourceSecurityGroupId"]) == (2049, 2049, {"Ref": "Inside"})
    (door,) = of_kind("EFS::MountTarget").values()
    assert door["SecurityGroups"] == [{"Ref": "Nfs"}]
    # EFA needs everything between nodes, both ways
    (ingress,) = of_kind("EC2::SecurityGroupIngress").values()
    (egress,) = of_kind("EC2::SecurityGroupEgress").values()
    assert ingress["GroupId"] == ingress["SourceSecurityGroupId"] == {"Ref": "Inside"}
    assert egress["GroupId"] == egress["DestinationSecurityGroupId"] == {"Ref": "Inside"}
    assert ingress["IpProtocol"] == egress["IpProtocol"] == "-1"
    assert of_kind("EC2::Instance")["Master"]["SecurityGroupIds"] == [{"Ref": "Inside"}, {"Ref": "Ssh"}]
    for card in of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]["NetworkInterfaces"]:
        assert card["Groups"] == [{"Ref": "Inside"}]
        assert "AssociatePublicIpAddress" not in card
    assert not any(subnet.get("MapPublicIpOnLaunch") for subnet in of_kind("EC2::Subnet").values())


def test_disks_are_encrypted_and_the_masters_role_may_only_look() -> None:
    templates = of_kind("EC2::LaunchTemplate")
    data = [template["LaunchTemplateData"] for template in templates.values()]
    assert {content["MetadataOptions"]["HttpTokens"] for content in data} == {"required"}
    master = of_kind("EC2::Instance")["Master"]
    assert master["LaunchTemplate"]["LaunchTemplateId"] == {"Ref": "MasterTemplate"}
    disks = [*master["BlockDeviceMappings"], *templates["WorkerTemplate"]["LaunchTemplateData"]["BlockDeviceMappings"]]
    assert [(disk["Ebs"]["Encrypted"], disk["Ebs"]["DeleteOnTermination"]) for disk in disks] == [(True, True)] * 2
    assert of_kind("EFS::FileSystem")["FileSystem"]["Encrypted"] is True
    (role,) = of_kind("IAM::Role").values()
    allowed = [statement for policy in role["Policies"] for statement in policy["PolicyDocument"]["Statement"]]
    actions = [
        action
        for statement in allowed
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    ]
    assert all(action.partition(":")[2].startswith("Describe") for action in actions), actions
    assert all(statement["Resource"] != "*" or "Condition" in statement for statement in allowed)
    assert "IamInstanceProfile" not in of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]


@pytest.mark.parametrize(("cards", "type_name"), TYPES.items())
def test_workers_have_an_adapter_on_every_card_of_their_type(cards: int, type_name: str) -> None:
    data = of_kind("EC2::LaunchTemplate", type_name)["WorkerTemplate"]["LaunchTemplateData"]
    first, *rest = data["NetworkInterfaces"]
    assert (first["NetworkCardIndex"], first["DeviceIndex"]) == (0, 0)
    assert first.get("InterfaceType", "interface") == ("efa" if cards else "interface")
    assert [(card["NetworkCardIndex"], card["DeviceIndex"], card["InterfaceType"]) for card in rest] == [
        (number, 1, "efa-only") for number in range(1, cards)
    ]
    assert all(card["DeleteOnTermination"] for card in (first, *rest))


def test_workers_are_as_many_as_asked_close_together_and_end_with_the_stack() -> None:
    (group,) = of_kind("EC2::PlacementGroup").values()
    assert group == {"Strategy": "cluster"}
    workers = of_kind("AutoScaling::AutoScalingGroup")["Workers"]
    assert workers["MinSize"] == workers["MaxSize"] == workers["DesiredCapacity"] == {"Ref": "Nodes"}
    data = of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]
    assert data["Placement"] == {"GroupName": {"Ref": "Close"}}
    assert {str(subnet["AvailabilityZone"]) for subnet in of_kind("EC2::Subnet").values()} == {"{'Ref': 'Zone'}"}
    resources = parsed()["Resources"].values()
    assert not any(resource.get("DeletionPolicy", "Delete") != "Delete" for resource in resources)
    assert of_kind("EFS::FileSystem")["FileSystem"]["BackupPolicy"] == {"Status": "DISABLED"}


def test_every_node_runs_node_sh_with_its_role() -> None:
    script = resources.files("trainscale.cluster").joinpath("aws_node.sh").read_text()
    master = of_kind("EC2::Instance")["Master"]["UserData"]
    worker = of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]["UserData"]
    for role, data in (("master", master), ("worker", worker)):
        separator, (head, body) = data["Fn::Base64"]["Fn::Join"]
        assert separator == ""
        assert head["Fn::Sub"].startswith("#!/bin/bash\n")
        assert f"ROLE={role} " in head["Fn::Sub"]
        assert body == script
        assert len((head["Fn::Sub"] + body).encode()) < 15_000  # EC2 takes 16 KiB, and the sub's values are longer


@pytest.mark.parametrize(
    ("type_name", "parameter"),
    [("c7i.4xlarge", CPU_IMAGE), ("m7i.large", CPU_IMAGE), ("p5.48xlarge", GPU_IMAGE), ("g4dn.xlarge", GPU_IMAGE)],
)
def test_the_image_follows_from_the_type(type_name: str, parameter: str) -> None:
    aws: Any = SimpleNamespace(
        ssm=SimpleNamespace(get_parameter=lambda Name: {"Parameter": {"Value": f"image of {Name}"}}),
        ec2=SimpleNamespace(describe_images=lambda ImageIds: {"Images": [{"Name": "Ubuntu"}]}),
    )
    image = find_image(aws, None, find_instance_type(type_name), "--image")
    assert image == MachineImage(f"image of {parameter}", "Ubuntu", "/dev/sda1")


def test_devices_and_adapters_are_those_that_ec2_describes() -> None:
    import moto  # it has EC2's own description of its types

    with gzip.open(Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz") as file:
        known = json.load(file)
    checked = [instance_type for instance_type in INSTANCE_TYPES.values() if instance_type.name in known]
    assert {instance_type.family for instance_type in INSTANCE_TYPES.values()} - {
        instance_type.family for instance_type in checked
    } <= {"p2", "g2", "p3"}
    for instance_type in checked:
        facts = known[instance_type.name]
        network = facts["NetworkInfo"]
        gpus = facts.get("GpuInfo", {}).get("Gpus", [{"Count": 0, "Name": ""}])[0]
        assert instance_type.gpus == gpus["Count"], instance_type
        assert gpus["Name"] in instance_type.gpu, instance_type
        assert instance_type.gpus or instance_type.cpus == facts["VCpuInfo"]["DefaultVCpus"], instance_type
        assert instance_type.efa == (network["EfaInfo"]["MaximumEfaInterfaces"] if network["EfaSupported"] else 0), (
            instance_type
        )


def test_the_page_lists_every_family_with_numbers_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
    table = page.partition("## Instance types")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    listed = {family: row[2] for row in rows[2:] for family in row[0].split(", ")}
    assert set(listed) == {instance_type.family for instance_type in INSTANCE_TYPES.values()}
    checked = 0
    for family, sizes in listed.items():
        for size, gpus, cards in re.findall(r"([\w.]+): (\d+), (\d+)", sizes):
            name = f"{family}.{size}".replace("p3.dn.", "p3dn.")
            if name in INSTANCE_TYPES:
                checked += 1
                instance_type = INSTANCE_TYPES[name]
                assert (instance_type.gpus, instance_type.efa) == (int(gpus), int(cards)), name
    assert checked >= 17
