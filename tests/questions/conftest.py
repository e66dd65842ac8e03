"""Made-up records of tests/analyse, and the plain modules beside these tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE.parent / "analyse", HERE / "compare", HERE / "published"):
    sys.path.insert(0, str(folder))
