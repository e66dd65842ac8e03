"""The CloudFormation template: valid, nothing but ssh open, disks encrypted, EFA where the type has it. The table of
instance types agrees with EC2's own description of them.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from trainscale.cluster.aws_template import (
    CPU_IMAGE,
    GPU_IMAGE,
    INSTANCE_TYPES,
    ClusterRequest,
    MachineImage,
    create_stack,
    find_image,
    find_instance_type,
    render_template,
)
from trainscale.errors import InputError

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


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return what cfn-lint finds in a template for each number of network cards, and in one with a mistake."""
    folder = tmp_path_factory.mktemp("templates")
    texts = {str(cards): render_template(find_instance_type(name)) for cards, name in TYPES.items()}
    assert all(len(text.encode()) <= 51_200 for text in texts.values()), "CloudFormation takes no larger request"
    texts["mistaken"] = texts["0"].replace("Strategy: cluster", "Strategy: close")
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [folder / name for name in texts]
    done = subprocess.run([LINT, "--format", "json", *paths], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == ""
    rules: dict[str, list[str]] = {name: [] for name in texts}
    for finding in json.loads(done.stdout):
        rules[Path(finding["Filename"]).name].append(finding["Rule"]["Id"])
    return rules


@pytest.mark.processes
def test_cfn_lint_finds_nothing_for_any_number_of_network_cards(findings: dict[str, list[str]]) -> None:
    assert {name: rules for name, rules in findings.items() if name != "mistaken"} == {str(n): [] for n in TYPES}


@pytest.mark.processes
def test_cfn_lint_would_find_a_mistake(findings: dict[str, list[str]]) -> None:
    assert "E3030" in findings["mistaken"]


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


# ---- what is open


def test_only_ssh_is_open_and_only_to_the_range_that_was_given() -> None:
    rules = [
        (name, rule)
        for name, group in of_kind("EC2::SecurityGroup").items()
        for rule in group.get("SecurityGroupIngress", [])
    ]
    rules += of_kind("EC2::SecurityGroupIngress").items()
    from_addresses = [(name, rule) for name, rule in rules if "SourceSecurityGroupId" not in rule]
    assert [(name, rule["FromPort"], rule["ToPort"], rule["CidrIp"]) for name, rule in from_addresses] == [
        ("Ssh", 22, 22, {"Ref": "SshFrom"})
    ]
    assert not any(str(rule.get("CidrIp")) in WORLD for _, rule in rules)


def test_the_file_system_is_open_to_the_nodes_only() -> None:
    (rule,) = of_kind("EC2::SecurityGroup")["Nfs"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["SourceSecurityGroupId"]) == (2049, 2049, {"Ref": "Inside"})
    (door,) = of_kind("EFS::MountTarget").values()
    assert door["SecurityGroups"] == [{"Ref": "Nfs"}]


def test_nodes_may_say_everything_to_each_other_both_ways_as_efa_needs() -> None:
    (ingress,) = of_kind("EC2::SecurityGroupIngress").values()
    (egress,) = of_kind("EC2::SecurityGroupEgress").values()
    assert ingress["GroupId"] == ingress["SourceSecurityGroupId"] == {"Ref": "Inside"}
    assert egress["GroupId"] == egress["DestinationSecurityGroupId"] == {"Ref": "Inside"}
    assert ingress["IpProtocol"] == egress["IpProtocol"] == "-1"


def test_only_the_master_can_be_reached_from_outside() -> None:
    assert of_kind("EC2::Instance")["Master"]["SecurityGroupIds"] == [{"Ref": "Inside"}, {"Ref": "Ssh"}]
    for card in of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]["NetworkInterfaces"]:
        assert card["Groups"] == [{"Ref": "Inside"}]
        assert "AssociatePublicIpAddress" not in card
    assert not any(subnet.get("MapPublicIpOnLaunch") for subnet in of_kind("EC2::Subnet").values())


def test_the_metadata_service_is_version_2_only_and_disks_are_encrypted() -> None:
    templates = of_kind("EC2::LaunchTemplate")
    data = [template["LaunchTemplateData"] for template in templates.values()]
    assert {content["MetadataOptions"]["HttpTokens"] for content in data} == {"required"}
    master = of_kind("EC2::Instance")["Master"]
    assert master["LaunchTemplate"]["LaunchTemplateId"] == {"Ref": "MasterTemplate"}
    disks = [*master["BlockDeviceMappings"], *templates["WorkerTemplate"]["LaunchTemplateData"]["BlockDeviceMappings"]]
    assert [(disk["Ebs"]["Encrypted"], disk["Ebs"]["DeleteOnTermination"]) for disk in disks] == [(True, True)] * 2
    assert of_kind("EFS::FileSystem")["FileSystem"]["Encrypted"] is True


def test_the_masters_role_may_look_and_nothing_else() -> None:
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


# ---- what is made


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


def test_workers_are_as_many_as_asked_in_one_placement_group_and_one_zone() -> None:
    (group,) = of_kind("EC2::PlacementGroup").values()
    assert group == {"Strategy": "cluster"}
    workers = of_kind("AutoScaling::AutoScalingGroup")["Workers"]
    assert workers["MinSize"] == workers["MaxSize"] == workers["DesiredCapacity"] == {"Ref": "Nodes"}
    data = of_kind("EC2::LaunchTemplate")["WorkerTemplate"]["LaunchTemplateData"]
    assert data["Placement"] == {"GroupName": {"Ref": "Close"}}
    assert {str(subnet["AvailabilityZone"]) for subnet in of_kind("EC2::Subnet").values()} == {"{'Ref': 'Zone'}"}


def test_the_stack_ends_with_all_that_it_made() -> None:
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


@pytest.mark.parametrize("type_name", ["p2.xlarge", "g2.2xlarge", "p3.2xlarge"])
def test_gpus_too_old_for_todays_driver_have_no_image(type_name: str) -> None:
    nothing: Any = None
    with pytest.raises(InputError, match=f"--image: no image is known for {type_name}"):
        find_image(nothing, None, find_instance_type(type_name), "--image")


# ---- the types


@pytest.mark.parametrize(
    ("name", "gpus", "batches"),
    [
        ("p2.16xlarge", 16, {"alexnet": 512, "inceptionv3": 32}),
        ("p2.8xlarge", 8, {"alexnet": 512, "inceptionv3": 32}),
        ("p2.xlarge", 1, {"alexnet": 512, "inceptionv3": 32}),
        ("g2.2xlarge", 1, {"alexnet": 128, "inceptionv3": 8}),
        ("g2.8xlarge", 4, {"alexnet": 128, "inceptionv3": 8}),
    ],
)
def test_the_originals_types_have_the_originals_defaults(name: str, gpus: int, batches: dict[str, int]) -> None:
    assert find_instance_type(name).gpus == gpus
    assert find_instance_type(name).batches == batches


def test_batches_are_of_models_that_exist() -> None:
    from trainscale.worker import models

    assert {name for instance_type in INSTANCE_TYPES.values() for name in instance_type.batches} <= set(
        models.list_names()
    )


def described() -> dict[str, dict]:
    """EC2's own description of its types, as moto has recorded it."""
    import moto

    with gzip.open(Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz") as file:
        return json.load(file)


def test_devices_and_adapters_are_those_that_ec2_describes() -> None:
    known = described()
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


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^--type: unknown instance type 'p5\.48large'; did you mean 'p5\.48xlarge'"):
        find_instance_type("p5.48large", "--type")


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
