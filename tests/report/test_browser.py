"""The report in a real browser, from the disk, without a network: every chart is drawn and nothing is asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from factories import curve, make_config, make_run
from reported import write_outputs

from trainscale.report.options import ReportOptions

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (tests/needs.sh installs it on Debian)"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=10000",
)  # fmt: skip


HOSTS = {
    "a-long-host-name-of-a-cluster": {"cpu": "A CPU with a long name", "gpus": ["NVIDIA H200"] * 8, "memory GiB": 125.9}
}
# Names every visible chart and every line of the provenance that reaches beyond the screen.
MEASURE = """<script>setTimeout(() => {
  const visible = [...document.querySelectorAll("figure, figure svg, dl.facts dd, h1, p")].filter(e => e.offsetParent);
  const cut = visible.filter(e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1);
  parent.postMessage(encodeURI(JSON.stringify({
    width: innerWidth, charts: [...document.querySelectorAll("figure")].filter(e => e.offsetParent).map(e => e.id),
    cut: cut.map(e => e.tagName + ": " + e.textContent.trim().slice(0, 60)) })), "*");
}, 5000)</script>"""
# Chromium's own window is never narrower than 500 pixels, a frame in it can be.
FRAME = """<iframe src="report.html" style="border: 0; width: {width}px; height: 2000px"></iframe><script>
addEventListener("message", event => {{ document.body.dataset.measured = event.data; }})</script>"""


def open_page(path: Path, *flags: str) -> str:
    """Return the document as it is after its scripts have run."""
    assert CHROMIUM is not None
    profile = f"--user-data-dir={path.parent / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, *flags, profile, "--dump-dom", path.resolve().as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def page(tmp_path: Path) -> Path:
    records = curve(make_config(), {1: 100.0, 2: 190.0, 4: 350.0}, repeats=3, spread=0.01)
    write_outputs(tmp_path, make_run(hosts=HOSTS), records, options=ReportOptions(show_hosts=True))
    return tmp_path / "report.html"


def test_every_chart_is_drawn_by_vega_in_a_browser(page: Path) -> None:
    # The page removes each static picture only when Vega has drawn the interactive one in its place.
    assert page.read_text().count('class="static"') == 8
    document = open_page(page)
    assert document.count('class="static"') == 0
    assert document.count("vega-embed") >= 8


@pytest.mark.parametrize(
    ("width", "charts"),
    [
        (390, ["speedup-narrow", "images", "efficiency", "memory", "time_parts-narrow", "step_times_1"]),
        (1280, ["speedup", "images", "efficiency", "memory", "time_parts", "step_times_1"]),
    ],
)
def test_no_chart_and_no_provenance_is_cut_off(page: Path, width: int, charts: list[str]) -> None:
    page.write_text(page.read_text().replace("</body>", f"{MEASURE}</body>"))
    frame = page.with_name("frame.html")
    frame.write_text(f"<!doctype html><body>{FRAME.format(width=width)}</body>")
    document = open_page(frame, "--window-size=1400,2000", "--hide-scrollbars")
    match = re.search(r'data-measured="([^"]*)"', document)
    assert match is not None
    measured = json.loads(unquote(match[1]))
    assert measured == {"width": width, "charts": charts, "cut": []}
