"""Tables of runs besides their points: records, training, searches, differences."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..analyse.race import Departure, replay_races_of_run
from ..analyse.series import Series
from ..analyse.statistics import mean_interval
from ..analyse.throughput import list_speeds
from ..analyse.titles import describe_differences, find_model_title
from ..record.run import Provenance, RecordedMachine, RunInfo
from ..record.trial import IMAGES
from ..runs import Run
from ..spec.config import WEAK
from . import numbers, wording
from .documents import Grid
from .numbers import MISSING, format_accuracy, format_integer

MOST_IN_TERMINAL = 12  # rows; all are in report.md and report.html

_ROWS = (
    "Training time (secs)", "Average time per epoch (secs)", "Images processed per sec",
    "Training accuracy", "Test accuracy", "Maximum Memory Consumption",
)  # fmt: skip
# The profile summed up what nvidia-smi reported for the GPUs: the driver's count is nearest to that.
_MEMORY = {
    "nvml_peak_bytes_sum": "by the GPUs' driver",
    "device_peak_bytes_sum": "by the framework's allocator",
    "host_peak_bytes_sum": "by the kernel's count",
}


def make_machines_grid(run: RunInfo) -> Grid:
    software, rows = describe_software(run), []
    for hardware, names in _group_hosts(run.read_provenance()).items():
        together = f"{names[0]} … {names[-1]} ({wording.format_host_count(len(names))})"
        rows.append((together if len(names) > 2 else ", ".join(names), hardware, software))
    return Grid("Machines", ("name", "hardware", "software"), tuple(rows), left=(0, 1, 2))


def make_datasets_grid(run: RunInfo, all_series: Sequence[Series]) -> Grid | None:
    """Return None for synthetic data."""
    data = run.read_provenance().data
    if data is None:
        return None
    configs = [series.config for series in all_series if series.config.data != "synthetic"]
    shapes = dict.fromkeys((config.image_size, config.image_size, config.channels) for config in configs)
    sizes = [" × ".join(map(str, shape)) for shape in shapes]
    classes, train, valid = map(format_integer, (data.classes, data.train, data.valid))
    row = (data.name or MISSING, classes, ", ".join(sizes) or MISSING, train, valid)
    return Grid("Data sets", ("name", "class", "image size", "training", "testing"), (row,))


def make_versions_grid(run: RunInfo) -> Grid | None:
    provenance = run.read_provenance()
    frameworks = provenance.frameworks or {}
    rows = [(name, ", ".join(_list_versions(modules))) for name, modules in frameworks.items()]
    own = [text for text in (provenance.trainscale, provenance.commit) if text]
    if own:
        rows.append(("trainscale", ", commit ".join(own)))
    return Grid("Versions", ("program", "versions"), tuple(rows), left=(0, 1)) if rows else None


def describe_hardware(run: RunInfo) -> str:
    groups = _group_hosts(run.read_provenance())
    kinds = [text if len(names) == 1 else f"{len(names)} × ({text})" for text, names in groups.items()]
    return "; ".join(kinds)


def describe_software(run: RunInfo) -> str:
    provenance = run.read_provenance()
    machine = provenance.machine or RecordedMachine()
    parts = [machine.system, f"driver {machine.gpu_driver}" if machine.gpu_driver else ""]
    for modules in (provenance.frameworks or {}).values():
        parts += [text for text in _list_versions(modules) if text not in parts]
    if setting := (provenance.allocator or {}).get("setting"):
        parts.append(f"C allocator: {setting}")
    return ", ".join(part for part in parts if part) or MISSING


def _group_hosts(provenance: Provenance) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, machine in (provenance.hosts or {"": provenance.machine or RecordedMachine()}).items():
        parts = [f"{machine.gpus.count(gpu)} × {gpu}" for gpu in dict.fromkeys(machine.gpus)]
        parts.append(machine.cpu or "")
        if machine.cores:
            parts.append(numbers.format_count(machine.cores, "core"))
        if machine.memory_gib:
            parts.append(f"{machine.memory_gib} GiB")
        hardware = ", ".join(part for part in parts if part) or MISSING
        groups.setdefault(hardware, []).append(name or machine.host or "this machine")
    return groups


def _list_versions(modules: dict[str, str]) -> list[str]:
    return [f"{name} {version}" for name, version in modules.items()]


# ---- several runs


def make_difference_grid(runs: Sequence[Run]) -> Grid:
    """Return what differs; the note says what is the same."""
    provenances = [run.info.read_provenance() for run in runs]
    frameworks = dict.fromkeys(name for each in provenances for name in each.frameworks or {})
    by_run = []
    for run, provenance in zip(runs, provenances, strict=True):
        spec = run.info.read_spec()
        machines = list((provenance.hosts or {}).values())
        if provenance.machine:
            machines.append(provenance.machine)
        configs = [series.config for series in run.series]
        by_name = provenance.frameworks or {}
        versions = {name: ", ".join(_list_versions(by_name.get(name, {}))) for name in frameworks}
        hardware = describe_hardware(run.info)
        has_steps = spec.steps is not None and spec.budget is None
        scopes = ["per device" if config.scaling == WEAK else "over all devices" for config in configs]
        batches = [f"{config.batch:,} {scope}" for config, scope in zip(configs, scopes, strict=True)]
        facts_of_run = {
            "machine": "" if hardware == MISSING else hardware,
            "hosts": format_integer(max((point.hosts for point in run.points), default=1)),
            "system": _join(machine.system for machine in machines),
            "GPU driver": _join(machine.gpu_driver for machine in machines),
            **{f"versions of {name}": text for name, text in versions.items()},
            "version of trainscale": provenance.trainscale or "",
            "networks": _join(find_model_title(config.model) for config in configs),
            "frameworks": _join(config.framework for config in configs),
            "strategies": _join(config.strategy_label for config in configs),
            "batch": _join(batches),
            "precision": _join(config.precision for config in configs),
            "layout": _join(config.layout for config in configs),
            "compilation": _join("compiled" if config.compile else "eager" for config in configs),
            "data": _join(wording.format_data_name(config.data) for config in configs),
            "image size": _join(f"{config.image_size} px" for config in configs),
            "kind of device": wording.describe_device_kind(run.series) if run.series else "",
            "warm-up steps": "" if spec.warmup is None else str(spec.warmup),
            "steps": str(spec.steps) if has_steps else "",
            "time budget": f"{spec.budget:g} s" if spec.budget else "",
        }
        by_run.append(facts_of_run)
    facts = {name: [of_run[name] for of_run in by_run] for name in by_run[0]}
    # A fact that a run did not record is an empty text.
    differing = {name: texts for name, texts in facts.items() if len({*texts} - {""}) > 1}
    same = [name for name, texts in facts.items() if name not in differing and all(texts)]
    alike = wording.join_names(same)
    notes = [f"The runs recorded nothing in which they differ: {alike} are the same."]
    if differing:
        together = " A difference in speed has all these causes together." if len(differing) > 1 else ""
        notes = [f"The runs differ in {wording.join_names(differing)}.{together}"]
        notes += [f"The same in all: {alike}."] if alike else []
    notes.append("Speed-up and efficiency of a series are relative to the 1-device point of its own run.")
    dates = [(provenance.date or "")[:16].replace("T", " ") for provenance in provenances]
    rows = []
    for name, texts in {**differing, "measured": dates}.items():
        rows.append((name, *(text or MISSING for text in texts)))
    header = ("", *(run.label for run in runs))
    columns = tuple(range(len(header)))
    return Grid("What differs between the runs", header, tuple(rows), " ".join(notes), left=columns)


def _join(texts: Iterable[str | None]) -> str:
    """Return different texts in a fixed order; numbers ascend."""

    def order(text: str) -> tuple[int, str]:
        return len(text.split()[0]) if text[:1].isdigit() else 0, text

    return ", ".join(sorted({text for text in texts if text}, key=order))


# ---- training to an accuracy, as Keras-MXNet and MXNet have it


def make_epoch_grids(all_series: Sequence[Series], most: int | None = None) -> list[Grid]:
    """Return a grid for each point that learns, of at most ``most`` epochs."""
    grids = []
    points = [(series.title, point) for series in all_series for point in series.points]
    for title, point in points:
        learned = point.learning
        if learned is None:
            continue
        shown = epochs = learned.epochs
        if most is not None and len(epochs) > most:
            steps = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)
            interval = next((step for step in steps if len(epochs) / step <= most - 1), len(epochs))
            shown = tuple(epoch for epoch in epochs[:-1] if epoch.epoch % interval == 0)
            shown = (*shown, epochs[-1])
        rows = []
        for epoch in shown:
            accuracies = f"{epoch.train_accuracy.mean:.6f}", f"{epoch.valid_accuracy.mean:.6f}"
            rows.append((str(epoch.epoch), *accuracies, f"{epoch.seconds.mean:.1f}"))
        notes = ["Time: seconds of training, without validation."]
        if point.repeats > 1:
            notes.append(f"Means of {point.repeats} repeats.")
        if target := learned.to_accuracy:
            missed = target.repeats - target.reached
            often = f" in {missed} of {target.repeats} repeats" if target.repeats > 1 else ""
            text = f"An accuracy of {target.target:g} was not reached{often}."
            if target.seconds and target.epochs is not None:
                seconds = numbers.format_duration(target.seconds.mean)
                epochs_to = f"{target.epochs:g} epoch{'' if target.epochs == 1 else 's'}"
                text = f"Time to accuracy {target.target:g}: {seconds} of training, {epochs_to}."
            notes.append(text)
        if len(shown) < len(epochs):
            notes.append(f"{len(shown)} of {len(epochs)} epochs; all are in report.md.")
        title = f"{title} on {wording.format_devices_and_hosts(point)}"
        header = ("epoch", "train accuracy", "valid accuracy", "time")
        grids.append(Grid(title, header, tuple(rows), " ".join(notes), left=()))
    return grids


def make_device_grids(all_series: Sequence[Series]) -> list[Grid]:
    """Return a grid for each series that learns."""
    grids = []
    for series in (series for series in all_series if series.learns):
        kind = "GPU" if series.config.device == "cuda" else "CPU"
        target = next((point.learning.to_accuracy for point in series.points if point.learning), None)
        names = [*_ROWS, *([f"Time to accuracy {target.target:g} (secs)"] if target else [])]
        columns, memory_sources, failed = [], list[str](), []
        for point in series.points:
            learning = point.learning
            if not point.ok:
                failed.append(f"{kind} ({point.devices}): {wording.name_status(point.status)}.")
            if learning is None or point.samples_per_second is None:
                columns.append([MISSING] * len(names))
                continue
            counted = next((name for name in _MEMORY if getattr(point, name) is not None), None)
            if counted:
                memory_sources.append(_MEMORY[counted])
            columns.append(
                [
                    f"{learning.training_seconds.mean:.2f}",
                    f"{learning.epoch_seconds.mean:.2f}",
                    f"{point.samples_per_second.mean:.2f}",
                    format_accuracy(learning.train_accuracy),
                    format_accuracy(learning.valid_accuracy),
                    f"{getattr(point, counted) / 1024**2:.0f}" if counted else MISSING,
                ]
            )
            if target:
                seconds = point.seconds_to_accuracy
                columns[-1].append(f"{seconds.mean:.2f}" if seconds else "not reached")
        repeats = max(point.repeats for point in series.points)
        notes = [f"Means of {repeats} repeats."] if repeats > 1 else []
        if memory_sources:
            sources = wording.join_names(dict.fromkeys(memory_sources))
            notes.append(f"Memory: MiB of all workers together, {sources}.")
        header = ("", *(f"{kind} ({point.devices})" for point in series.points))
        rows = tuple(zip(names, *columns, strict=True))
        grids.append(Grid(series.title, header, rows, " ".join([*notes, *failed])))
    if grids:
        notes = [grids[-1].note, *wording.list_parts("note_on_training_time")]
        grids[-1] = replace(grids[-1], note=" ".join(notes).strip())
    return grids


def make_system_grids(run: Run) -> list[Grid]:
    """Return MXNet's tables of systems."""
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for series in run.series:
        config = series.config
        if series.learns:
            groups.setdefault((config.model, config.data, config.framework), []).append(series)
    cluster = ", ".join(row[0] for row in make_machines_grid(run.info).rows)
    grids = []
    for (model, data, framework), group in groups.items():
        rows = []
        for series in group:
            for point in series.points:
                time = wording.name_status(point.status)
                if point.learning:
                    time = f"{point.learning.epoch_seconds.mean:.1f}"
                counts = map(str, (point.hosts, point.devices, point.batch_per_device))
                rows.append((cluster, *counts, series.config.strategy_label, time))
        kind = "# GPUs" if all(series.config.device == "cuda" for series in group) else "# devices"
        title = f"{find_model_title(model)} on {wording.format_data_name(data)} with {framework}"
        header = ("cluster", "# machines", kind, "batch size / device", "strategy", "epoch time (sec)")
        note = "Epoch time: mean over the epochs, without validation."
        grids.append(Grid(run.add_label(title), header, tuple(rows), note, left=(0, 4)))
    return grids


