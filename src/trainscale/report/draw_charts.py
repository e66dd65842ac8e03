"""The program that draws charts: ``python draw_charts.py``, with requests on standard input. See drawing_process.py.

A request is a line of JSON: a Vega-Lite spec, an SVG to convert, or a snippet to bundle with Vega. An answer is a line
with ``ok`` or ``error`` and a number of bytes, then these bytes. It is run as a file, so it imports nothing of this
project. V8, which draws, ends the whole process where it cannot have its memory; that is why this is one of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import vl_convert

_WARM_UP = {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {"x": {"field": "x", "type": "quantitative"}}}


def main() -> int:
    # V8 needs half a second for its first chart. The process that started this one still computes its tables meanwhile.
    vl_convert.vegalite_to_svg(_WARM_UP)
    for line in sys.stdin.buffer:
        try:
            kind, content = "ok", answer(json.loads(line))
        except Exception as error:
            kind, content = "error", f"{type(error).__name__}: {error}".encode()
        sys.stdout.buffer.write(b"%s %d\n" % (kind.encode(), len(content)) + content)
        sys.stdout.buffer.flush()
    return 0


def answer(request: dict[str, Any]) -> bytes:
    result: str | bytes
    match request:
        case {"spec": spec}:
            result = vl_convert.vegalite_to_svg(spec)
        case {"svg": svg, "format": "png", "scale": scale}:
            result = vl_convert.svg_to_png(svg, scale=scale)
        case {"svg": svg, "format": "pdf"}:
            result = vl_convert.svg_to_pdf(svg)
        case {"snippet": snippet}:
            result = vl_convert.javascript_bundle(snippet)
        case _:
            raise ValueError(f"unknown request with {', '.join(request)}")
    return result.encode() if isinstance(result, str) else result


if __name__ == "__main__":
    sys.exit(main())
