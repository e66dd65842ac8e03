"""Measures how long report.html of a run takes to open in Chromium: that of 10,000 trials over that of a small run.

python bench/report_page.py [--repeats 5]
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "analyse")]

from browser import Browser, open_browser  # noqa: E402
from full_run import full_records, many_records, write_page  # noqa: E402

# Milliseconds since the page was asked for: when it can be read, and when all its charts answer.
READABLE = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def open_seconds(browser: Browser, page: Path) -> tuple[float, float]:
    browser.send("Page.navigate", url="about:blank")
    start = time.perf_counter()
    browser.open(page)
    drawn = time.perf_counter() - start
    return browser.evaluate(READABLE) / 1000, drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for name, records in (("small", full_records()), ("10,000 trials", many_records())):
            start = time.perf_counter()
            pages[name] = write_page(Path(folder) / name, records)
            size = pages[name].stat().st_size / 1e6
            print(f"{name:<14} {len(records):>6} trials, written in {time.perf_counter() - start:.1f} s, {size:.1f} MB")
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in pages}
        with open_browser(Path(folder) / "profile") as browser:
            for _ in range(repeats):
                for name, page in pages.items():
                    times[name].append(open_seconds(browser, page))
    for name, pairs in times.items():
        readable, drawn = (statistics.median(values) for values in zip(*pairs, strict=True))
        print(f"{name:<14} readable after {readable:.2f} s, all charts interactive after {drawn:.2f} s")


if __name__ == "__main__":
    main()
