"""trainscale measures how deep-learning training scales from one device to many hosts.

    import trainscale as ts

    run = ts.run(models=["resnet50:8"], devices=[1, 2])
    run = ts.load("runs/resnet50-1a2b3c")
    run.series, run.points, run.trials

docs/python.md describes every name. The import of this package is light: a name is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name is defined, and under which name if that differs.
_MODULES = {
    "BestChoice": ".questions.best.best",
    "BestChoices": ".questions.best.best",
    "ComparisonPoint": ".questions.compare.compare",
    "ExplainedPart": ".questions.explain.causes",
    "InputError": ".errors",
    "Interval": ".analyse.statistics",
    "Run": ".runs",
    "RunComparison": ".questions.compare.compare",
    "RunExplanation": ".questions.explain.explain",
    "RunPoint": ".analyse.series:Point",
    "RunSeries": ".analyse.series:Series",
    "TrainscaleError": ".errors",
    "TrialRow": ".export.columns",
    "best": ".runs",
    "compare": ".runs",
    "explain": ".runs",
    "load": ".runs",
    "run": ".cli.run",
}

if TYPE_CHECKING:
    from .analyse.series import Point as RunPoint
    from .analyse.series import Series as RunSeries
    from .analyse.statistics import Interval
    from .cli.run import run
    from .errors import InputError, TrainscaleError
    from .export.columns import TrialRow
    from .questions.best.best import BestChoice, BestChoices
    from .questions.compare.compare import ComparisonPoint, RunComparison
    from .questions.explain.causes import ExplainedPart
    from .questions.explain.explain import RunExplanation
    from .runs import Run, best, compare, explain, load

__all__ = [
    "BestChoice",
    "BestChoices",
    "ComparisonPoint",
    "ExplainedPart",
    "InputError",
    "Interval",
    "Run",
    "RunComparison",
    "RunExplanation",
    "RunPoint",
    "RunSeries",
    "TrainscaleError",
    "TrialRow",
    "__version__",
    "best",
    "compare",
    "explain",
    "load",
    "run",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own_name = _MODULES[name].partition(":")
    value = getattr(import_module(module, __name__), own_name or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
