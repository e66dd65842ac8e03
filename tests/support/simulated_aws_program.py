"""A program that simulates AWS with moto, on a free port that it prints. Its argument is a path.

It adds the public parameters that name images, which moto lacks. While the file at that path exists, no group of
instances can be created, for the reason in the file. A stack that is created then fails half-way, and its roll-back
fails too, so that what was created remains.
"""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from moto.autoscaling.models import AutoScalingBackend
from moto.cloudformation.models import Event, Stack
from moto.cloudformation.parsing import OutputMap
from moto.server import DomainDispatcherApplication, create_backend_app
from moto.ssm.models import Parameter, ssm_backends
from werkzeug.serving import make_server

from trainscale.cluster.aws.template import CPU_IMAGE, GPU_IMAGE

ACCOUNT = "123456789012"
REGION = "us-west-2"
IMAGE = "ami-1e749f67"  # an Ubuntu image that moto has


def add_parameters() -> None:
    parameters = ssm_backends[ACCOUNT][REGION]._parameters
    for name in (GPU_IMAGE, CPU_IMAGE):
        parameters[name].append(
            Parameter(ACCOUNT, name, IMAGE, "String", None, None, None, datetime.now(UTC), 1, "aws:ec2:image")
        )


class Refused(Exception):
    pass


def refuse_groups_while_file_exists(refusal: Path) -> None:
    create_group, create_all = AutoScalingBackend.create_auto_scaling_group, Stack.create_resources

    def create_group_or_refuse(self: AutoScalingBackend, *arguments: object, **named: object) -> object:
        if refusal.exists():
            raise Refused(refusal.read_text())
        return create_group(self, *arguments, **named)

    def create_all_or_fail(self: Stack) -> None:
        try:
            create_all(self)
        except Refused as error:
            workers = (self.stack_id, self.name, "Workers", "", "AWS::AutoScaling::AutoScalingGroup")
            self.events.append(Event(*workers, "CREATE_FAILED", str(error), None))
            self.status = "ROLLBACK_FAILED"
            self.output_map = OutputMap(self.resource_map, {}, self.stack_id)  # a stack that failed has no outputs

    AutoScalingBackend.create_auto_scaling_group = create_group_or_refuse
    Stack.create_resources = create_all_or_fail


if __name__ == "__main__":
    add_parameters()
    refuse_groups_while_file_exists(Path(sys.argv[1]))
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends when the process that started it ends
