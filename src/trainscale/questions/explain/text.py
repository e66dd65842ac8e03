"""An explanation in words: text of 100 columns, Markdown, JSON.

The sentence on a cause has one form: its share of the step is what it is; what would help, with the efficiency then.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyse.checks import OTHER_CORES
from ...analyse.statistics import Interval
from ...analyse.titles import find_model_title
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...report import table
from ...report.numbers import (
    THIN,
    format_duration,
    format_integer,
    format_number,
    format_percent,
)
from ...report.table import Grid, escape
from ...report.wording import join_names
from ...spec.config import STRONG
from ...worker.data.facts import SYNTHETIC
from ...worker.frameworks.catalog import FRAMEWORKS
from ..documents import pick
from ..documents import render_json as encode_json
from . import causes, explain
from .causes import COMMUNICATION, CONTENTION, ExplainedPart
from .explain import PointExplanation, explain_records

if TYPE_CHECKING:
    from .ranks import LimitedGpu

COLUMNS = 100
_BAR = 30  # characters of 100 %
_MEASURES = "This command measures what is missing:"
_NARROW = 0.005  # whole per cents would show less than this as 0
_SAME_CLOCK = 0.98  # of the other clock
_MOST_GPUS = 4  # more limited GPUs than these are described together
# In windows of 0.2 s a missing core looked like a slow exchange (docs/method.md, planted causes), unless CPU time told.
_SHORT_WINDOW_SECONDS = 0.5


# ---- numbers


def format_share(interval: Interval) -> str:
    """Format a share with half its interval in points: 31 ± 3 %, 24.4 ± 0.3 %.

    Beyond 100 % its limits are shown instead: 89 (68–100) %.
    """
    half = interval.half_width
    if half is not None and interval.mean + half > 1 >= interval.mean:
        return f"{interval.mean * 100:.0f}{THIN}({(interval.low or 0.0) * 100:.0f}–100){THIN}%".replace("-", "−")
    decimals = 1 if half is not None and half < _NARROW else 0
    mean = f"{interval.mean * 100:.{decimals}f}".replace("-", "−")
    return f"{mean}{THIN}%" if half is None else f"{mean}{THIN}±{THIN}{half * 100:.{decimals}f}{THIN}%"


def format_limits(part: ExplainedPart) -> str:
    """Format the interval of a part in per cent: (24 … 30). Empty where there is none."""
    low, high = part.measured.low, part.measured.high
    if low is None or high is None:
        return ""
    return f"({low * 100:.0f} … {high * 100:.0f})".replace("-", "−")


def round_to_percents(parts: Sequence[ExplainedPart]) -> list[int]:
    """Return whole percentages that add up to 100: the largest remainders are rounded up."""
    exact = [part.share * 100 for part in parts]
    floors = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: floors[index] - exact[index])
    for index in by_remainder[: 100 - sum(floors)]:
        floors[index] += 1
    return floors


def format_milliseconds(seconds: float) -> str:
    return f"{format_number(seconds * 1000, 3)}{THIN}ms"


def _format_bytes(count: float) -> str:
    """Format bytes in decimal units, as rates of networks are: 244 MB, 1.2 MB, 1.1 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{format_number(count / size, 3 if count >= 100 * size else 2)}{THIN}{unit}"
    return f"{count:.0f}{THIN}B"


def _format_mhz(value: float) -> str:
    return f"{format_integer(round(value))}{THIN}MHz"


# ---- the verdict


def list_closing_verdicts(run: RunInfo, records: Sequence[TrialRecord]) -> list[str]:
    """Return the verdict on the largest point of every series, with which a run ends.

    A search and a training to an accuracy have none.
    """
    if run.is_search or any(record.epochs for record in records):
        return []
    largest: dict[str, PointExplanation] = {}
    for point in explain_records(records):
        if point.loss is not None and point.verdict != explain.UNKNOWN:
            largest[point.title] = point  # device counts ascend
    has_several = len(largest) > 1
    return [f"{describe_verdict(point, with_title=has_several)}." for point in largest.values()]


def describe_verdict(point: PointExplanation, with_title: bool = False) -> str:
    """Name the cause, the evidence and what would help, without the last full stop.

    The subject is the network, or ``with_title`` the series.
    """
    subject = f"{point.title if with_title else find_model_title(point.config.model)} on {point.devices} devices"
    if point.loss is None or point.verdict == explain.UNKNOWN:
        missing = join_names(point.missing or ("one device",))
        shares = ", ".join(f"{format_percent(part.share)} is {part.part}" for part in point.parts)
        cause = f". {_describe_cause(point)}" if point.verdict == explain.SLOW_RANK else ""
        return f"{subject}: the work alone is not known, because {missing} was not measured; {shares}{cause}"
    if point.loss.mean < 0:
        faster = format_percent(-point.loss.mean)
        return f"{subject} loses nothing: it is {faster} faster than one device. Suspect the one-device point"
    # The efficiency of servers is relative to one worker that exchanges gradients with them, too.
    against = " against one device without servers" if point.config.servers and not point.missing else ""
    return f"{subject} loses {format_share(point.loss)}{against}: {_describe_cause(point)}"


