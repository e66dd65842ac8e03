"""The helpers of these tests are plain modules."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[2] / "analyse"):
    sys.path.insert(0, str(folder))
