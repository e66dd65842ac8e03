"""What many tests need: networks made for tests, and trials run in real processes."""

from __future__ import annotations

import sys
from pathlib import Path

# Helpers are plain modules in tests/support; the worker finds the networks there too, by its own module path.
sys.path.insert(0, str(Path(__file__).parent / "support"))
