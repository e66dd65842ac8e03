"""What a cluster is to be, checked against AWS before anything is made: images, zone, key pair, and what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

from ...errors import InputError, unknown
from .connect import Aws, code_of, told
from .instances import Instance
from .template import image_for

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")  # also the first part of its hosts' names
_LARGEST_RANGE = 8  # bits; a range with fewer is nearly everybody

# Dollars, in us-east-1: an hour of a NAT gateway, of a public address, and a gibibyte of disk.
_WAY_OUT = 0.045
_ADDRESS = 0.005
_DISK_PER_MONTH = 0.08
_HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Image:
    id: str
    name: str
    root_device: str


@dataclass(frozen=True)
class ClusterRequest:
    """All that `trainscale cluster up` was asked for."""

    name: str
    nodes: int
    worker: Instance
    master: Instance
    worker_image: Image
    master_image: Image
    disk_gib: int
    key: str
    login: str
    zone: str
    ssh_from: str

    def parameters(self) -> dict[str, str]:
        """Those of stack.yaml."""
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


# ---- cost


def costs(nodes: int, worker: Instance, master: Instance, disk_gib: int) -> list[tuple[str, float | None]]:
    """Dollars per hour by what they are for. None: the type has no price by the hour."""
    return [
        (f"{nodes} × {worker.name}", None if worker.dollars is None else nodes * worker.dollars),
        (f"master, {master.name}", master.dollars),
        ("way out of the workers (NAT gateway), two public addresses", _WAY_OUT + 2 * _ADDRESS),
        (f"{nodes + 1} disks of {disk_gib} GiB", (nodes + 1) * disk_gib * _DISK_PER_MONTH / _HOURS_PER_MONTH),
    ]


def total(parts: list[tuple[str, float | None]]) -> str:
    """The sum in words, and that it is more where a price is missing."""
    known = sum(dollars for _, dollars in parts if dollars is not None)
    return f"{'more than ' if any(dollars is None for _, dollars in parts) else 'about '}${known:,.2f} per hour"


# ---- what can be checked without AWS


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"--name: {name!r}; valid: a letter, then at most 39 letters, digits and hyphens")
    return name


def check_range(text: str) -> str:
    """An IPv4 range as CloudFormation takes it; a single address is a range of one."""
    how = "  your own address: what https://checkip.amazonaws.com answers, with /32 behind it"
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InputError(f"--ssh-from: {error}; valid: 203.0.113.7/32, 198.51.100.0/24, …\n{how}") from None
    if not isinstance(network, IPv4Network):
        raise InputError(f"--ssh-from: {text} is IPv6; the master has an IPv4 address\n{how}")
    if network.prefixlen < _LARGEST_RANGE:
        raise InputError(f"--ssh-from: {text} is the whole world, or nearly; name the range that you come from\n{how}")
    return str(network)


# ---- what AWS knows


def find_image(aws: Aws, given: str | None, instance: Instance, flag: str) -> Image:
    """The image by its id, by the parameter that names it, or the usual one of the type."""
    wanted = given or image_for(instance)
    if wanted is None:
        raise InputError(
            f"{flag}: no image is known for {instance.name}; name one (ami-…), Ubuntu with a driver for its GPU"
        )
    image_id = _from_parameter(aws, wanted, flag) if wanted.startswith("/") else wanted
    with told():
        try:
            found = aws.ec2.describe_images(ImageIds=[image_id])["Images"]
        except aws.ec2.exceptions.ClientError as error:
            if not code_of(error).startswith("InvalidAMIID"):
                raise
            found = []
    if not found:
        raise InputError(f"{flag}: there is no image {image_id!r} in {aws.region}; each region has its own")
    return Image(image_id, found[0].get("Name", image_id), found[0].get("RootDeviceName") or "/dev/sda1")


def _from_parameter(aws: Aws, name: str, flag: str) -> str:
    with told():
        try:
            return str(aws.ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except aws.ssm.exceptions.ClientError as error:
            if code_of(error) != "ParameterNotFound":
                raise
    raise InputError(f"{flag}: {aws.region} has no parameter {name}\n  name an image (ami-…)")


def find_zone(aws: Aws, given: str | None, worker: Instance, master: Instance) -> str:
    """A zone that offers both types: the one asked for, or the first."""
    offered = {kind.name: _zones(aws, kind.name) for kind in (worker, master)}
    for name, zones in offered.items():
        if not zones:
            raise InputError(
                f"{name} is not offered in {aws.region}\n  another region may have it, or take another type"
            )
    both = sorted(offered[worker.name] & offered[master.name])
    if given is None and both:
        return both[0]
    if given in both:
        return str(given)
    told_zones = "; ".join(f"{name} in {', '.join(sorted(zones))}" for name, zones in offered.items())
    if given is None:
        raise InputError(f"no zone of {aws.region} offers both types\n  {told_zones}\n  --master-type takes another")
    raise unknown("zone", given, both, "--zone")


def _zones(aws: Aws, type_name: str) -> set[str]:
    wanted = [{"Name": "instance-type", "Values": [type_name]}]
    with told():
        pages = aws.ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", Filters=wanted
        )
        return {one["Location"] for page in pages for one in page["InstanceTypeOfferings"]}


def check_key(aws: Aws, key: str) -> None:
    with told():
        names = [one["KeyName"] for one in aws.ec2.describe_key_pairs()["KeyPairs"]]
    if not names:
        raise InputError(
            f"--key: there is no key pair {key!r} in {aws.region}, nor any other\n"
            f"  aws ec2 import-key-pair --region {aws.region} --key-name {key} "
            "--public-key-material fileb://~/.ssh/id_ed25519.pub"
        )
    if key not in names:
        raise unknown("key pair", key, names, f"--key, {aws.region}")
