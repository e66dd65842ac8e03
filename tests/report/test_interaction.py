"""The page in a real browser: clicks, keys, themes, sizes and print; neither the console nor axe-core complains."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, open_browser
from factories import curve, make_config, make_run
from full_run import doubtful_records, full_records, learning_records, many_records, write_page
from reported import write_outputs

from trainscale.report.options import ReportOptions

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (tests/needs.sh installs it on Debian)"),
]
AXE = Path(__file__).parents[1] / ".npm" / "node_modules" / "axe-core" / "axe.min.js"
PAPER = 718  # pixels of an A4 page between its margins
SHIFT = 8  # of the DevTools protocol
SERIES = "AlexNet · jax · allreduce"
# Points of a series in a chart, by their descriptions.
MARKS = """(([id, name]) => [...document.querySelectorAll(`#${id} [aria-roledescription="point"]`)]
  .filter(mark => mark.getAttribute("aria-label").includes(name)).length)"""

# Visible charts and lines of the provenance that reach beyond the screen.
CUT = """[...document.querySelectorAll("figure, figure svg, dl.facts dd, h1, p")].filter(e => e.offsetParent)
  .filter(e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)
  .map(e => e.tagName + ": " + e.textContent.trim().slice(0, 60))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("full"), full_records())


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("learning"), learning_records())


