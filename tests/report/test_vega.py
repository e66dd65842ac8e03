"""The JavaScript of Vega is made once and kept in the user's cache."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from trainscale.report import drawing_process
from trainscale.report.drawing_process import load_vega_bundle


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_vega_bundle.cache_clear()
    yield
    load_vega_bundle.cache_clear()


@pytest.fixture
def bundles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The snippets for which a bundle was made."""
    snippets: list[str] = []

    def make_bundle(_: str, snippet: str) -> str:
        snippets.append(snippet)
        return f"vega(); {snippet} '</script>'"

    monkeypatch.setattr(drawing_process, "call_vl_convert", make_bundle)
    return snippets


def test_the_bundle_is_made_once(bundles: list[str], tmp_path: Path) -> None:
    first = load_vega_bundle()
    load_vega_bundle.cache_clear()  # as in another process
    assert load_vega_bundle() == first == "vega(); window.vegaEmbed = vegaEmbed; '<\\/script>'"
    assert len(bundles) == 1
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept.name == f"{metadata.version('vl-convert-python')}.js"


def test_another_version_of_vl_convert_has_its_own(bundles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    load_vega_bundle()
    load_vega_bundle.cache_clear()
    monkeypatch.setattr(metadata, "version", lambda _: "0.0.1")
    load_vega_bundle()
    assert len(bundles) == 2


def test_a_cache_that_cannot_be_used_is_no_obstacle(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_vega_bundle()
