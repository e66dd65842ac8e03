"""Names for dictionaries whose keys are not fixed."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]  # an object of JSON or TOML, as it is read or written
NamedArrays = dict[str, Any]  # arrays of numpy or of a framework, by name
