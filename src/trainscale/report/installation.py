"""Whether the libraries that make the outputs are installed. A run checks this before it measures anything."""

from __future__ import annotations

import importlib

from ..errors import TrainscaleError

_LIBRARIES = ("altair", "vl_convert", "jinja2", "rich", "scipy.special", "msgspec")


def check_can_report() -> None:
    """Raise a TrainscaleError that names the library if one of them cannot be imported."""
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: a shared library that does not fit this machine
            raise TrainscaleError(
                f"the results could not be reported: the library {name} cannot be imported ({error});"
                " nothing was measured\n  install trainscale again: pip install --force-reinstall trainscale"
            ) from None
