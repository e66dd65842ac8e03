"""The program that calls vl_convert. It imports nothing of this project."""

import base64
import json
import sys

import vl_convert

if __name__ == "__main__":
    # V8 needs half a second for its first chart; the other process computes its tables meanwhile.
    vl_convert.vegalite_to_svg({"data": {"values": [{"x": 1}]}, "mark": "point"})
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer = getattr(vl_convert, name)(*arguments)
        text = base64.b64encode(answer).decode() if isinstance(answer, bytes) else answer
        print(json.dumps(text), flush=True)
