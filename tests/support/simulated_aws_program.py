"""A simulated AWS, as a program: moto on a free port of this machine, which it prints. Argument: a folder of orders.

It knows the public parameters that name images, which moto does not. While the file ``refuse-groups`` exists in the
folder, no group of instances can be created, for the reason that is in the file: a stack that is created then fails
half-way, and its roll-back fails too, so that what was created is left. With the last stack everything goes, as in
CloudFormation; moto alone does not delete a network with a gateway.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from moto import backends
from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.cloudformation.models import Event, Stack, cloudformation_backends
from moto.cloudformation.parsing import OutputMap, ResourceMap
from moto.ec2.models import ec2_backends
from moto.efs.models import efs_backends
from moto.iam.models import iam_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from moto.ssm.models import Parameter, ssm_backends
from simulated_aws import IMAGE, REGION, share_service_models
from werkzeug.serving import WSGIRequestHandler, make_server

from trainscale.cluster.aws_template import CPU_IMAGE, GPU_IMAGE

ACCOUNT = "123456789012"


def add_parameters() -> None:
    known = ssm_backends[ACCOUNT][REGION]._parameters
    for name in (GPU_IMAGE, CPU_IMAGE):
        known[name].append(
            Parameter(ACCOUNT, name, IMAGE, "String", None, None, None, datetime.now(UTC), 1, "aws:ec2:image")
        )


def add_key() -> None:
    ec2_backends[ACCOUNT][REGION].create_key_pair("key", "rsa", {})


class Refused(Exception):
    pass


def refuse_groups(order: Path) -> None:
    create_group, create_resources = AutoScalingBackend.create_auto_scaling_group, Stack.create_resources

    def create_group_or_refuse(self: AutoScalingBackend, *arguments: object, **named: object) -> object:
        if order.exists():
            raise Refused(order.read_text())
        return create_group(self, *arguments, **named)

    def create_resources_or_fail(self: Stack) -> None:
        try:
            create_resources(self)
        except Refused as error:
            workers = (self.stack_id, self.name, "Workers", "", "AWS::AutoScaling::AutoScalingGroup")
            self.events.append(Event(*workers, "CREATE_FAILED", str(error), None))
            self.status = "ROLLBACK_FAILED"
            self.output_map = OutputMap(self.resource_map, {}, self.stack_id)  # a stack that failed has no outputs

    AutoScalingBackend.create_auto_scaling_group = create_group_or_refuse
    Stack.create_resources = create_resources_or_fail


def delete_like_cloudformation() -> None:
    delete = ResourceMap.delete

    def delete_all(self: ResourceMap) -> None:
        with suppress(Exception):  # moto stops at the first obstacle
            delete(self)
        if not cloudformation_backends[ACCOUNT][REGION].stacks:
            for regions in (ec2_backends, efs_backends, autoscaling_backends, iam_backends):
                for backend in regions[ACCOUNT].values():
                    backend.reset()
            add_key()

    ResourceMap.delete = delete_all


def serve_faster() -> None:
    """Do without what takes time for each request: a line in the log, a connection, and a look at moto's folders."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    names = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: names


if __name__ == "__main__":
    orders = Path(sys.argv[1])
    share_service_models()
    serve_faster()
    add_parameters()
    refuse_groups(orders / "refuse-groups")
    delete_like_cloudformation()
    add_key()
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # it ends together with the process that started it