@pytest.fixture(scope="module")
def with_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One series on a host with a long name, which the page shows."""
    machine = {"cpu": "A CPU with a long name", "gpus": ["NVIDIA H200"] * 8, "memory GiB": 125.9}
    run = make_run(hosts={"a-long-host-name-of-a-cluster": machine})
    records = curve(make_config(), {1: 100.0, 2: 190.0, 4: 350.0}, repeats=3, spread=0.01)
    folder = tmp_path_factory.mktemp("with-hosts")
    write_outputs(folder, run, records, options=ReportOptions(show_hosts=True))
    return folder / "report.html"


@pytest.fixture
def page(browser: Browser, full: Path) -> Iterator[Browser]:
    """The page as it is when it is opened. No test may leave a complaint in the console."""
    browser.complaints.clear()
    browser.open(full)
    yield browser
    assert browser.complaints == []


def count_marks(page: Browser, chart: str, name: str) -> int:
    return int(page.evaluate(f"{MARKS}({json.dumps([chart, name])})"))


def column(page: Browser, table: str, index: int) -> list[str]:
    values: list[str] = page.evaluate(
        f"[...document.querySelectorAll('[aria-label={json.dumps(table)}] tbody tr')].filter(row => !row.hidden)"
        f".map(row => row.cells[{index}].textContent.trim())"
    )
    return values


def test_every_chart_is_drawn_by_vega_in_place_of_its_static_picture(browser: Browser, with_hosts: Path) -> None:
    assert with_hosts.read_text().count('class="static"') == 8
    browser.open(with_hosts)
    assert browser.evaluate("document.querySelectorAll('.static').length") == 0
    assert browser.evaluate("document.querySelectorAll('.vega-embed').length") == 8


@pytest.mark.parametrize(
    ("width", "charts"),
    [
        (390, ["speedup-narrow", "images", "efficiency", "memory", "time_parts-narrow", "step_times_1"]),
        (1280, ["speedup", "images", "efficiency", "memory", "time_parts", "step_times_1"]),
    ],
)
def test_no_chart_and_no_provenance_is_cut_off(
    browser: Browser, with_hosts: Path, width: int, charts: list[str]
) -> None:
    browser.open(with_hosts, width, 2000)
    shown = "[...document.querySelectorAll('figure')].filter(e => e.offsetParent).map(e => e.id)"
    assert browser.evaluate(shown) == charts
    assert browser.evaluate(CUT) == []


def test_the_first_screen_has_the_question_the_verdict_and_the_speed_up(page: Browser) -> None:
    places = page.evaluate(
        "['h1', '.verdict', '#speedup svg'].map(s => document.querySelector(s).getBoundingClientRect().top)"
    )
    assert places == sorted(places)
    assert places[-1] < 400
    assert "on 8 devices loses" in page.evaluate("document.querySelector('.verdict').textContent")


def test_a_click_on_a_legend_hides_a_series_in_all_charts_and_another_shows_it(page: Browser) -> None:
    before = {chart: count_marks(page, chart, SERIES) for chart in ("speedup", "images", "efficiency")}
    assert min(before.values()) > 0
    button = f'#images .legend button[data-name="{SERIES}"]'
    page.click(button)
    for chart in before:
        page.wait_for(f"{MARKS}({json.dumps([chart, SERIES])}) === 0")
    others = count_marks(page, "speedup", "AlexNet · torch")
    assert others > 0
    pressed = f"[...document.querySelectorAll('.legend button[data-name=\"{SERIES}\"]')].map(b => b.ariaPressed)"
    assert set(page.evaluate(pressed)) == {"false"}
    page.click(button)
    for chart, count in before.items():
        page.wait_for(f"{MARKS}({json.dumps([chart, SERIES])}) === {count}")


def test_shift_leaves_only_that_series(page: Browser) -> None:
    page.click(f'#images .legend button[data-name="{SERIES}"]', modifiers=SHIFT)
    page.wait_for(f"{MARKS}({json.dumps(['images', 'AlexNet · torch'])}) === 0")
    assert count_marks(page, "images", SERIES) > 0


def test_axes_are_logarithmic_or_linear(page: Browser) -> None:
    ticks = "[...document.querySelectorAll('#speedup .role-axis-label text')].map(e => e.textContent).join(' ')"
    before = page.evaluate(ticks)
    page.click("#speedup .switch")
    page.wait_for(f"{ticks} !== {json.dumps(before)}")
    assert "0" in page.evaluate(ticks).split(), "a linear axis begins at zero"
    assert page.evaluate("document.querySelector('#speedup .switch').ariaPressed") == "true"
    page.click("#speedup .switch")
    page.wait_for(f"{ticks} === {json.dumps(before)}")


def test_weak_and_strong_scaling_can_be_shown_apart(page: Browser) -> None:
    page.click(".choice label:nth-of-type(3) input")
    page.wait_for(f"{MARKS}({json.dumps(['images', SERIES])}) === 0")
    assert count_marks(page, "images", "strong") > 0
    page.click(".choice label:nth-of-type(2) input")
    page.wait_for(f"{MARKS}({json.dumps(['images', 'strong'])}) === 0")
    assert count_marks(page, "images", SERIES) > 0


def test_the_mouse_shows_the_numbers_of_a_mark(page: Browser) -> None:
    assert page.evaluate("document.getElementById('tip').hidden")
    page.move_to(f'#images [aria-roledescription="point"][aria-label*="{SERIES}"]')
    page.wait_for("!document.getElementById('tip').hidden")
    assert SERIES in page.evaluate("document.getElementById('tip').textContent")
    page.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden")


def test_marks_are_reached_by_keys(page: Browser) -> None:
    page.evaluate("document.querySelector('#images .switch').focus()")
    page.press("Tab")
    label = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(label)
    assert "images/s" in first
    page.press("ArrowRight")
    second = page.evaluate(label)
    assert second != first
    page.wait_for("!document.getElementById('tip').hidden")
    page.press("Home")
    assert page.evaluate(label) == first
    page.press("Tab")
    assert page.evaluate("document.activeElement.closest('.legend') !== null"), "a chart is one stop"
    page.press("Enter")
    page.wait_for("document.activeElement.ariaPressed === 'false'")


def test_tables_sort_by_clicks_and_by_keys(page: Browser, full: Path) -> None:
    (table_name, *_) = re.findall(r'aria-label="(Points of AlexNet · torch · allreduce[^"]*)"', full.read_text())
    head = f'[aria-label="{table_name}"] th:nth-child(1)'
    assert column(page, table_name, 0) == ["1", "2", "4", "8"]
    page.click(f"{head} button")
    page.click(f"{head} button")
    assert column(page, table_name, 0) == ["8", "4", "2", "1"]
    assert page.evaluate(f"document.querySelector({json.dumps(head)}).ariaSort") == "descending"
    page.press("Enter")
    assert column(page, table_name, 0) == ["1", "2", "4", "8"]
    assert page.evaluate(f"document.querySelector({json.dumps(head)}).getAttribute('aria-sort')") is None
    assert "original order" in page.evaluate("document.getElementById('message').textContent")


def test_sizes_sort_by_what_they_mean_and_rows_without_a_value_come_last(page: Browser) -> None:
    jax = "Points of AlexNet · jax · allreduce"
    page.click(f'[aria-label="{jax}"] th:nth-child(5) button')
    page.click(f'[aria-label="{jax}"] th:nth-child(5) button')
    assert [text.split("±")[0] for text in column(page, jax, 0)] == ["4", "2", "1", "8"]


def test_a_filter_leaves_the_rows_that_contain_it(page: Browser) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.click('input[aria-label="Filter rows: Parts of a step"]')
    page.type("work")
    rows = column(page, "Parts of a step", 2)
    assert rows
    assert set(rows) == {"work"}
    assert f"{len(rows)} of" in page.evaluate("document.getElementById('message').textContent")


def test_a_table_is_copied_as_csv(page: Browser) -> None:
    page.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.click('button[aria-label="Copy as CSV: What failed"]')
    page.wait_for("document.getElementById('message').textContent.includes('copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    header, *rows = copied.splitlines()
    assert header == "series,devices,trials,status,reason"
    assert "AlexNet · jax · allreduce,8,3,out of memory,CUDA out of memory. Tried to allocate 2.00 GiB" in rows


def test_every_control_has_a_name_and_every_table_headings(page: Browser) -> None:
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, figure, table, [tabindex=\"0\"]')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert page.evaluate(
        "[...document.querySelectorAll('thead th')].every(th => th.scope === 'col'"
        " || th.closest('table').tBodies[0].rows.length < 2)"
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


CONTRAST = """(() => {
  const parse = text => { const c = text.match(/[\\d.]+/g).map(Number); return c.length < 4 ? [...c, 1] : c; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { const chain = [];
    for (; e; e = e.parentElement) chain.push(parse(getComputedStyle(e).backgroundColor));
    return chain.reverse().reduce((under, top) => over(top, under), [255, 255, 255]); };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || e.closest("script, style, svg") || !e.offsetParent) continue;
    const under = behind(e), ink = over(parse(getComputedStyle(e).color), under);
    const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5)
      low.push(`${e.tagName}.${e.className}: ${walker.currentNode.data.trim().slice(0, 30)}`);
  }
  return [...new Set(low)];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["full", "learning"])
