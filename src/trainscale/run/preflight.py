"""Checks before a run measures anything which of its frameworks can be used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..launch.inspection.probe import probe, probe_hosts, question
from ..launch.trial.placement import plugins_of
from ..spec.plan import Plan
from ..worker import models
from .context import FrameworkFacts, RunContext


def check_frameworks(context: RunContext) -> RunContext:
    """Return the context with the facts of each framework, and with the reasons why others are missing.

    An InputError is raised if no framework can be used, or if a network cannot be built.
    """
    if context.launcher.local:
        context.plan.dataset.check()
    frameworks: dict[str, FrameworkFacts] = {}
    missing: dict[str, str] = {}
    for name, facts in _probe_all(context).items():
        reason = _why_missing(facts, context.plan)
        if reason:
            missing[name] = reason
            continue
        for model, result in facts["models"].items():
            if isinstance(result, str):
                raise InputError(f"model {model!r} cannot be built: {result}")
        frameworks[name] = facts
    if not frameworks:
        reasons = "\n".join(f"framework {name!r}: {reason}" for name, reason in missing.items())
        raise InputError(f"{reasons}\n  see: trainscale check")
    return replace(context, frameworks=frameworks, missing=missing)


def _probe_all(context: RunContext) -> dict[str, dict[str, Any]]:
    """Probe all frameworks of the plan at once, here or on all hosts."""
    plan, pythons = context.plan, context.pythons
    names = list(dict.fromkeys(config.framework for config in plan.configs))
    questions = {name: _question(name, plan) for name in names}
    if not context.launcher.local:
        return probe_hosts(context.launcher, plan.available.hosts, pythons, questions)
    with ThreadPoolExecutor(len(names)) as pool:  # each thread starts a process and waits for it
        answers = pool.map(lambda name: probe(pythons[name], **questions[name]), names)
        return dict(zip(names, answers, strict=True))


def _question(name: str, plan: Plan) -> dict[str, Any]:
    configs = [config for config in plan.configs if config.framework == name]
    foreign = [config.to_dict() for config in configs if models.resolve(config.model) is None]
    plugins = {plugin["reference"]: plugin for config in configs for plugin in plugins_of(config)}
    return question(name, foreign, [str(Path.cwd())], list(plugins.values()), plan.dataset.needs)


def _why_missing(facts: FrameworkFacts, plan: Plan) -> str:
    """Return why a framework cannot be used for the plan; the empty string if it can."""
    if not facts["found"]:
        get = f"; get it with: {facts['get']}" if facts.get("get") else ""
        return f"{facts['reason']}{get}"
    if plan.available.kind == "cuda" and not facts.get("gpus"):
        return f"device 'cuda': version {facts['version']} sees no GPU; valid: --device cpu"
    return ""
