"""Runs that are watched are written with the same made-up records as those of the analysis."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "analyse"))
