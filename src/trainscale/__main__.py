"""``python -m trainscale``."""

import sys

from .cli import main

sys.exit(main())
