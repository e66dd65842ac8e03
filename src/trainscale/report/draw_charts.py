"""The program that calls vl_convert. It imports nothing of this project."""

import base64
import json
import sys

import vl_convert


def main() -> None:
    # V8 needs half a second for its first chart; the other process computes its tables meanwhile.
    vl_convert.vegalite_to_svg({"data": {"values": [{"x": 1}]}, "mark": "point"})
    for line in sys.stdin.buffer:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(vl_convert, name)(*arguments)
            kind = "text"
            if isinstance(answer, bytes):
                kind, answer = "bytes", base64.b64encode(answer).decode()
        except Exception as error:
            kind, answer = "error", f"{name}: {error}"
        sys.stdout.write(f"{json.dumps([kind, answer])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
