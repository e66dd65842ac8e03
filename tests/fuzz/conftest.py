"""The profile of the property-based tests: few examples, always the same ones.

TRAINSCALE_FUZZ_EXAMPLES=2000 tries that many for each test, and other ones in every run; ``make test-all`` does so.
"""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
_EXAMPLES = int(os.environ.get("TRAINSCALE_FUZZ_EXAMPLES", "0"))
settings.register_profile("unit", max_examples=20, derandomize=True, **_COMMON)
settings.register_profile("many", max_examples=max(1, _EXAMPLES), **_COMMON)
settings.load_profile("many" if _EXAMPLES else "unit")
