"""A coverage-guided campaign: ``python -m tests.fuzz TARGET… --seconds N``, at low priority, with atheris.

A target is a test of this folder without its prefix, such as ``journals``; ``all`` means every one. Atheris changes the
bytes from which Hypothesis makes the input of the test, and keeps those that reach new code of trainscale. The first
defect of a target ends it; its traceback is printed, and the bytes are kept in ``--keep DIR``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("test_fuzz_*.py"))
_DONE = re.compile(r"Done (\d+) (?:runs )?in (\d+) second")
_LAST = re.compile(r"^#(\d+)\t", re.MULTILINE)
_LONGEST_INPUT = 4096  # bytes
_SLOW_SECONDS = 20  # for one input


def find_targets() -> dict[str, str]:
    """Return the module of each target."""
    pattern = re.compile(r"^def test_(\w+)\(", re.MULTILINE)
    return {name: module for module in MODULES for name in pattern.findall((FOLDER / f"{module}.py").read_text())}


def load(name: str, module: str) -> Callable[[bytes], object]:
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support"), str(FOLDER.parent / "analyse")]
    import conftest  # noqa: F401  (loads the profile)

    test: Any = getattr(importlib.import_module(module), f"test_{name}")
    fuzz_one_input: Callable[[bytes], object] = test.hypothesis.fuzz_one_input
    return fuzz_one_input


def fuzz(name: str, seconds: int, keep: Path) -> None:
    """Fuzz one target in this process. Atheris ends the process."""
    import atheris

    with atheris.instrument_imports(include=["trainscale"]):
        target = load(name, find_targets()[name])
    flags = [f"-max_total_time={seconds}", f"-max_len={_LONGEST_INPUT}", f"-timeout={_SLOW_SECONDS}"]
    atheris.Setup([sys.argv[0], *flags, "-rss_limit_mb=1500", f"-artifact_prefix={keep}/{name}-"], target)
    atheris.Fuzz()


def campaign(names: list[str], seconds: int, keep: Path) -> int:
    """Fuzz each target in a process of its own and print a table."""
    keep.mkdir(parents=True, exist_ok=True)
    defects = 0
    print("| target | executions | seconds | defects |\n| --- | ---: | ---: | ---: |", flush=True)
    for name in names:
        start = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz", name, "--here", "--seconds", str(seconds), "--keep", str(keep)]
        done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, check=False)
        stderr = done.stderr.decode(errors="replace")
        match = _DONE.search(stderr)
        counts = _LAST.findall(stderr)
        executions = int(match[1]) if match else int(counts[-1]) if counts else 0
        is_defect = done.returncode != 0
        defects += is_defect
        print(f"| {name} | {executions:,} | {time.monotonic() - start:.0f} | {int(is_defect)} |", flush=True)
        if is_defect:
            (keep / f"{name}.log").write_text(stderr)
            print(f"  see {keep / f'{name}.log'}", file=sys.stderr)
    return 1 if defects else 0


def main() -> int:
    targets = find_targets()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", choices=[*targets, "all"], metavar="TARGET", help=", ".join(targets))
    parser.add_argument("--seconds", type=int, default=120, help="for each target (default: 120)")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install atheris; the tests of this folder need only hypothesis")
    os.nice(10)
    if options.here:
        fuzz(options.targets[0], options.seconds, options.keep)
    names = list(targets) if "all" in options.targets else options.targets
    return campaign(names, options.seconds, options.keep)


if __name__ == "__main__":
    sys.exit(main())
