"""AWS's stand-in running beside a test: its environment for commands, and clients to look behind their backs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from aws_stand_in import IMAGE, REGION

__all__ = ["IMAGE", "REGION", "Server", "stand_in"]
PROGRAM = Path(__file__).with_name("aws_stand_in.py")


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
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=self.environment["AWS_ENDPOINT_URL"],
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
            )
        return self._clients[service]

    @contextmanager
    def refusing_groups(self, reason: str) -> Iterator[None]:
        self._orders.write_text(reason)
        try:
            yield
        finally:
            self._orders.unlink()

    def what_is_there(self) -> dict[str, list[str]]:
        """Everything of the account that is not AWS's own, by kind; what is empty is left out."""
        ec2 = self.client("ec2")
        networks = [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"] if not one["IsDefault"]]
        inside = [{"Name": "vpc-id", "Values": networks or ["none"]}]
        instances = [one for group in ec2.describe_instances()["Reservations"] for one in group["Instances"]]
        found = {
            "stacks": [one["StackName"] for one in self.client("cloudformation").describe_stacks()["Stacks"]],
            "networks": networks,
            "subnets": [one["SubnetId"] for one in ec2.describe_subnets(Filters=inside)["Subnets"]],
            "groups": [one["GroupId"] for one in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]],
            "tables": [one["RouteTableId"] for one in ec2.describe_route_tables(Filters=inside)["RouteTables"]],
            "gateways": [one["InternetGatewayId"] for one in ec2.describe_internet_gateways()["InternetGateways"]],
            "nat": [
                one["NatGatewayId"] for one in ec2.describe_nat_gateways()["NatGateways"] if one["State"] != "deleted"
            ],
            "addresses": [one["PublicIp"] for one in ec2.describe_addresses()["Addresses"]],
            "instances": [one["InstanceId"] for one in instances if one["State"]["Name"] != "terminated"],
            "templates": [one["LaunchTemplateId"] for one in ec2.describe_launch_templates()["LaunchTemplates"]],
            "files": [one["FileSystemId"] for one in self.client("efs").describe_file_systems()["FileSystems"]],
            "roles": [one["RoleName"] for one in self.client("iam").list_roles()["Roles"]],
            "workers": [
                one["AutoScalingGroupName"]
                for one in self.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
            ],
        }
        return {kind: ids for kind, ids in found.items() if ids}


@contextmanager
def stand_in(folder: Path) -> Iterator[Server]:
    """A fresh account, with a key pair named ``key``."""
    orders = folder / "orders"
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
            server = Server(int(port), orders)
            server.client("ec2").create_key_pair(KeyName="key")
            yield server
        finally:
            process.kill()
            process.communicate()
