"""Tables, charts and pages of runs."""

import importlib
import resource

from ..errors import TrainscaleError

_LIBRARIES = ("altair", "vl_convert", "jinja2", "rich", "scipy.special", "msgspec")


def check_can_report() -> None:
    """Raise a TrainscaleError that names a library that is missing."""
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError, MemoryError) as error:  # OSError: of a shared library
            limit, _ = resource.getrlimit(resource.RLIMIT_AS)
            remedy = "install trainscale again: pip install --force-reinstall trainscale"
            if limit != resource.RLIM_INFINITY:
                limited = f"the memory of this shell is limited to {limit >> 20} MiB of addresses"
                remedy = f"{limited}, which may not suffice: ulimit -v unlimited"
            raise TrainscaleError(
                f"the results could not be reported: the library {name} cannot be imported ({error});"
                f" nothing was measured\n  {remedy}"
            ) from None
