"""The program that calls vl_convert for drawing_process.py. It imports nothing of this project."""

from __future__ import annotations

import pickle
import sys

import vl_convert


def main() -> None:
    # V8 needs half a second for its first chart; the other process computes its tables meanwhile.
    vl_convert.vegalite_to_svg({"data": {"values": [{"x": 1}]}, "mark": "point"})
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(vl_convert, name)(*arguments)
        except Exception as error:
            answer = ValueError(f"{name}: {error}")
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
