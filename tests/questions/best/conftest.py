"""These tests use the same made-up records as the analysis."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "analyse"))
