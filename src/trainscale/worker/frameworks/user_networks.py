"""Users' own networks, which come by reference: ``library:name`` or ``package.module:function``."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..config import Config

# A user's network may return several outputs: the main head and two auxiliary ones, weighted as in torchvision.
LOSS_WEIGHTS = (1.0, 0.4, 0.4)


def call_user_function(config: Config, **extra: Any) -> Any:
    """Call the function that the config's model names, with those of the known arguments that it accepts.

    Known are ``classes``, ``image_size`` and ``extra``.
    """
    module, _, name = config.model.partition(":")
    function = getattr(importlib.import_module(module), name)
    accepted = inspect.signature(function).parameters
    known = {"classes": config.classes, "image_size": config.image_size, **extra}
    return function(**{argument: value for argument, value in known.items() if argument in accepted})


def list_heads(outputs: Any) -> list[Any]:
    """Return the outputs of a network, one for each head, as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
