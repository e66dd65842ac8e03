"""The simulated AWS account of a test: the environment that commands need to use it, and clients to inspect it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service_models import share_service_models
from simulated_aws_removal import client as connect

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
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = connect(self.environment["AWS_ENDPOINT_URL"], REGION, service)
        return self._clients[service]

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
        ec2 = self.client("ec2")
        networks = [item["VpcId"] for item in ec2.describe_vpcs()["Vpcs"] if not item["IsDefault"]]
        inside = [{"Name": "vpc-id", "Values": networks or ["none"]}]
        instances = [item for group in ec2.describe_instances()["Reservations"] for item in group["Instances"]]
        ids_by_kind = {
            "stacks": [item["StackName"] for item in self.client("cloudformation").describe_stacks()["Stacks"]],
            "networks": networks,
            "subnets": [item["SubnetId"] for item in ec2.describe_subnets(Filters=inside)["Subnets"]],
            "groups": [item["GroupId"] for item in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]],
            "tables": [item["RouteTableId"] for item in ec2.describe_route_tables(Filters=inside)["RouteTables"]],
            "gateways": [
                gateway["InternetGatewayId"] for gateway in ec2.describe_internet_gateways()["InternetGateways"]
            ],
            "nat": [
                item["NatGatewayId"]
                for item in ec2.describe_nat_gateways()["NatGateways"]
                if item["State"] != "deleted"
            ],
            "addresses": [item["PublicIp"] for item in ec2.describe_addresses()["Addresses"]],
            "instances": [item["InstanceId"] for item in instances if item["State"]["Name"] != "terminated"],
            "templates": [item["LaunchTemplateId"] for item in ec2.describe_launch_templates()["LaunchTemplates"]],
            "files": [item["FileSystemId"] for item in self.client("efs").describe_file_systems()["FileSystems"]],
            "roles": [item["RoleName"] for item in self.client("iam").list_roles()["Roles"]],
            "workers": [
                item["AutoScalingGroupName"]
                for item in self.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
            ],
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
            server = Server(int(port), orders)
            server.client("ec2").create_key_pair(KeyName="key")
            yield server
        finally:
            process.kill()
            process.communicate()
