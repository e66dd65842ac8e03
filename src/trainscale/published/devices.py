"""The kind of a device by the names that drivers and people give it: ``A100`` for ``NVIDIA A100-SXM4-80GB``."""

from __future__ import annotations

import re

# The longer names first: "GTX 980" must not be found as something else, nor "A100" inside another word.
_KINDS = (
    "GTX Titan X", "GTX 980", "Ascend 910", "GB200", "B200", "GH200", "H200", "H100", "A100", "V100", "P100", "P40",
    "K80", "K520", "M60", "M40", "L40S", "L40", "L4", "A10G", "A10", "T4", "Gaudi",
)  # fmt: skip


def find_device_kind(name: str) -> str:
    """Return the kind of a device. A name without a known kind is its own kind."""
    for kind in _KINDS:
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(kind)}(?![0-9A-Za-z])", name, re.IGNORECASE):
            return kind
    return name.removeprefix("NVIDIA ").strip()
