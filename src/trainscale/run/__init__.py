"""The order of trials, preflight, batch search, parity of a plan, Slurm submission, and the run itself.

In Python, ``trainscale.run(models=…)`` measures: the name of this folder is also that of a public function. So the
folder can be called, and a call is passed on to that function.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableFolder(ModuleType):
    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return import_module("trainscale.api.measure").run(*arguments, **settings)


sys.modules[__name__].__class__ = _CallableFolder
