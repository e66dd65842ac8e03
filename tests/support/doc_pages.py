"""The pages of the documentation, and how tests read them: tables, code and blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def text(name: str) -> str:
    return (DOCS / name).read_text()


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table of a page."""
    lines = [line.strip() for line in page.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def under(page: str, heading: str) -> str:
    """From a heading to the next of its level or above."""
    level = heading.partition(" ")[0]
    start = page.index(f"\n{heading}\n")
    end = re.search(rf"^#{{1,{len(level)}}} ", page[start + len(heading) + 2 :], re.MULTILINE)
    return page[start : start + len(heading) + 2 + end.start()] if end else page[start:]


def coded(page: str) -> set[str]:
    """Everything set as code, and each word of it."""
    spans = re.findall(r"`([^`\n]+)`", page)
    return {*spans, *(word for span in spans for word in span.split())}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
