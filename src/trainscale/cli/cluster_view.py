"""What ``trainscale cluster`` prints: the request, the events of a stack, the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..cluster.aws.connect import add_hint
from ..cluster.aws.instances import InstanceType
from ..cluster.aws.nodes import ClusterNode
from ..cluster.aws.prices import find_hourly_price
from ..cluster.aws.request import ClusterRequest
from ..cluster.aws.stack import StackEvent

if TYPE_CHECKING:
    from rich.console import Console


def print_request(request: ClusterRequest, region: str) -> None:
    print(f"cluster {request.name} in {request.zone}: {_describe_workers(request.nodes, request.worker)}")
    print(f"  workers' image  {request.worker_image.id}, {request.worker_image.name}")
    print(f"  master's image  {request.master_image.id}, {request.master_image.name}")
    print(f"  ssh             from {request.ssh_from}, with the key pair {request.key}")
    print("AWS bills for this until you run cluster down:")
    for description, count, instance_type in request.list_billed_items():
        price = find_hourly_price(region, instance_type) if instance_type else None
        print(f"  {description}{'' if price is None else f' (${count * price:,.2f} per hour on demand)'}")


def _describe_workers(nodes: int, worker: InstanceType) -> str:
    devices = f"{worker.gpus} × {worker.gpu}" if worker.gpus else f"{worker.cpus} virtual CPUs"
    fabric = f", {worker.efa} EFA" if worker.efa else ""
    return f"{nodes} {'worker' if nodes == 1 else 'workers'} {worker.name} ({devices}{fabric} each) and a master"


def print_nodes(nodes: list[ClusterNode]) -> None:
    """Print a table without a limit on its width, because an address that is cut off is useless."""
    rows = [("node", "type", "state", "address", "public address", "instance")]
    rows += [(n.name, n.type, n.state, n.address, n.public_address, n.id) for n in nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows if nodes else [("no nodes",)]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


def confirm(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


class EventPrinter:
    """Prints a line for each resource that is finished or failed, and knows which are in progress."""

    def __init__(self, console: Console, cluster: str) -> None:
        self._console, self._cluster = console, cluster
        self._began = time.monotonic()
        self._in_progress: list[str] = []

    def print_event(self, event: StackEvent) -> None:
        if event.resource in self._in_progress:
            self._in_progress.remove(event.resource)
        verb = event.status.partition("_")[0].lower()
        if event.status.endswith("_IN_PROGRESS"):
            self._in_progress.append(event.resource)
        elif not event.status.endswith("_COMPLETE"):
            failure = f"could not {verb}" if event.status else "not started yet"
            self._print(f"{event.resource} {failure}: {add_hint(event.reason)}")
        elif event.resource != self._cluster:
            self._print(f"{event.resource} {verb}d")

    def _print(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        self._console.print(f"{minutes:3d}:{seconds:02d}  {text}", markup=False)

    @property
    def waiting_text(self) -> str:
        resources = [resource for resource in self._in_progress if resource != self._cluster]
        return f"waiting for {', '.join(resources) or self._cluster}"


@contextmanager
def show_events(console: Console, cluster: str) -> Iterator[Callable[[StackEvent], None]]:
    """Yield a function that prints events; on a terminal, also show which resources are in progress."""
    printer = EventPrinter(console, cluster)
    if not console.is_terminal:
        yield printer.print_event
        return
    with console.status(printer.waiting_text) as status:

        def watch(event: StackEvent) -> None:
            printer.print_event(event)
            status.update(printer.waiting_text)

        yield watch
