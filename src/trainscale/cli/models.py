"""``trainscale models``: list the networks, with parameters and operations derived from their graphs."""

from __future__ import annotations

from ..launch import plugins
from ..spec.groups import SETTINGS
from ..worker import models
from ..worker.plugins import MODEL
from .parser import Parser
from .plugins import print_broken

_WIDE = 110  # columns of a terminal in which the description of a network fits beside its numbers
_CAPTION = (
    "MB: gradients exchanged in a step, fp32. GMAC: multiply-adds of one image's forward pass; training takes about"
    " three times that. Also torchvision:NAME, timm:NAME, keras:NAME, gluon:NAME and my_package.module:function."
)


def main(argv: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    parser = Parser("models", "List the networks. Parameters and operations are derived from each network's graph.")
    for key in ("image_size", "classes"):
        parser.add_argument(*SETTINGS[key].flags, metavar=SETTINGS[key].metavar, help=SETTINGS[key].help)
    options = parser.read(argv)
    size, classes = (_read_number(key, getattr(options, key)) for key in ("image_size", "classes"))
    table = Table(box=None, padding=(0, 2, 0, 0), caption=_CAPTION, caption_justify="left")
    table.add_column("model", no_wrap=True)
    for name in ("image", "classes", "parameters", "MB", "GMAC"):
        table.add_column(name, justify="right", no_wrap=True)
    console = Console(highlight=False)
    is_wide = console.width >= _WIDE
    if is_wide:
        table.add_column("", overflow="fold")
    broken = plugins.list_broken_plugins(MODEL)
    for name, info in models.MODELS.items():
        try:
            table.add_row(Text(name), *_make_row(name, size, classes), *([Text(info.description)] if is_wide else []))
        except (Exception, SystemExit) as error:
            if info.plugin is None:
                raise
            broken.append(plugins.Plugin(MODEL, name, info.builder, "", f"{type(error).__name__}: {error}"))
    console.print(table)
    print_broken(console, broken)
    return 0


def _read_number(key: str, text: str | None) -> int | None:
    field = SETTINGS[key]
    return None if text is None else int(field.read_text(text, field.flags[0]))


def _make_row(name: str, size: int | None, classes: int | None) -> tuple[str, ...]:
    try:
        graph = models.build(name, size, classes)
    except models.ShapeError:
        if size is None:
            raise  # the network's own size does not fit it
        return str(size), "", "image too small", "", ""
    return (
        f"{graph.input_shape[0]}×{graph.image_size}²",
        str(graph.classes),
        f"{graph.parameter_count:,}",
        f"{graph.gradient_bytes / 1e6:,.1f}",
        f"{graph.macs / 1e9:.3f}",
    )
