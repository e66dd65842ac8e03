"""The CloudFormation template: ``stack.yaml``, completed with the script of the nodes and their network cards."""

from __future__ import annotations

import json
import re
from importlib import resources

from ...worker.type_aliases import JsonObject
from .instances import InstanceType

# Public parameters of AWS's parameter store. Each names the newest image of its kind, in any region.
GPU_IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
CPU_IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
# The families that the driver in that image supports, by its release notes. p2, g2 and p3 need an older driver.
_GPU_IMAGE_FAMILIES = ("g4dn", "g5", "g6", "g6e", "p4d", "p4de", "p5", "p5e", "p5en")

_LARGEST = 51_200  # bytes; CloudFormation takes no larger template in a request


def choose_default_image(instance: InstanceType) -> str | None:
    """Return the parameter that names the image of a type; None if the user must name an image."""
    if instance.gpus == 0:
        return CPU_IMAGE
    return GPU_IMAGE if instance.family in _GPU_IMAGE_FAMILIES else None


def render_template(worker: InstanceType) -> str:
    """Return the template for workers of this type, as YAML."""
    package = resources.files(__package__)
    text = package.joinpath("stack.yaml").read_text(encoding="utf-8")
    text = _insert(text, "# node.sh", package.joinpath("node.sh").read_text(encoding="utf-8").splitlines())
    text = _insert(text, "# network cards", [f"- {json.dumps(card)}" for card in _make_network_cards(worker.efa)])
    assert len(text.encode()) <= _LARGEST
    return text


def _insert(text: str, marker: str, lines: list[str]) -> str:
    """Replace every line that consists of ``marker`` by these lines, with its indentation."""

    def indent(match: re.Match[str]) -> str:
        return "\n".join(f"{match[1]}{line}" if line else "" for line in lines)

    return re.sub(rf"^( *){re.escape(marker)}$", indent, text, flags=re.MULTILINE)


def _make_network_cards(adapters: int) -> list[JsonObject]:
    """Return one interface for each network card. The first also carries the node's address.

    Other cards carry no address: EFA traffic needs none, and 31 more per host would use up the subnet.
    """
    first = {"InterfaceType": "efa"} if adapters else {}
    cards = [{"NetworkCardIndex": 0, "DeviceIndex": 0, **first}]
    cards += [{"NetworkCardIndex": n, "DeviceIndex": 1, "InterfaceType": "efa-only"} for n in range(1, adapters)]
    return [{**card, "Groups": [{"Ref": "Inside"}], "DeleteOnTermination": True} for card in cards]