def _describe_cause(point: PointExplanation) -> str:
    main = point.main
    if main is None or point.verdict in (explain.NOTHING, causes.WORK):
        return "nothing stands out, the efficiency is high"
    without = f"without it the efficiency would be {_say_efficiency(point, main.seconds)}"
    match point.verdict:
        case explain.NOISE:
            largest = f"the largest is {main.part} with {format_share(main.measured)}"
            return f"no part of it is larger than chance; {largest}. More repeats would tell"
        case explain.TOO_SMALL:
            return _describe_too_small_work(point, main)
        case causes.CONTENTION:
            what, remedy = _describe_contention(point), without
        case explain.SLOW_RANK:
            what, remedy = _describe_slow_rank(point), without
            if point.work_seconds is None:
                remedy = f"without it a step would take {_say_efficiency(point, main.seconds)}"
        case causes.STRAGGLERS:
            what = "waiting for the slowest rank of each step. No rank is always the slowest: their step times vary"
            remedy = f"steady ranks would give {_say_efficiency(point, main.seconds)}"
        case causes.COMMUNICATION:
            what, remedy = _describe_communication(point, main)
        case causes.SERVERS:
            exchange = point.exchange
            servers = exchange.servers if exchange else 1
            need = f"{servers} parameter servers need" if servers > 1 else f"{servers} parameter server needs"
            what = f"what {need} for {point.devices} workers beyond one"
            if exchange:
                held = exchange.server_bytes or exchange.bytes // max(1, servers)
                moved = _format_bytes(held * point.devices)
                what += f": the busiest holds {_format_bytes(held)}, and takes and gives {moved} a step"
            remedy = f"twice as many servers would give up to {_say_efficiency(point, main.seconds / 2)}"
        case causes.CROSSING:
            within = sum(part.seconds for part in point.parts if part.causes == (COMMUNICATION,))
            on_one, across = format_milliseconds(within), format_milliseconds(within + main.seconds)
            what = f"what crossing hosts adds to the exchange: {across} a step, {on_one} if it stayed on one"
            remedy = f"links as fast as those within a host would give {_say_efficiency(point, main.seconds)}"
        case causes.INPUT:
            waits = point.waited_share or 0.0
            what = f"input: the ranks wait for samples {format_percent(waits)} of the time"
            if main.share > 2 * waits:
                what += ", the rest is preparing and placing them, which takes cores from training"
            best = _say_efficiency(point, main.seconds)
            remedy = f"more --loaders, a faster disk or smaller images would help, up to {best}"
        case _:  # causes that the records do not separate
            return f"{format_percent(main.share)} is {main.part}"
    return f"{format_percent(main.share)} is {what}; {remedy}"


def _say_efficiency(point: PointExplanation, less_seconds: float) -> str:
    """Return the efficiency after saving seconds; where work is unknown, the time of the step."""
    step = max(0.0, point.step_seconds - less_seconds)
    if point.work_seconds is None:
        return format_milliseconds(step)
    return format_percent(min(1.0, point.work_seconds / max(step, point.work_seconds)))


def _describe_contention(point: PointExplanation) -> str:
    text = "contention: the ranks slow each other down though they exchange nothing"
    cores = point.config.cores_per_device
    if point.config.device == "cpu" and point.core_share is not None:
        from .ranks import FULL_CORE

        got = point.core_share / cores
        if got < FULL_CORE:
            others_ran = point.other_cores > OTHER_CORES
            reason = "because other programs ran there, too" if others_ran else "so they share cores"
            text += f". Each of them got {format_number(got, 2)} of its core{'s' if cores > 1 else ''}, {reason}"
        else:
            text += ". They have their cores to themselves, so they share memory bandwidth, caches or clock"
    if clocks := point.gpu_clocks:
        together, alone = _format_mhz(clocks.together_mhz), _format_mhz(clocks.alone_mhz)
        text += f". Their GPUs ran at {together} on average, one alone at {alone}"
        if clocks.together_mhz >= _SAME_CLOCK * clocks.alone_mhz:
            text += ", so it is not the clock"
    return text


