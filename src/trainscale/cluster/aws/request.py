"""The request for a cluster, checked against AWS before anything is created: images, zone, key pair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

from ...errors import InputError, explain_unknown
from .connect import AwsClients, explain_errors, read_code
from .instances import InstanceType
from .template import choose_default_image

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")  # also the first part of the names of its hosts
_SMALLEST_DISK = 75  # GiB
_SHORTEST_PREFIX = 8  # bits; a shorter prefix admits nearly everybody


@dataclass(frozen=True)
class MachineImage:
    id: str
    name: str
    root_device: str


@dataclass(frozen=True)
class ClusterOptions:
    """The flags of ``trainscale cluster up``, which are checked without AWS."""

    name: str
    nodes: int
    worker: InstanceType
    master: InstanceType
    image: str | None
    master_image: str | None
    disk_gib: int
    key: str
    login: str
    zone: str | None
    ssh_from: str

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"--nodes: {self.nodes} is too small; valid: 1 or more")
        if self.disk_gib < _SMALLEST_DISK:
            raise InputError(
                f"--disk: {self.disk_gib} GiB are too few for the images with drivers; valid: {_SMALLEST_DISK} or more"
            )


@dataclass(frozen=True)
class ClusterRequest:
    """What ``trainscale cluster up`` creates."""

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

    def make_parameters(self) -> dict[str, str]:
        """Return the parameters of stack.yaml."""
        return {
            "Nodes": str(self.nodes),
            "WorkerType": self.worker.name,
            "MasterType": self.master.name,
            "WorkerImage": self.worker_image.id,
            "MasterImage": self.master_image.id,
            "WorkerRootDevice": self.worker_image.root_device,
            "MasterRootDevice": self.master_image.root_device,
            "DiskGiB": str(self.disk_gib),
            "Key": self.key,
            "Login": self.login,
            "Zone": self.zone,
            "SshFrom": self.ssh_from,
        }

    def list_billed_items(self) -> list[tuple[str, int, str]]:
        """Return what AWS bills for: a description, and for instances their number and type."""
        return [
            (f"{self.nodes} × {self.worker.name}", self.nodes, self.worker.name),
            (f"a master, {self.master.name}", 1, self.master.name),
            (f"{self.nodes + 1} disks of {self.disk_gib} GiB", 0, ""),
            ("a NAT gateway and two public addresses", 0, ""),
            ("what the shared file system stores, and data that leaves AWS", 0, ""),
        ]


# ---- checks without AWS


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"--name: {name!r}; valid: a letter, then at most 39 letters, digits and hyphens")
    return name


def parse_ssh_range(text: str) -> str:
    """Return an IPv4 range as CloudFormation expects it; a single address is a range of one."""
    hint = "  your own address: the answer of https://checkip.amazonaws.com, followed by /32"
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InputError(f"--ssh-from: {error}; valid: 203.0.113.7/32, 198.51.100.0/24, …\n{hint}") from None
    if not isinstance(network, IPv4Network):
        raise InputError(f"--ssh-from: {text} is IPv6; the master has an IPv4 address\n{hint}")
    if network.prefixlen < _SHORTEST_PREFIX:
        raise InputError(f"--ssh-from: {text} admits nearly the whole Internet; give your own range\n{hint}")
    return str(network)


# ---- checks with AWS


def make_request(aws: AwsClients, options: ClusterOptions) -> ClusterRequest:
    """Find the images and the zone, and check that the key pair exists. Raise InputError if something is missing."""
    check_key(aws, options.key)
    return ClusterRequest(
        options.name,
        options.nodes,
        options.worker,
        options.master,
        find_image(aws, options.image, options.worker, "--image"),
        find_image(aws, options.master_image, options.master, "--master-image"),
        options.disk_gib,
        options.key,
        options.login,
        find_zone(aws, options.zone, options.worker, options.master),
        options.ssh_from,
    )


def find_image(aws: AwsClients, given: str | None, instance: InstanceType, flag: str) -> MachineImage:
    """Return the image with this id or of this parameter; without either, the default image of the type."""
    name = given or choose_default_image(instance)
    if name is None:
        raise InputError(
            f"{flag}: no image is known for {instance.name}; name one (ami-…), Ubuntu with a driver for its GPU"
        )
    image_id = _read_parameter(aws, name, flag) if name.startswith("/") else name
    with explain_errors():
        try:
            images = aws.ec2.describe_images(ImageIds=[image_id])["Images"]
        except aws.ec2.exceptions.ClientError as error:
            if not read_code(error).startswith("InvalidAMIID"):
                raise
            images = []
    if not images:
        raise InputError(f"{flag}: there is no image {image_id!r} in {aws.region}; each region has its own")
    return MachineImage(image_id, images[0].get("Name", image_id), images[0].get("RootDeviceName") or "/dev/sda1")


def _read_parameter(aws: AwsClients, name: str, flag: str) -> str:
    with explain_errors():
        try:
            return str(aws.ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except aws.ssm.exceptions.ClientError as error:
            if read_code(error) != "ParameterNotFound":
                raise
    raise InputError(f"{flag}: {aws.region} has no parameter {name}\n  name an image (ami-…)")


def find_zone(aws: AwsClients, given: str | None, worker: InstanceType, master: InstanceType) -> str:
    """Return a zone that offers both types: the given one, or the first."""
    offered = {kind.name: _find_zones(aws, kind.name) for kind in (worker, master)}
    for name, zones in offered.items():
        if not zones:
            raise InputError(f"{name} is not offered in {aws.region}\n  try another region or another type")
    both = sorted(offered[worker.name] & offered[master.name])
    if given is None and both:
        return both[0]
    if given in both:
        return str(given)
    zones_text = "; ".join(f"{name} in {', '.join(sorted(zones))}" for name, zones in offered.items())
    if given is None:
        raise InputError(f"no zone of {aws.region} offers both types\n  {zones_text}\n  try another --master-type")
    raise explain_unknown("zone", given, both, "--zone")


def _find_zones(aws: AwsClients, type_name: str) -> set[str]:
    filters = [{"Name": "instance-type", "Values": [type_name]}]
    with explain_errors():
        pages = aws.ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", Filters=filters
        )
        return {offer["Location"] for page in pages for offer in page["InstanceTypeOfferings"]}


def check_key(aws: AwsClients, key: str) -> None:
    with explain_errors():
        names = [pair["KeyName"] for pair in aws.ec2.describe_key_pairs()["KeyPairs"]]
    if not names:
        raise InputError(
            f"--key: there is no key pair in {aws.region}; to import one:\n"
            f"  aws ec2 import-key-pair --region {aws.region} --key-name {key} "
            "--public-key-material fileb://~/.ssh/id_ed25519.pub"
        )
    if key not in names:
        raise explain_unknown("key pair", key, names, f"--key, {aws.region}")
