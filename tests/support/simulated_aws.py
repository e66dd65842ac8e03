"""The simulated AWS account of a test: the environment that commands need to use it, and clients to inspect it."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.loaders import JSONFileLoader, Loader

from trainscale.cluster import aws

_load_file = JSONFileLoader.load_file
_list_services = Loader.list_available_services


@functools.cache
def _load_once(path: str) -> object:
    return _load_file(JSONFileLoader(), path)


@functools.cache
def _list_services_once(search_paths: tuple[str, ...], type_name: str) -> list[str]:
    return list(_list_services(Loader(list(search_paths)), type_name))


def share_service_models() -> None:
    """Let all sessions of this process, and of processes that are forked from it, read each description once."""
    JSONFileLoader.load_file = lambda self, path: _load_once(path)
    Loader.list_available_services = lambda self, type_name: _list_services_once(tuple(self.search_paths), type_name)
    aws.connect(REGION)


REGION = "us-west-2"
IMAGE = "ami-1e749f67"  # an Ubuntu image that moto has
PROGRAM = Path(__file__).with_name("simulated_aws_program.py")


class Server:
    def __init__(self, port: int, orders: Path) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }
        self._orders = orders

    def client(self, service: str) -> Any:
        return connect(self.environment["AWS_ENDPOINT_URL"], service)

    @contextmanager
    def refusing_groups(self, reason: str) -> Iterator[None]:
        order = self._orders / "refuse-groups"
        order.write_text(reason)
        try:
            yield
        finally:
            order.unlink()

    def resources(self) -> dict[str, list[str]]:
        """Return the ids of everything in the account but AWS's own things, by kind, without empty kinds."""

        def ids(service: str, call: str, key: str, name: str, **options: Any) -> list[str]:
            items = getattr(self.client(service), call)(**options)[key]
            gone = [item for item in items if item.get("IsDefault") or item.get("State") == "deleted"]
            return [item[name] for item in items if item not in gone]

        networks = ids("ec2", "describe_vpcs", "Vpcs", "VpcId")
        inside = {"Filters": [{"Name": "vpc-id", "Values": networks or ["none"]}]}
        groups = self.client("ec2").describe_instances()["Reservations"]
        instances = [item for group in groups for item in group["Instances"]]
        ids_by_kind = {
            "stacks": ids("cloudformation", "describe_stacks", "Stacks", "StackName"),
            "networks": networks,
            "subnets": ids("ec2", "describe_subnets", "Subnets", "SubnetId", **inside),
            "groups": ids("ec2", "describe_security_groups", "SecurityGroups", "GroupId", **inside),
            "tables": ids("ec2", "describe_route_tables", "RouteTables", "RouteTableId", **inside),
            "gateways": ids("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
            "nat": ids("ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId"),
            "addresses": ids("ec2", "describe_addresses", "Addresses", "PublicIp"),
            "instances": [item["InstanceId"] for item in instances if item["State"]["Name"] != "terminated"],
            "templates": ids("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
            "files": ids("efs", "describe_file_systems", "FileSystems", "FileSystemId"),
            "roles": ids("iam", "list_roles", "Roles", "RoleName"),
            "workers": ids("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"),
        }
        return {kind: ids for kind, ids in ids_by_kind.items() if ids}


@contextmanager
def simulate_aws(folder: Path) -> Iterator[Server]:
    """Start a fresh account with a key pair named ``key``."""
    orders = folder / "orders"
    orders.mkdir()
    share_service_models()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = process.stdout.readline()
            assert port.strip(), (folder / "log").read_text()
            yield Server(int(port), orders)
        finally:
            process.kill()
            process.communicate()


@functools.cache
def connect(endpoint: str, service: str) -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint, **keys)