# ---- a search: which candidates left, when and why


def make_search_grids(run: Run) -> list[Grid]:
    grids = []
    for race in replay_races_of_run(run.info, run.records, run.parity):
        parts = describe_differences(race.configs)
        at_same_devices = [r for r in run.records if r.trial.short and r.trial.devices == race.devices]
        short = [record for record in at_same_devices if record.trial.config in parts]
        speeds = {}
        for config in race.configs:
            speeds[config] = list_speeds(r for r in short if r.trial.config == config)
        departures = [*reversed(race.departures), *race.not_started]
        fates = {departure.key: describe_departure(departure) for departure in departures}
        for config in race.running:
            fates[config] = "not separated from the winner by noise"
            if race.waiting:
                fates[config] = f"in round {race.round}"
            elif len(race.configs) == 1:
                fates[config] = "the only candidate"
            elif config == race.winner:
                fates[config] = "the winner, measured in full"
        order = [*race.running, *(departure.key for departure in departures)]
        order.sort(key=lambda config: (config not in race.running, -max(speeds[config], default=0.0)))
        rows = []
        for config in order:
            own = [config.framework, config.strategy_label]
            name = " · ".join([*own, *(part for part in parts[config] if part not in own)])
            interval = mean_interval(speeds[config], sequential=True) if speeds[config] else None
            speed = numbers.format_mean(interval), numbers.format_plus_minus(interval)
            rows.append((name, str(len(speeds[config])), *speed, fates[config]))
        network = find_model_title(race.configs[0].model)
        title = f"Search: {network} on {wording.format_device_count(race.devices)}"
        unit = short[0].unit if short else IMAGES
        header = ("candidate", "trials", f"{unit}/s", "±", "what became of it")
        grids.append(Grid(run.add_label(title), header, tuple(rows), left=(0, 4)))
    if grids:
        grids[-1] = replace(grids[-1], note=" ".join(wording.list_parts("note_on_search")))
    return grids


def describe_departure(departure: Departure) -> str:
    if departure.ratio is None:
        return departure.reason
    ratio = numbers.format_with_limits(departure.ratio)
    return f"after round {departure.round}: {departure.reason}, {ratio} of its speed"
