"""A cluster on AWS: the known instance types, the request, and the template of the stack."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from ipaddress import IPv4Network, ip_network
from textwrap import indent

from ..errors import InputError, explain_unknown
from ..worker.type_aliases import JsonObject
from .aws import MARK, AwsClients, explain_errors, read_code


@dataclass(frozen=True)
class InstanceType:
    name: str
    gpus: int  # per host; 0 for a type that trains on its CPU
    gpu: str
    cpus: int  # virtual CPUs of a type without GPUs, else 0
    efa: int  # network cards with an Elastic Fabric Adapter
    batches: Mapping[str, int] = field(default_factory=dict)  # per device, by model; otherwise see docs/models.md

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]


# Of each family: the GPU, and its sizes as SIZE:GPUS or SIZE:GPUS:EFA_CARDS.
_G_SIZES = "xlarge:1 2xlarge:1 4xlarge:1 8xlarge:1:1 12xlarge:4:1 16xlarge:1:1"
_GPU_FAMILIES = {
    "p2": ("NVIDIA K80", "xlarge:1 8xlarge:8 16xlarge:16"),
    "g2": ("NVIDIA GRID K520", "2xlarge:1 8xlarge:4"),
    "p3": ("NVIDIA V100 16GB", "2xlarge:1 8xlarge:4 16xlarge:8"),
    "p3dn": ("NVIDIA V100 32GB", "24xlarge:8:1"),
    "p4d": ("NVIDIA A100 40GB", "24xlarge:8:4"),
    "p4de": ("NVIDIA A100 80GB", "24xlarge:8:4"),
    "p5": ("NVIDIA H100 80GB", "4xlarge:1:1 48xlarge:8:32"),
    "p5e": ("NVIDIA H200 141GB", "48xlarge:8:32"),
    "p5en": ("NVIDIA H200 141GB", "48xlarge:8:16"),
    "g4dn": ("NVIDIA T4 16GB", f"{_G_SIZES} metal:8:1"),
    "g5": ("NVIDIA A10G 24GB", f"{_G_SIZES} 24xlarge:4:1 48xlarge:8:1"),
    "g6": ("NVIDIA L4 24GB", f"{_G_SIZES} 24xlarge:4:1 48xlarge:8:1"),
    "g6e": ("NVIDIA L40S 48GB", f"{_G_SIZES} 24xlarge:4:2 48xlarge:8:4"),
}
# Those of the original scripts. AWS offers neither family to new users today.
_BATCHES = {"p2": {"alexnet": 512, "inceptionv3": 32}, "g2": {"alexnet": 128, "inceptionv3": 8}}
_CPU_FAMILIES = ("c7i", "m7i")
_CPUS = {"large": 2, "xlarge": 4} | {f"{n}xlarge": 4 * n for n in (2, 4, 8, 12, 16, 24, 48)}


INSTANCE_TYPES: dict[str, InstanceType] = {}
for _family, (_gpu, _sizes) in _GPU_FAMILIES.items():
    for _text in _sizes.split():
        _size, _gpus, _efa = [*_text.split(":"), "0"][:3]
        _name = f"{_family}.{_size}"
        INSTANCE_TYPES[_name] = InstanceType(_name, int(_gpus), _gpu, 0, int(_efa), _BATCHES.get(_family, {}))
for _family in _CPU_FAMILIES:
    for _size, _cpus in _CPUS.items():
        _name = f"{_family}.{_size}"
        INSTANCE_TYPES[_name] = InstanceType(_name, 0, "", _cpus, int(_size == "48xlarge"))


def find_instance_type(name: str, where: str = "") -> InstanceType:
    if name not in INSTANCE_TYPES:
        see = f"valid: sizes of {', '.join([*_GPU_FAMILIES, *_CPU_FAMILIES])}, as docs/aws.md lists them"
        raise explain_unknown("instance type", name, INSTANCE_TYPES, where, see)
    return INSTANCE_TYPES[name]


# Parameters of AWS's parameter store, which name the newest images in any region.
GPU_IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
CPU_IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
# Families whose GPUs the driver in that image does not support, by its release notes.
_OLD_FAMILIES = ("p2", "g2", "p3", "p3dn")

# ---- the request, checked before anything is created


@dataclass(frozen=True)
class MachineImage:
    id: str
    name: str
    root_device: str


@dataclass(frozen=True)
class ClusterRequest:
    name: str
    nodes: int
    worker: InstanceType
    master: InstanceType
    worker_image: MachineImage
    master_image: MachineImage
    disk_gib: int
    key: str
    login: str
    zone: str
    ssh_from: str


def parse_ssh_range(text: str) -> str:
    hint = "  your own address: the answer of https://checkip.amazonaws.com, followed by /32"
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InputError(f"--ssh-from: {error}; valid: 203.0.113.7/32, 198.51.100.0/24, …\n{hint}") from None
    if not isinstance(network, IPv4Network):
        raise InputError(f"--ssh-from: {text} is IPv6; the master has an IPv4 address\n{hint}")
    if network.prefixlen < 8:
        raise InputError(f"--ssh-from: {text} admits nearly the whole Internet; give your own range\n{hint}")
    return str(network)


def find_image(aws: AwsClients, given: str | None, instance: InstanceType, flag: str) -> MachineImage:
    name = given or (GPU_IMAGE if instance.gpus else CPU_IMAGE)
    if not given and instance.family in _OLD_FAMILIES:
        raise InputError(f"{flag}: no image is known for {instance.name}; name one (ami-…), Ubuntu with its GPU driver")
    with explain_errors():
        try:
            if name.startswith("/"):
                name = str(aws.ssm.get_parameter(Name=name)["Parameter"]["Value"])
            image = aws.ec2.describe_images(ImageIds=[name])["Images"][0]
        except aws.ssm.exceptions.ParameterNotFound:
            raise InputError(f"{flag}: {aws.region} has no parameter {name}\n  name an image (ami-…)") from None
        except (aws.ec2.exceptions.ClientError, IndexError) as error:
            if not isinstance(error, IndexError) and not read_code(error).startswith("InvalidAMIID"):
                raise
            raise InputError(f"{flag}: there is no image {name!r} in {aws.region}; each region has its own") from None
    return MachineImage(name, image.get("Name", name), image.get("RootDeviceName") or "/dev/sda1")


def find_zone(aws: AwsClients, given: str | None, worker: InstanceType, master: InstanceType) -> str:
    offered: dict[str, set[str]] = {}
    with explain_errors():
        for name in (worker.name, master.name):
            pages = aws.ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [name]}]
            )
            offered[name] = {offer["Location"] for page in pages for offer in page["InstanceTypeOfferings"]}
            if not offered[name]:
                raise InputError(f"{name} is not offered in {aws.region}\n  try another region or another type")
    zones = sorted(offered[worker.name] & offered[master.name])
    if not zones:
        text = "; ".join(f"{name} in {', '.join(sorted(zones))}" for name, zones in offered.items())
        raise InputError(f"no zone of {aws.region} offers both types\n  {text}\n  try another --master-type")
    if given is not None and given not in zones:
        raise explain_unknown("zone", given, zones, "--zone")
    return given or zones[0]


# ---- the template


def render_template(worker: InstanceType) -> str:
    # One interface for each network card. Only the first has an address: EFA traffic needs none, and 31 more per
    # host would use up the subnet.
    cards: list[JsonObject] = [{"NetworkCardIndex": 0, "DeviceIndex": 0}]
    if worker.efa:
        cards[0]["InterfaceType"] = "efa"
    for number in range(1, worker.efa):
        cards.append({"NetworkCardIndex": number, "DeviceIndex": 1, "InterfaceType": "efa-only"})
    common = {"Groups": [{"Ref": "Inside"}], "DeleteOnTermination": True}
    package = resources.files(__package__)
    contents = {
        "# node.sh": package.joinpath("aws_node.sh").read_text(encoding="utf-8").rstrip("\n"),
        "# network cards": "\n".join(f"- {json.dumps({**card, **common})}" for card in cards),
    }
    lines = []
    for line in package.joinpath("aws_stack.yaml").read_text(encoding="utf-8").splitlines():
        content = contents.get(line.strip())
        lines.append(line if content is None else indent(content, line[: line.index("#")]))
    return "\n".join(lines) + "\n"


def create_stack(aws: AwsClients, request: ClusterRequest) -> str:
    parameters = {
        "Nodes": str(request.nodes),
        "WorkerType": request.worker.name,
        "MasterType": request.master.name,
        "WorkerImage": request.worker_image.id,
        "MasterImage": request.master_image.id,
        "WorkerRootDevice": request.worker_image.root_device,
        "MasterRootDevice": request.master_image.root_device,
        "DiskGiB": str(request.disk_gib),
        "Key": request.key,
        "Login": request.login,
        "Zone": request.zone,
        "SshFrom": request.ssh_from,
    }
    with explain_errors():
        response = aws.cloudformation.create_stack(
            StackName=request.name,
            TemplateBody=render_template(request.worker),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Tags=[{"Key": MARK, "Value": request.name}],
            Capabilities=["CAPABILITY_IAM"],
            OnFailure="ROLLBACK",
        )
    return str(response["StackId"])
