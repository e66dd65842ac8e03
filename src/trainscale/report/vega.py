"""The JavaScript of Vega, which report.html contains. vl-convert makes it in more than a second, so it is kept."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from ..folders import find_cache_folder
from ..record.files import write_atomically
from .drawing_process import render


@cache
def load_vega_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as vl-convert contains them: 0.9 MB, nothing is downloaded."""
    path = find_cache_folder() / "vega" / f"{metadata.version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    bundle = render(snippet="window.vegaEmbed = vegaEmbed;").decode().replace("</script", "<\\/script")
    try:
        write_atomically(path, bundle)
    except OSError:
        pass  # such as a home that cannot be written: the next report makes it again
    return bundle