def _describe_slow_rank(point: PointExplanation) -> str:
    from . import ranks

    slow, further = point.slow_ranks[0], len(point.slow_ranks) - 1
    others = f" (and {further} more slow rank{'s' if further > 1 else ''})" if further else ""
    text = f"waiting for rank {slow.rank} on {slow.host or 'its host'}{others}, "
    if slow.has_longer_steps:
        start = "from the start of the window"
        if slow.since_step is not None and slow.since_seconds is not None:
            after = format_duration(slow.since_seconds)
            start = f"since step {slow.since_step} of the window ({after} after its start)"
        text += f"whose steps take {format_number(slow.factor, 2)} times as long as those of the others, {start}"
    else:
        text += "which does not get its core whole"
    if point.config.device == "cuda" and slow.gpu_mhz is not None and slow.others_gpu_mhz is not None:
        own, others = _format_mhz(slow.gpu_mhz), _format_mhz(slow.others_gpu_mhz)
        if slow.reason != ranks.SLOW_CLOCK:
            return f"{text}. Its GPU ran at {own} and those of the others at {others}, so it is not the clock"
        clock = _describe_limit(slow.limited_gpu) if slow.limited_gpu else own
        return f"{text}. Its GPU ran at {clock}, those of the others at {others}"
    if point.config.device == "cpu" and slow.core_share is not None and slow.others_core_share is not None:
        if slow.reason == ranks.SLOW_DEVICE:
            return f"{text}. It had its core like the others, so the core itself is slower (clock, memory)"
        got, others_got = (
            format_number(share / point.config.cores_per_device, 2)
            for share in (slow.core_share, slow.others_core_share)
        )
        text += f". It got {got} of its core, the others {others_got}"
        if slow.reason == ranks.ANOTHER_PROGRAM:
            waited = format_percent(slow.core_wait_share)
            text += f", and was ready to run {waited} of the time without getting it: another program runs there"
        elif slow.reason == ranks.LIMIT:
            text += ", and was not ready to run meanwhile: a limit or a signal stops it"
    return text


