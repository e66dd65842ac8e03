"""Applies a mutation to a copy of the sources and runs the real command with that copy.

A mistake is caught if every trial of the mutated framework is refuted, or if the parity check fails. Anything else is a
survivor: a mistake whose numbers would have been printed. A trial that crashes proves nothing, so it counts as one too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from catalog import SOURCES, Mutation, MutationRun
from packages import write_installed_package
from small_sets import write_mnist

SUPPORT = Path(__file__).parents[1] / "support"
_SETTINGS = (
    *("--device", "cpu", "--cores-per-device", "1"),
    *("--repeats", "1", "--timeout", "15m", "--stall-timeout", "8m"),
)
_COUNTS = ("--warmup", "4", "--steps", "8")
_SECONDS = 1800.0
# The process that computes what a trial must show imports neither adapters nor the loop.
_NOT_IN_THE_EXPECTATION = ("worker/frameworks/", "worker/training/")

WITNESS, PARITY, SURVIVED, CRASHED = "witness", "parity", "survived", "crashed"


@dataclass(frozen=True)
class MutationOutcome:
    """What became of a command: by what a mistake was caught, and the message that a person reads."""

    caught_by: str
    message: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        return self.caught_by in (WITNESS, PARITY)


class Workshop:
    """A folder with what all commands share: test networks as a plug-in, data sets, and a cache of expectations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._packages = folder / "packages"
        shutil.rmtree(self._packages, ignore_errors=True)
        networks = {"plain-graph": "graph_nets:PLAIN", "every-kind": "graph_nets:EVERY_KIND"}
        files = {"__init__.py": (SUPPORT / "graph_nets.py").read_text()}
        write_installed_package(self._packages, "graph-nets", files, {"trainscale.models": networks})

    @cached_property
    def mnist(self) -> Path:
        return write_mnist(self.folder / "mnist", train=300, valid=40)

    def run(
        self, name: str, run: MutationRun, mutation: Mutation | None = None
    ) -> tuple[subprocess.CompletedProcess[str], Path]:
        """Run a command with the sources, or with a mutated copy of them. Return it and the folder of its results."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SOURCES, folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for file, text in mutation.patch_files().items() if mutation else ():
            (folder / "src" / "trainscale" / file).write_text(text)
        output = folder / "results"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(self._packages)]),
            "XDG_CACHE_HOME": str(self._cache(folder, mutation)),
            "COLUMNS": "160",
        }
        done = subprocess.run(
            [sys.executable, "-m", "trainscale", *self._arguments(run), "--output", str(output)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode == 130:
            raise KeyboardInterrupt
        (folder / "output.txt").write_text(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done, output

    def _cache(self, folder: Path, mutation: Mutation | None) -> Path:
        """Return the common cache, or one of its own for a mistake that could be in the expectation too."""
        files = [edit.file for edit in mutation.edits] if mutation else []
        shared = all(file.startswith(_NOT_IN_THE_EXPECTATION) for file in files)
        return (self.folder if shared else folder) / "cache"

    def _arguments(self, run: MutationRun) -> list[str]:
        options = [f"mnist:{self.mnist}" if option == "mnist:DIR" else option for option in run.options]
        counts = () if "--epochs" in options else _COUNTS
        network = ["--frameworks", run.frameworks, "--models", run.model, "--strategies", run.strategy]
        return ["run", *network, "--devices", str(run.devices), *_SETTINGS, *counts, *options]


def try_mutation(workshop: Workshop, mutation: Mutation) -> MutationOutcome:
    """Run the command of a mutation and say what caught it."""
    began = time.monotonic()
    done, results = workshop.run(mutation.name, mutation.run, mutation)
    caught_by, message = judge(done, results, mutation.run.mutated_framework)
    return MutationOutcome(caught_by, message, round(time.monotonic() - began, 1))


def judge(done: subprocess.CompletedProcess[str], results: Path, framework: str) -> tuple[str, str]:
    records = [record for record in read_records(results) if record["config"]["framework"] == framework]
    refuted = [record for record in records if record["status"] == "refuted"]
    if records and len(refuted) == len(records):
        if done.returncode != 1:
            return SURVIVED, f"refuted, but the exit code is {done.returncode}"
        return WITNESS, refuted[0]["failure"]["message"]
    failed = [verdict for verdict in read_verdicts(results) if verdict["state"] == "failed"]
    if failed:
        if "PARITY FAILED" not in done.stdout.upper():
            return SURVIVED, f"parity failed, but nothing says so: {failed[0]['reason']}"
        return PARITY, failed[0]["reason"]
    broken = [record for record in records if record["status"] != "ok"]
    if broken or not records:
        return CRASHED, broken[0]["failure"]["message"] if broken else last_line(done)
    return SURVIVED, f"nothing noticed it (exit code {done.returncode})"


def try_control(workshop: Workshop, number: int, run: MutationRun) -> str:
    """Run a command without a mistake. Return what is wrong with it; empty if every trial is proven."""
    done, results = workshop.run(f"control-{number}", run)
    records = read_records(results)
    if done.returncode != 0 or not records:
        messages = [record["failure"]["message"] for record in records if record["failure"]]
        return f"exit code {done.returncode}: {(messages or [last_line(done)])[0]}"
    for record in records:
        state = (record.get("witness") or {}).get("state")
        if state != "proven":
            return f"{record['config']['framework']} is {state}: {record.get('witness')}"
    for verdict in read_verdicts(results):
        if verdict["state"] != "proven":
            return f"parity of {verdict['framework']} is {verdict['state']}: {verdict['reason']}"
    return ""


def read_records(results: Path) -> list[dict]:
    path = results / "trials.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_verdicts(results: Path) -> list[dict]:
    path = results / "parity.json"
    return json.loads(path.read_text())["verdicts"] if path.exists() else []


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return next((line for line in reversed((done.stdout + done.stderr).splitlines()) if line.strip()), "no output")
