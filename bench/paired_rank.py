"""One process of `bench/overhead.py --paired` or `bench/witness.py --paired`. It builds a network as a rank of a trial
does, and takes blocks of steps on request, of one side or the other. The Python that has the framework runs it.

Its argument says which sides. `harness`: A is the bare loop, B the harness's. `witness`: both are the harness's loop,
and a block of B follows the work of a witness.

It reads its job from standard input, as a rank does. Then rank 0 reads one request per line, `{"order": "ABBA",
"steps": 3}`, and answers with one line that has the seconds of every block. An empty order ends all processes; the
answer is the digest of the weights. Ranks pass requests on by the harness's rendezvous, and meet before every block, so
that all of them run the same side at the same time.
"""

import itertools
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

# As worker/start.py does it: the interpreter has a framework, and may not have trainscale.
package = types.ModuleType("trainscale")
package.__path__ = [str(Path(__file__).parents[1] / "src" / "trainscale")]
sys.modules.setdefault("trainscale", package)


from paired_loops import bare_loop  # noqa: E402
from trainscale.worker.data.source import open_source  # noqa: E402
from trainscale.worker.events import (  # noqa: E402
    Emitter,
    Event,
    HeartbeatSender,
    claim_stdout,
)
from trainscale.worker.frameworks.base import Adapter  # noqa: E402
from trainscale.worker.frameworks.catalog import FRAMEWORKS  # noqa: E402
from trainscale.worker.inspection.usage import read_process_usage  # noqa: E402
from trainscale.worker.job import WORKER, Job  # noqa: E402
from trainscale.worker.sample import RankSample, Report, keep_finite  # noqa: E402
from trainscale.worker.start import end_with_parent  # noqa: E402
from trainscale.worker.training import loop  # noqa: E402
from trainscale.worker.training.rank import compute_weights_digest, pin  # noqa: E402
from trainscale.worker.training.rendezvous import Rendezvous  # noqa: E402
from trainscale.worker.witness import count_first_steps  # noqa: E402
from trainscale.worker.witness.witness import Witness  # noqa: E402

HARNESS = WITH_WITNESS = "B"
SETTLING_STEPS = 2  # between the work of a witness and a block; a usual trial has 8


class BlockEmitter(Emitter):
    """Sends heartbeats only during the harness's blocks, as a bare script sends none."""

    is_open = False

    def __call__(self, event: Event) -> None:
        if self.is_open:
            super().__call__(event)


class HarnessSides:
    """The bare loop and the harness's, on the same network, optimizer and batch."""

    def __init__(self, adapter: Adapter, emit: BlockEmitter, rendezvous: Rendezvous) -> None:
        self._adapter, self._emit = adapter, emit
        self._source = open_source(adapter.job, adapter)
        self._heartbeat = HeartbeatSender(emit)
        adapter.wait(adapter.step(next(self._source.batches())))  # the step in which frameworks compile
        self._bare = bare_loop(adapter, next(self._source.batches()))

    def prepare(self, side: str) -> None:
        """Do what comes before a block. Here it is nothing."""

    def seconds(self, side: str, steps: int) -> float:
        """Take steps. Return their wall time, with the device idle at both ends."""
        if side == HARNESS:
            self._emit.is_open = True
            _, seconds = loop.time_steps(
                self._adapter, itertools.islice(self._source.batches(), steps), self._heartbeat
            )
            self._emit.is_open = False
            return seconds
        began = loop.clock()
        self._bare(steps)
        return loop.clock() - began


class WitnessSides:
    """The harness's loop, after all that a witness does in a trial or after none of it."""

    def __init__(self, adapter: Adapter, emit: BlockEmitter, rendezvous: Rendezvous) -> None:
        self._adapter, self._emit, self._rendezvous = adapter, emit, rendezvous
        self._source = open_source(adapter.job, adapter)
        self._heartbeat = HeartbeatSender(emit)
        self._steps = 0
        self._take_steps(1)  # in which frameworks compile

    def prepare(self, side: str) -> None:
        if side == WITH_WITNESS:
            self._follow_witness()
        self._take_steps(SETTLING_STEPS)

    def seconds(self, side: str, steps: int) -> float:
        self._steps += steps
        _, seconds = loop.time_steps(self._adapter, itertools.islice(self._source.batches(), steps), self._heartbeat)
        return seconds

    def _follow_witness(self) -> None:
        """Let a witness sketch the weights, hold the first steps, report the window, put the initial weights back and
        take the closing steps.
        """
        report = Report(RankSample(self._adapter.job.rank, "", 0, 0.0, ()))
        witness = Witness(self._adapter, self._rendezvous, report)
        for _ in range(count_first_steps(self._adapter.config)):
            self._take_steps(1)
            witness.observe(self._adapter.loss())
        witness.observe_window(self._adapter.weights(), self._steps)
        report.sample.last_loss = keep_finite(self._adapter.loss())
        witness.take_closing_steps(self._source, self._steps)

    def _take_steps(self, count: int) -> None:
        self._steps += count
        for _ in range(count):
            loop.take_step(self._adapter, self._source.batches())


SIDES = {"harness": HarnessSides, "witness": WitnessSides}


def main(sides: str) -> int:
    end_with_parent()
    job = Job.from_json(sys.stdin.readline())
    descriptor = claim_stdout()
    pin(job.device.cores)
    adapter = FRAMEWORKS[job.config.framework].load(job)(job)
    adapter.join()
    adapter.build()
    if job.role == WORKER:
        serve_requests(adapter, descriptor, SIDES[sides])
    else:
        adapter.serve()
    adapter.leave()
    return 0


def serve_requests(adapter: Adapter, descriptor: int, make_sides: Any) -> None:
    job = adapter.job
    rendezvous = Rendezvous(job.coordinator, job.rendezvous_port, job.rank, job.workers)
    sides = make_sides(adapter, BlockEmitter(job.rank, descriptor), rendezvous)
    while True:
        line = sys.stdin.readline() if job.rank == 0 else ""
        request = json.loads(rendezvous.exchange("request", line)[0])
        blocks = [take_block(sides, rendezvous, side, request["steps"]) for side in request["order"]]
        answer: Any = blocks or compute_weights_digest(adapter.weights())
        if job.rank == 0:
            os.write(descriptor, json.dumps(answer).encode() + b"\n")
        if not blocks:
            rendezvous.exchange("leave")
            return


def take_block(sides: Any, rendezvous: Rendezvous, side: str, steps: int) -> dict[str, float]:
    """Return the seconds of the slowest rank, and the CPU seconds of all ranks."""
    sides.prepare(side)
    rendezvous.exchange("begin")
    cpu_before = read_process_usage()["cpu_seconds"]
    seconds = sides.seconds(side, steps)
    cpu_seconds = read_process_usage()["cpu_seconds"] - cpu_before
    values = rendezvous.exchange("end", [seconds, cpu_seconds])
    return {"seconds": max(value[0] for value in values), "cpu_seconds": sum(value[1] for value in values)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
