"""Checks before a run measures anything which of its frameworks can be used."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..launch.inspection.hosts import combine_probes
from ..launch.trial.jobs import list_plugins
from ..spec import data
from ..spec.choices import choose_network
from ..spec.config import Config
from ..spec.experiment import Experiment
from ..spec.plan import Plan
from ..worker import models
from ..worker.events import FrameworkFacts
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import HostFacts
from ..worker.inspection.probe import ProbeRequest, run_probes
from .context import RunContext


def make_probe_requests(experiment: Experiment) -> list[ProbeRequest]:
    """Return what to ask each framework before there is a plan. A user's network is built in its usual form."""
    dataset = data.find_dataset(experiment.work.data)
    requests = []
    for name in dict.fromkeys(text.lower() for text in experiment.work.frameworks):
        if name not in FRAMEWORKS:
            continue  # the plan says so
        framework = FRAMEWORKS[name]
        networks = [choose_network(text, framework, experiment.work, dataset) for text in experiment.work.models]
        layouts = experiment.work.layout
        configs = [
            Config(
                name,
                network.name,
                1,
                framework.usual_strategy,
                network.image_size,
                network.classes,
                network.channels,
                layout=layouts[0] if layouts else framework.layouts["cpu"][0],
                data=dataset.name,
            )
            for network in networks
        ]
        plugins = {plugin.reference: plugin for config in configs for plugin in list_plugins(config)}
        users_networks = [config for config in configs if models.resolve(config.model) is None]
        requests.append(ProbeRequest(name, users_networks, [str(Path.cwd())], list(plugins.values()), dataset.needs))
    return requests


def check_frameworks(context: RunContext, hosts: Mapping[str, HostFacts] | None = None) -> RunContext:
    """Return the context with the facts of each framework, and with the reasons why others are missing.

    The frameworks were imported when the ``hosts`` were visited; without hosts, they are imported on this machine now.
    An InputError is raised if no framework can be used, or if a network cannot be built.
    """
    plan = context.plan
    names = list(dict.fromkeys(config.framework for config in plan.configs))
    if hosts:
        answers = {name: combine_probes(hosts, name) for name in names}
    else:
        plan.dataset.check()
        answers = run_probes(context.pythons, make_probe_requests(plan.experiment))
    frameworks: dict[str, FrameworkFacts] = {}
    missing: dict[str, str] = {}
    for name in names:
        reason = _explain_missing(answers[name], plan)
        if reason:
            missing[name] = reason
            continue
        for model, result in answers[name].models.items():
            if isinstance(result, str):
                raise InputError(f"model {model!r} cannot be built: {result}")
        frameworks[name] = answers[name]
    if not frameworks:
        reasons = "\n".join(f"framework {name!r}: {reason}" for name, reason in missing.items())
        command = "trainscale check"
        if hosts:
            file = plan.experiment.cluster.hosts
            command += f" --hosts {shlex.quote(file)}" if file else f" --launcher {context.launcher.name}"
        raise InputError(f"{reasons}\n  see: {command}")
    return replace(context, frameworks=frameworks, missing=missing)


def _explain_missing(facts: FrameworkFacts, plan: Plan) -> str:
    """Return why a framework cannot be used for the plan; the empty string if it can."""
    if not facts.is_available:
        get = f"; get it with: {facts.install_command}" if facts.install_command else ""
        return f"{facts.reason}{get}"
    if plan.available.kind == "cuda" and not facts.gpus:
        return f"device 'cuda': version {facts.version} sees no GPU; valid: --device cpu"
    return ""
