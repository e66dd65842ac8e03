"""What must be known before a run measures anything: whether its frameworks are there, and whether those that are
compared train the same network.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..launch.inspection.probe import probe, probe_hosts, question
from ..launch.launchers.base import Launcher
from ..launch.trial.placement import plugins_of
from ..record.parity import Verdict
from ..run import parity
from ..run.measure import without
from ..spec.plan import Plan
from ..worker import models

Facts = dict[str, dict[str, Any]]


def preflight(plan: Plan, pythons: Mapping[str, str], launcher: Launcher) -> tuple[Facts, dict[str, str]]:
    """What each framework is, and why others cannot be had. An InputError when none can, or for a network that cannot
    be built.
    """
    if launcher.local:
        plan.images.check()
    names = list(dict.fromkeys(config.framework for config in plan.configs))
    questions = {name: _question(name, plan) for name in names}
    if launcher.local:
        with ThreadPoolExecutor(len(names)) as pool:  # each asks a process and waits for it
            said = pool.map(lambda name: probe(pythons[name], **questions[name]), names)
            answers = dict(zip(names, said, strict=True))
    else:
        answers = probe_hosts(launcher, plan.available.hosts, pythons, questions)
    facts: Facts = {}
    missing: dict[str, str] = {}
    for name, found in answers.items():
        reason = _lacking(found, plan)
        if reason:
            missing[name] = reason
            continue
        for model, answer in found["models"].items():
            if isinstance(answer, str):
                raise InputError(f"model {model!r} cannot be built: {answer}")
        facts[name] = found
    if not facts:
        reasons = "\n".join(f"framework {name!r}: {reason}" for name, reason in missing.items())
        raise InputError(f"{reasons}\n  see: trainscale check")
    for name, reason in missing.items():
        print(f"trainscale: framework {name!r}: {reason}\n  the others are measured", file=sys.stderr)
    return facts, missing


def _question(name: str, plan: Plan) -> dict[str, Any]:
    configs = [config for config in plan.configs if config.framework == name]
    foreign = [config.to_dict() for config in configs if models.resolve(config.model) is None]
    plugins = {plugin["reference"]: plugin for config in configs for plugin in plugins_of(config)}
    return question(name, foreign, [str(Path.cwd())], list(plugins.values()), plan.images.needs)


def _lacking(found: Mapping[str, Any], plan: Plan) -> str:
    if not found["found"]:
        get = f"; get it with: {found['get']}" if found.get("get") else ""
        return f"{found['reason']}{get}"
    if plan.available.kind == "cuda" and not found.get("gpus"):
        return f"device 'cuda': version {found['version']} sees no GPU; valid: --device cpu"
    return ""


def check_parity(
    plan: Plan, pythons: Mapping[str, str], facts: Facts, missing: Mapping[str, str], launcher: Launcher
) -> list[Verdict]:
    """Verdicts on what this run compares, among the frameworks that are there. Says what it does when that takes
    time.
    """
    configs = without(plan, missing).configs
    if not plan.experiment.safety.parity:
        return parity.unproven(configs, "--no-parity left the check out")
    versions = {name: found["versions"] for name, found in facts.items()}
    asked = parity.ParityRequest(pythons, versions, plan.available, plan.experiment.work.seed, launcher=launcher)
    verdicts = parity.prove(configs, asked, lambda text: print(text, flush=True))
    for verdict in verdicts:
        if verdict.words:
            print(f"trainscale: {verdict.framework} {verdict.model}: {verdict.words}", file=sys.stderr)
    if verdicts and not any(verdict.words for verdict in verdicts):
        models_words = ", ".join(dict.fromkeys(verdict.model for verdict in verdicts))
        print(f"parity: all frameworks train the same {models_words}", flush=True)
    return verdicts
