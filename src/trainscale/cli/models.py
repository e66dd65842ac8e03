"""``trainscale models``: the networks, with parameters and operations derived from their graphs."""

from __future__ import annotations

from ..errors import InputError
from ..spec.fields import BY_KEY
from ..worker import models
from .parser import Parser


def main(words: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    parser = Parser(
        "models", "List the networks. Parameters and operations are derived from each network's graph."
    )
    for key in ("image_size", "classes"):
        field = BY_KEY[key]
        parser.add_argument(*field.flags, metavar=field.metavar, help=field.help)
    options = parser.read(words)
    size, classes = (
        BY_KEY[key].read_text(value, BY_KEY[key].flags[0]) if (value := getattr(options, key)) else None
        for key in ("image_size", "classes")
    )
    table = Table(box=None, padding=(0, 2, 0, 0), caption="GMAC: multiply-adds of one image's forward pass; a training step takes about three times that."
                  " MB: gradients exchanged per step in fp32. Also torchvision:NAME, timm:NAME, my_package.module:function.",
                  caption_justify="left")  # fmt: skip
    table.add_column("model", no_wrap=True)
    for name in ("image", "classes", "parameters", "MB", "GMAC"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for name, info in models.MODELS.items():
        try:
            graph = models.build(name, size, classes)
        except models.ShapeError as error:
            if size is None:
                raise InputError(str(error)) from None
            table.add_row(name, str(size), "", "", "", "", f"needs a larger image than {size}")
            continue
        table.add_row(
            name, f"{graph.input_shape[0]}×{graph.image_size}²", str(graph.classes), f"{graph.parameter_count:,}",
            f"{graph.gradient_bytes / 1e6:,.1f}", f"{graph.macs / 1e9:.3f}", info.description,
        )  # fmt: skip
    Console(highlight=False).print(table)
    return 0
