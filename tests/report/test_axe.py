"""axe-core finds no violation in the page: names, roles, contrast, landmarks, focus."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import CHROMIUM, open_browser
from full_run import doubtful_records, full_records, learning_records, write_page

AXE = Path(__file__).parents[1] / ".npm" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (tests/needs.sh installs it on Debian)"),
    pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core here (tests/needs.sh installs it where npm is)"),
]
VIOLATIONS = """axe.run().then(done => done.violations.map(
  v => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {"full": full_records(), "learning": learning_records(), "doubtful": doubtful_records()}
    return [write_page(folder / name, records) for name, records in runs.items()]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_violation(pages: list[Path], tmp_path: Path, width: int, dark: bool) -> None:
    with open_browser(tmp_path / "profile") as browser:
        for page in pages:
            browser.open(page, width, dark=dark)
            browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            browser.evaluate(AXE.read_text() + "; 0")
            assert browser.evaluate(VIOLATIONS) == []


def test_axe_would_find_one(tmp_path: Path) -> None:
    page = write_page(tmp_path, learning_records())
    page.write_text(page.read_text().replace("<footer>", "<button></button><footer>"))
    with open_browser(tmp_path / "profile") as browser:
        browser.open(page)
        browser.evaluate(AXE.read_text() + "; 0")
        (violation,) = browser.evaluate(VIOLATIONS)
        assert violation.startswith("button-name")
