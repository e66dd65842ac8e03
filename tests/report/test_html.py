"""The report is one file that loads nothing, escapes everything, and shows every point."""

import json
import re
from html.parser import HTMLParser

import pytest
from factories import curve, failed_record, make_config, make_run, mxnet_records
from reported import render_page

from trainscale.analyse.series import build_series
from trainscale.record.run import RunInfo


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.json: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = f"{tag} {dict(attrs).get('type')}"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data
        elif self._inside == "script application/json":
            self.json.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def small() -> Page:
    records = [
        *curve(make_config(), {1: 38.2, 2: 60.4}, repeats=5, spread=0.01),
        *curve(make_config(strategy="local"), {1: 39.1}, repeats=5, spread=0.01),
        *curve(make_config(model="vgg16", batch=64), {1: 4.2, 2: None}),
    ]
    return Page(render_page(make_run(), build_series(records)))


def test_nothing_is_loaded_from_anywhere(small: Page) -> None:
    for tag, attributes in small.elements:
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            target = attributes.get(name) or ""
            assert not target or target.startswith(("#", "data:")), (tag, target)
    assert not small.all("link")
    (policy,) = [meta for meta in small.all("meta") if meta.get("http-equiv")]
    assert str(policy["content"]).startswith("default-src 'none'")


@pytest.mark.parametrize(
    "said",
    [
        "How does the training of AlexNet and VGG-16 scale?",
        "1.58×",
        "2026-01-02 03:04",
        "79 ± 2 % efficiency",
        "60.40 images/s ±2 %",
        "2 devices: out of memory",
        "CUDA out of memory. Tried to allocate 2.00 GiB",  # failed points are rows with their last log lines folded in
        "RuntimeError: CUDA out of memory",
        "measured once only",
        "1.4826",
        "trainscale run --models alexnet:32",
        "8.00 GiB",
    ],
)
def test_findings_failures_flags_definitions_and_provenance_are_there(small: Page, said: str) -> None:
    assert said in small.text.replace("\u202f", " ")
    assert small.all("details")


def test_the_charts_are_there_as_pictures_and_as_specs(small: Page) -> None:
    assert len(small.all("figure")) == 5
    assert len([svg for svg in small.all("svg") if svg.get("class") == "marks"]) == 5
    specs = [json.loads(text) for text in small.json]
    assert [spec["title"]["text"] for spec in specs] == [
        "Speed-up against devices",
        "Speed-up against devices",  # for narrow screens
        "Images per second against devices",
        "Efficiency against devices",
        "Memory against devices",
    ]


def test_a_local_series_is_not_held_against_itself(small: Page) -> None:
    heading = "vslocal"
    assert heading in small.text
    alone = curve(make_config(strategy="local"), {1: 39.1}, repeats=5, spread=0.01)
    assert heading not in Page(render_page(make_run(), build_series(alone))).text


@pytest.fixture(scope="module")
def published_text() -> str:
    """The page of the curves that MXNet published."""
    return render_page(make_run(), build_series(mxnet_records()))


def test_hostile_text_stays_text(published_text: str) -> None:
    hostile = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
    records = [
        *curve(make_config(model=hostile), {1: 1.0}),
        failed_record(make_config(model=hostile), 2, message=hostile, tail=(hostile, "\x1b[31mred\x00")),
    ]
    page = Page(render_page(make_run(command=hostile, **{hostile: hostile}), build_series(records)))
    scripts, of_clean = ([each for each in p.all("script") if not each] for p in (page, Page(published_text)))
    assert len(scripts) == len(of_clean) == 2
    assert not page.all("img")
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert page.text.count(hostile) >= 3


def test_one_vega_bundle_serves_all_charts(published_text: str) -> None:
    assert len(published_text) < 1_600_000
    assert published_text.count("window.vegaEmbed") <= 1
    assert not re.search(r"cdn\.|jsdelivr|unpkg", re.sub(r"<script>.*?</script>", "", published_text, flags=re.DOTALL))


def test_a_run_without_any_result_still_has_a_report() -> None:
    page = Page(render_page(RunInfo(spec={}), build_series(curve(make_config(), {1: None, 2: None}))))
    assert "no result" in page.text
    assert "1 device: out of memory; 2 devices: out of memory" in page.text
    assert "recorded nothing about itself" in page.text
    empty = Page(render_page(RunInfo(spec={}), []))
    assert "Nothing was measured" in empty.text


def test_a_single_device_count_has_no_speed_up_and_no_memory_to_draw() -> None:
    series = build_series(curve(make_config(), {1: 100.0}, repeats=3, spread=0.01))
    run = make_run(**{"load at start": {"runnable": 3.02, "cpu pressure %": 0.63, "memory GiB": 23.5}})
    text = render_page(run, series)
    assert [figure["id"] for figure in Page(text).all("figure")] == ["images"]
    for value in ("3.02", "0.63", "23.5"):
        assert f">{value}</dd>" in text, "numbers of the provenance have no needless digits"
