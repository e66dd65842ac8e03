"""Checks before a run measures anything which of its frameworks can be used."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from ..errors import InputError, TrainscaleError
from ..launch.inspection.probe import HostsLost, probe_hosts
from ..launch.trial.jobs import list_plugins
from ..spec.plan import Plan
from ..worker import models
from ..worker.events import FrameworkFacts
from ..worker.inspection.probe import ProbeRequest
from .context import RunContext


def check_frameworks(context: RunContext) -> RunContext:
    """Return the context with the facts of each framework, and with the reasons why others are missing.

    An InputError is raised if no framework can be used, or if a network cannot be built; another error if a host is
    lost meanwhile.
    """
    if context.launcher.local:
        context.plan.dataset.check()
    frameworks: dict[str, FrameworkFacts] = {}
    missing: dict[str, str] = {}
    for name, facts in _probe_all(context).items():
        reason = _explain_missing(facts, context.plan)
        if reason:
            missing[name] = reason
            continue
        for model, result in facts.models.items():
            if isinstance(result, str):
                raise InputError(f"model {model!r} cannot be built: {result}")
        frameworks[name] = facts
    if not frameworks:
        reasons = "\n".join(f"framework {name!r}: {reason}" for name, reason in missing.items())
        raise InputError(f"{reasons}\n  see: {_format_check_command(context)}")
    return replace(context, frameworks=frameworks, missing=missing)


def _probe_all(context: RunContext) -> dict[str, FrameworkFacts]:
    """Probe all frameworks of the plan at once, on all hosts."""
    names = list(dict.fromkeys(config.framework for config in context.plan.configs))
    requests = [_make_probe_request(name, context.plan) for name in names]
    try:
        return probe_hosts(context.launcher, context.plan.available.hosts, context.pythons, requests)
    except HostsLost as error:
        raise TrainscaleError(f"{error}\n  see: {_format_check_command(context)}") from None


def _format_check_command(context: RunContext) -> str:
    """Return the command that inspects the hosts of this run."""
    if context.launcher.local:
        return "trainscale check"
    file = context.plan.experiment.cluster.hosts
    option = f"--hosts {shlex.quote(file)}" if file else f"--launcher {context.launcher.name}"
    return f"trainscale check {option}"


def _make_probe_request(name: str, plan: Plan) -> ProbeRequest:
    configs = [config for config in plan.configs if config.framework == name]
    users_networks = [config for config in configs if models.resolve(config.model) is None]
    plugins = {plugin.reference: plugin for config in configs for plugin in list_plugins(config)}
    return ProbeRequest(name, users_networks, [str(Path.cwd())], list(plugins.values()), plan.dataset.needs)


def _explain_missing(facts: FrameworkFacts, plan: Plan) -> str:
    """Return why a framework cannot be used for the plan; the empty string if it can."""
    if not facts.is_available:
        get = f"; get it with: {facts.install_command}" if facts.install_command else ""
        return f"{facts.reason}{get}"
    if plan.available.kind == "cuda" and not facts.gpus:
        return f"device 'cuda': version {facts.version} sees no GPU; valid: --device cpu"
    return ""
