"""A stand-in for AWS, as a program: moto on a free port of this machine, which it prints. Argument: a path.

It knows the public parameters that name images, which moto does not. While the file at that path exists, no group of
instances can be made, for the reason that is in the file. A stack that is created then fails half-way, and as on a bad
day of CloudFormation its roll-back fails too: what was made is left.
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
    known = ssm_backends[ACCOUNT][REGION]._parameters
    for name in (GPU_IMAGE, CPU_IMAGE):
        known[name].append(
            Parameter(ACCOUNT, name, IMAGE, "String", None, None, None, datetime.now(UTC), 1, "aws:ec2:image")
        )


class Refused(Exception):
    pass


def obey(orders: Path) -> None:
    make_group, make_all = AutoScalingBackend.create_auto_scaling_group, Stack.create_resources

    def make_or_refuse(self: AutoScalingBackend, *words: object, **named: object) -> object:
        if orders.exists():
            raise Refused(orders.read_text())
        return make_group(self, *words, **named)

    def make_all_or_fail(self: Stack) -> None:
        try:
            make_all(self)
        except Refused as error:
            workers = (self.stack_id, self.name, "Workers", "", "AWS::AutoScaling::AutoScalingGroup")
            self.events.append(Event(*workers, "CREATE_FAILED", str(error), None))
            self.status = "ROLLBACK_FAILED"
            self.output_map = OutputMap(self.resource_map, {}, self.stack_id)  # a stack that failed has no outputs

    AutoScalingBackend.create_auto_scaling_group = make_or_refuse
    Stack.create_resources = make_all_or_fail


if __name__ == "__main__":
    add_parameters()
    obey(Path(sys.argv[1]))
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # it ends with whoever started it, however that ended
