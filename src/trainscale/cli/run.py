"""``trainscale run``: measure a scaling curve, from one command to the plots."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..cluster.devices import supply
from ..cluster.machine import look
from ..errors import InputError
from ..launch.catalog import launcher
from ..launch.probe import probe
from ..record.journal import Journal, check_directory, open_journal
from ..record.provenance import provenance
from ..record.run import RunInfo
from ..run.conduct import conduct, spec_of
from ..spec.config import digest
from ..spec.plan import Plan, make_plan
from ..worker import models
from .parser import Parser, add_experiment, read_experiment

DEFAULT_FOLDER = Path("runs")


def main(words: list[str]) -> int:
    parser = Parser("run", "Measure a scaling curve. The same command again continues where it stopped.")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where results go (default: runs/NAME)")
    parser.add_argument(
        "--fresh", action="store_true", help="measure anew, in a new directory, even if this was measured"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try the points again that failed")
    add_experiment(parser)
    options = parser.read(words)
    machine = look()
    experiment = read_experiment(options)
    plan = make_plan(experiment, supply(machine, experiment))
    spec = spec_of(plan)
    directory = choose_directory(options.output, options.fresh, plan, spec)
    check_directory(directory, spec)
    pythons = dict.fromkeys((config.framework for config in plan.configs), sys.executable)
    facts = preflight(plan, pythons)
    run = RunInfo(spec, provenance(["run", *words], machine, facts))
    with open_journal(directory, run) as journal, _signals_interrupt():
        interrupted = _measure(plan, journal, pythons, options.retry_failed)
        return _finish(journal, interrupted)


def choose_directory(output: Path | None, fresh: bool, plan: Plan, spec: dict[str, Any]) -> Path:
    """By default named after the experiment, so that the same command finds its journal again."""
    named = output or DEFAULT_FOLDER / f"{_slug(plan)}-{digest(spec)[:6]}"
    if not fresh:
        return named
    number, candidate = 1, named
    while candidate.is_dir() and any(candidate.iterdir()):
        number += 1
        candidate = named.with_name(f"{named.name}-{number}")
    return candidate


def _slug(plan: Plan) -> str:
    names = dict.fromkeys(config.model for config in plan.configs)
    text = "-".join(names) if len(names) < 4 else f"{len(names)}-models"
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)[:60]


def preflight(plan: Plan, pythons: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What each framework is; an InputError for one that is missing or a network that cannot be built."""
    facts = {}
    for name in dict.fromkeys(config.framework for config in plan.configs):
        foreign = [c.to_dict() for c in plan.configs if c.framework == name and models.resolve(c.model) is None]
        found = probe(pythons[name], name, foreign, [str(Path.cwd())])
        if not found["found"]:
            get = f"; get it with: {found['get']}" if found.get("get") else ""
            raise InputError(f"framework {name!r}: {found['reason']}{get}\n  see: trainscale check")
        for model, answer in found["models"].items():
            if isinstance(answer, str):
                raise InputError(f"model {model!r} cannot be built: {answer}")
        if plan.supply.kind == "cuda" and not found.get("gpus"):
            raise InputError(f"device 'cuda': this {name} ({found['version']}) sees no GPU; valid: --device cpu")
        facts[name] = found
    return facts


def _measure(plan: Plan, journal: Journal, pythons: dict[str, str], retry_failed: bool) -> bool:
    """Whether the person stopped it."""
    from .live import live

    try:
        with live(plan, journal, retry_failed) as listener:
            conduct(plan, journal, launcher("local"), pythons, listener, retry_failed)
    except KeyboardInterrupt:
        return True
    except OSError as error:
        # The terminal went away, with the view that was drawn on it: that is an interruption too, not a failure.
        if error.errno != errno.EIO:
            raise
        return True
    return False


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """A request to terminate, or a terminal that is closed, stops the run in order, once; again changes nothing."""

    def interrupt(*_: object) -> None:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _finish(journal: Journal, interrupted: bool) -> int:
    from ..report.outputs import write_outputs
    from .results import print_results

    write_outputs(journal.directory, journal.run, journal.records)
    print_results(journal.directory, journal.records)
    if interrupted:
        kept = len(journal.records)
        print(f"stopped; {kept} finished trial{'s are' if kept != 1 else ' is'} kept; the same command continues")
        return 130
    return 0 if all(record.ok for record in journal.records) else 1
