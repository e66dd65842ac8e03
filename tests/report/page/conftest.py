"""The sections of the page are tested on the made-up records of the analysis."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "analyse"))
