"""``trainscale models`` and ``trainscale frameworks``: list what can be measured."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..launch import plugins
from ..launch.plugins import Plugin
from ..spec.groups import SETTINGS
from ..worker import models as networks
from ..worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES
from ..worker.plugins import FRAMEWORK, MODEL
from .parser import Parser, typed
from .tables import folded, make_table, number, text


def models(argv: list[str]) -> int:
    parser = Parser("models")
    for setting in (SETTINGS["image_size"], SETTINGS["classes"]):
        kind = typed(setting.value_type)
        parser.add_argument(*setting.flags, type=kind, metavar=setting.metavar, help=setting.help)
    options = parser.read(argv)
    console = Console(highlight=False)
    numbers = map(number, ("image", "classes", "parameters", "MB", "GMAC"))
    is_wide = console.width >= 110  # then a description fits beside the numbers
    table = make_table(text("model"), *numbers, *([folded()] if is_wide else []))
    table.caption = (
        "MB: gradients exchanged in a step, fp32. GMAC: multiply-adds of one image's forward pass; training takes"
        " about three times that. Also torchvision:NAME, timm:NAME, keras:NAME, gluon:NAME and"
        " my_package.module:function."
    )
    broken = plugins.list_broken_plugins(MODEL)
    for name, info in networks.MODELS.items():
        description = [Text(info.description)] if is_wide else []
        try:
            graph = networks.build(name, options.image_size, options.classes)
            table.add_row(
                Text(name),
                f"{graph.input_shape[0]}×{graph.image_size}²",
                str(graph.classes),
                f"{graph.parameter_count:,}",
                f"{4 * graph.parameter_count / 1e6:,.1f}",  # of gradients in float32
                f"{graph.macs / 1e9:.3f}",
                *description,
            )
        except (Exception, SystemExit) as error:
            if isinstance(error, networks.ShapeError) and options.image_size is not None:
                row = (str(options.image_size), "", "image too small", "", "")
                table.add_row(Text(name), *row, *description)
            elif info.plugin is None:
                raise
            else:
                broken.append(Plugin(MODEL, name, info.builder, "", f"{type(error).__name__}: {error}"))
    console.print(table)
    print_broken_plugins(console, broken)
    return 0


def frameworks(argv: list[str]) -> int:
    Parser("frameworks").read(argv)
    console = Console(highlight=False)
    centred = [text(strategy, justify="center") for strategy in STRATEGIES]
    table = make_table(text("framework"), *centred)
    for framework in FRAMEWORKS.values():
        table.add_row(framework.name, *("yes" if s in framework.engines else "–" for s in STRATEGIES))
    console.print(table)
    for framework in FRAMEWORKS.values():
        console.print(f"\n[bold]{framework.name}[/] ({framework.title})")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=18)
        served: dict[str, list[str]] = {}  # strategies by the engine that serves them
        for strategy, engine in framework.engines.items():
            served.setdefault(engine, []).append(strategy)
        for engine, strategies in served.items():
            grid.add_row(f"  {', '.join(strategies)}", engine)
        own_compiler = " · --compile" if framework.compiles else ""
        grid.add_row("  precisions", ", ".join(framework.precisions) + own_compiler)
        layouts = [f"{device}: {', '.join(names)}" for device, names in framework.layouts.items()]
        grid.add_row("  layouts", f"{'; '.join(layouts)} (the best first)")
        own_networks = [*(f"{name}:NAME" for name in framework.libraries), "my_package.module:function"]
        grid.add_row("  networks", f"those of trainscale, {', '.join(own_networks)}")
        if framework.plugin:
            grid.add_row("  plug-in", framework.plugin.reference)
        console.print(grid)
    print_broken_plugins(console, plugins.list_broken_plugins(FRAMEWORK))
    for title, names in (("strategies", STRATEGIES), ("precisions", PRECISIONS), ("layouts", LAYOUTS)):
        console.print(f"\n[bold]{title}[/]")
        for name, meaning in names.items():
            console.print(f"  {name:<12} {meaning}")
    return 0


def print_broken_plugins(console: Console, broken: Iterable[Plugin]) -> None:
    for plugin in broken:
        origin = f"plug-in of {plugin.package}" if plugin.package else "plug-in"
        reference = f"{plugin.reference}: " if plugin.reference else ""
        console.print(f"\n{plugin.kind} {plugin.name} ({origin}) cannot be used", markup=False)
        console.print(f"  {reference}{plugin.error}", markup=False, soft_wrap=True)