def _describe_communication(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    exchange = point.exchange
    twice_as_fast = f"one that is twice as fast would give {_say_efficiency(point, main.seconds / 2)}"
    if exchange is None:
        return "the exchange of gradients", twice_as_fast
    text = f"the exchange of {_format_bytes(exchange.bytes)} a step"
    hidden_share = (exchange.hidden_seconds or 0.0) / point.step_seconds
    if hidden_share >= _NARROW:
        text += f", of which another {format_percent(hidden_share)} hides behind computing"
    rate, bound = exchange.bytes_per_second, ""
    if rate is None:  # the least that explains what is exposed
        rate, bound = exchange.bytes / exchange.exposed_seconds if exchange.exposed_seconds else 0.0, " or more"
    remedy = _advise_batch(point) or twice_as_fast + _name_equal_batch(point)
    return text, f"at {_format_bytes(rate)}/s{bound} between these processes {remedy}"


def _describe_too_small_work(point: PointExplanation, main: ExplainedPart) -> str:
    assert point.work_seconds is not None
    assert point.exchange is not None
    work, lost = format_milliseconds(point.work_seconds), format_milliseconds(main.seconds)
    text = f"the work is too small to scale. A step computes for {work} and loses {lost} to {main.part}"
    good = point.exchange.estimate_seconds_on_good_network(point.devices)
    if good < main.seconds:
        exchange = f"the exchange of {_format_bytes(point.exchange.bytes)}"
        text += f"; even at 10 Gbit/s {exchange} would take {format_milliseconds(good)}"
    return f"{text}; {advice}" if (advice := _advise_batch(point)) else text + _name_equal_batch(point)


def _advise_batch(point: PointExplanation) -> str:
    if point.advice is None:
        return ""
    is_assumed = point.advice.measured_batches == 1
    assumption = " (if a step takes as much longer as its batch is larger)" if is_assumed else ""
    return f"a batch of {point.advice.batch} would reach {format_percent(point.advice.efficiency)}{assumption}"


def _name_equal_batch(point: PointExplanation) -> str:
    if point.equal_batch is None:
        return ""
    framework = FRAMEWORKS.get(point.config.framework)
    can_compile = framework is not None and framework.compiles and not point.config.compile
    batch = point.config.batch_per_device(point.devices)
    remedy = "--compile or a larger batch" if can_compile else "a larger batch"
    return f". A batch of {point.equal_batch} takes as long as one of {batch}: try {remedy}"


# ---- notes


def list_notes(point: PointExplanation) -> list[str]:
    notes = []
    if point.missing:
        notes.append(f"not measured: {join_names(point.missing)}")
    if point.has_few_repeats:
        notes.append("a point was measured once or twice only, so the parts have no intervals; --repeats 5 gives them")
    if point.other_cores > OTHER_CORES:
        cores = format_number(point.other_cores, 2)
        notes.append(f"other programs used {cores} cores meanwhile, so a part of it may be theirs")
    window = point.shortest_window_seconds
    has_cores = point.config.device == "cpu" and point.config.data == SYNTHETIC  # whose CPU time tells
    if window and window < _SHORT_WINDOW_SECONDS and not (has_cores and point.core_share is not None):
        steps = int(float(f"{point.steps / window:.1e}"))  # of about a second, to two digits
        too_short = "too short to tell late ranks from a slow exchange"
        notes.append(f"the shortest windows took {format_number(window, 2)} s, {too_short}; use --steps {steps}")
    gpus = point.limited_gpus
    if len(gpus) > _MOST_GPUS:
        slowest, fastest = gpus[0], gpus[-1]
        reasons = ", ".join(dict.fromkeys(reason for gpu in gpus for reason in gpu.reasons)) or "an unknown reason"
        notes.append(
            f"the GPUs of {len(gpus)} of {point.devices} ranks ran below their highest clock of"
            f" {_format_mhz(slowest.highest_mhz)}, from {_format_mhz(slowest.mhz)} (rank {slowest.rank} on"
            f" {slowest.host or 'its host'}) to {_format_mhz(fastest.mhz)}; limited by {reasons}"
        )
    else:
        notes += [
            f"the GPU of rank {gpu.rank} on {gpu.host or 'its host'} ran at {_describe_limit(gpu)}" for gpu in gpus
        ]
    for part in point.parts:
        if part.is_impossible:
            suspect = " (was the machine busy while one device was measured?)" if CONTENTION in part.causes else ""
            measured = format_share(part.measured)
            notes.append(f"{part.part} was measured as {measured}, which cannot be: it is shown as 0{suspect}")
    if point.config.scaling == STRONG and not point.missing:
        notes.append("under strong scaling, contention includes that smaller batches are computed less efficiently")
    return notes


def _describe_limit(gpu: LimitedGpu) -> str:
    return (
        f"{_format_mhz(gpu.mhz)} of {format_integer(round(gpu.highest_mhz))}"
        f" ({', '.join(gpu.reasons) or 'an unknown reason'} in {format_percent(gpu.limited_share)} of the window)"
    )


# ---- documents


def render_text(points: Sequence[PointExplanation], command: str) -> str:
    lines: list[str] = []
    for number, point in enumerate(points):
        if number == 0 or point.title != points[number - 1].title:
            lines += [*([""] if number else []), point.title]
        lines.append(f"  {_describe_point(point)}")
        width = max(len(part.part) for part in point.parts)
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
            start = f"    {part.part:<{width}} {percentage:>4}{THIN}%  {format_limits(part):>12}  "
            bar = "█" * round(part.share * min(_BAR, COLUMNS - len(start)))
            lines.append(f"{start}{bar}".rstrip())
        wrapper = textwrap.TextWrapper(
            COLUMNS, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        for text in (f"{describe_verdict(point)}.", *(f"note: {note}" for note in list_notes(point))):
            lines += wrapper.wrap(text)
    if any(point.missing for point in points):
        lines += ["", _MEASURES, f"  {command}"]
    return "\n".join(lines) + "\n"


def _describe_point(point: PointExplanation) -> str:
    hosts = f" on {point.hosts} hosts" if point.hosts > 1 else ""
    repeats = f"{point.repeats} repeat{'s' if point.repeats != 1 else ''}"
    return f"{point.devices} devices{hosts}, {repeats}, {format_milliseconds(point.step_seconds)} a step"


def _make_grid(point: PointExplanation) -> Grid:
    rows = tuple(
        (part.part, f"{percentage}{THIN}%", format_limits(part), f"{part.seconds * 1000:.2f}")
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True)
    )
    return Grid(point.title, ("part", "share", "interval", "ms of a step"), rows)


def render_markdown(points: Sequence[PointExplanation], command: str) -> str:
    blocks, title = [], None
    for point in points:
        if point.title != title:
            title = point.title
            blocks.append(f"## {escape(title)}\n")
        blocks.append(f"### {_describe_point(point)}\n\n{table.render_markdown(_make_grid(point))}")
        blocks.append(escape(describe_verdict(point)) + ".\n")
        blocks += [f"- {escape(note)}" for note in list_notes(point)]
    if any(point.missing for point in points):
        blocks.append(f"\n{_MEASURES}\n\n    {command}")
    return "\n".join(blocks)


def render_json(points: Sequence[PointExplanation], command: str) -> str:
    encoded = []
    for point in points:
        parts = [pick(part, "share measured seconds causes") for part in point.parts]
        main = point.main.causes if point.main else None
        sentences = {"sentence": describe_verdict(point), "notes": list_notes(point)}
        own = {**vars(point), **pick(point, "config")}
        encoded.append({**own, "main": main, "parts": parts, **sentences})
    missing = command if any(point.missing for point in points) else None
    return encode_json({"schema": 1, "points": encoded, "command_for_missing": missing})
