"""The report in a real browser, from the disk, without a network: every chart is drawn and nothing is asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from factories import curve, make_config, make_run

from trainscale.report.outputs import write_outputs

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=10000",
)  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (tests/needs.sh installs it on Debian)")
def test_every_chart_is_drawn_by_vega_in_a_browser(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    records = curve(make_config(), {1: 100.0, 2: 190.0, 4: 350.0}, repeats=3, spread=0.01)
    write_outputs(tmp_path, make_run(), records)
    page = (tmp_path / "report.html").resolve().as_uri()
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    # The page takes each static picture away only when Vega has drawn the live one in its place.
    assert (tmp_path / "report.html").read_text().count('class="still"') == 3
    assert done.stdout.count('class="still"') == 0
    assert done.stdout.count("vega-embed") >= 3