def test_every_size_and_theme(
    browser: Browser, request: pytest.FixtureRequest, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    browser.complaints.clear()
    browser.open(request.getfixturevalue(name), width, 844 if width < 600 else 900, dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "nothing makes the page scroll sideways"
    assert browser.evaluate(CONTRAST) == []
    size = browser.evaluate("[getComputedStyle(document.body).backgroundColor, innerWidth]")
    assert size == ["rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)", width]
    picture = browser.screenshot(tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    assert len(picture) > 50_000
    assert browser.complaints == []


def test_it_prints_light_with_legends_and_without_controls(browser: Browser, full: Path, tmp_path: Path) -> None:
    browser.open(full, PAPER, dark=True)
    assert browser.print(tmp_path / "printed.pdf").startswith(b"%PDF")
    browser.send("Emulation.setEmulatedMedia", media="print", features=[])
    shown = "[...document.querySelectorAll({})].some(e => e.offsetParent)"
    assert not browser.evaluate(shown.format('".tools, .controls, .choice"'))
    assert browser.evaluate(shown.format('".legend"'))
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = "[...document.querySelectorAll('table')].filter(e => e.scrollWidth > innerWidth).map(e => e.ariaLabel)"
    assert browser.evaluate(wide) == []
    browser.send("Emulation.setEmulatedMedia", media="", features=[])


def test_ten_thousand_trials_open(browser: Browser, tmp_path: Path) -> None:
    page = write_page(tmp_path, many_records())
    assert page.stat().st_size < 12_000_000
    browser.complaints.clear()
    browser.open(page)
    assert browser.evaluate("document.querySelectorAll('section.series').length") == 200
    assert browser.complaints == []


def test_a_legend_is_there_once_also_before_a_chart_is_drawn(browser: Browser, full: Path, tmp_path: Path) -> None:
    visible = "[...document.querySelectorAll('figure .legend')].filter(box => box.offsetParent).length"
    undrawn = tmp_path / "undrawn.html"
    undrawn.write_text(full.read_text().replace("await vegaEmbed(", "await new Promise(() => {}) && vegaEmbed("))
    browser.send("Page.navigate", url=undrawn.resolve().as_uri())
    browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('figure .legend').length > 3")
    assert browser.evaluate(visible) == 0
    assert (
        browser.evaluate("document.querySelectorAll('#step_times_1 .static [aria-roledescription=legend]').length") == 1
    )
    browser.open(full)
    assert browser.evaluate(visible) > 3
    assert browser.evaluate("document.querySelectorAll('[aria-roledescription=legend]').length") == 0


def test_letters_of_charts_keep_their_size_on_a_phone(browser: Browser, full: Path) -> None:
    browser.open(full, width=390, height=844)
    scales = browser.evaluate(
        "[...document.querySelectorAll('figure')].filter(e => e.offsetParent).map(e => e.querySelector('.live svg'))"
        ".map(e => e.getBoundingClientRect().width / e.viewBox.baseVal.width)"
    )
    assert len(scales) > 4
    assert min(scales) > 0.97


def test_sentences_that_are_folded_are_printed(browser: Browser, full: Path) -> None:
    browser.open(full)
    is_open = "[...document.querySelectorAll('details.on-paper')].map(e => e.open)"
    before = browser.evaluate(is_open)
    assert not all(before)
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert all(browser.evaluate(is_open))
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate(is_open) == before


# ---- axe-core: names, roles, contrast, landmarks, focus

NEEDS_AXE = pytest.mark.skipif(
    not AXE.exists(), reason="there is no axe-core here (tests/needs.sh installs it where npm is)"
)
VIOLATIONS = """axe.run().then(done => done.violations.map(
  v => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`))"""


@NEEDS_AXE
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_violation(
    browser: Browser, full: Path, learning: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    for page in (full, learning, write_page(tmp_path, doubtful_records())):
        browser.open(page, width, dark=dark)
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        browser.evaluate(AXE.read_text() + "; 0")
        assert browser.evaluate(VIOLATIONS) == []


@NEEDS_AXE
def test_axe_would_find_one(browser: Browser, learning: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(learning.read_text().replace("<footer>", "<button></button><footer>"))
    browser.open(page)
    browser.evaluate(AXE.read_text() + "; 0")
    (violation,) = browser.evaluate(VIOLATIONS)
    assert violation.startswith("button-name")
