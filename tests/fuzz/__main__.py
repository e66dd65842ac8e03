"""Coverage-guided fuzzing of one test of this folder: ``python -m tests.fuzz TARGET [FLAG…]``, with atheris.

A target is a test without its prefix, such as ``journals``. The flags are libFuzzer's, such as ``-max_total_time=120``.
Atheris changes the bytes from which Hypothesis makes the input of the test, and keeps those that reach new code of
trainscale. The first defect ends it, with a traceback and a file of the bytes.
"""

import sys
from importlib import import_module
from pathlib import Path

import atheris

FOLDER = Path(__file__).parent
LIMITS = ("-max_len=4096", "-timeout=20", "-rss_limit_mb=1500")  # bytes of an input, seconds for it, memory

if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support"), str(FOLDER.parent / "analyse")]
    with atheris.instrument_imports(include=["trainscale"]):
        import_module("conftest")  # loads the profile
        modules = [import_module(path.stem) for path in FOLDER.glob("test_fuzz_*.py")]
    _, target, *flags = sys.argv
    (test,) = [vars(module)[f"test_{target}"] for module in modules if f"test_{target}" in vars(module)]
    atheris.Setup([target, *LIMITS, *flags], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()
