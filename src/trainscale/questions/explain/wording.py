"""What an explanation says in sentences: the verdict of a point with its evidence and what would help, and its notes.

The sentence on a cause has one form: its share of the step is what it is; what would help, with the efficiency then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...analyse.checks import OTHER_CORES
from ...analyse.statistics import Interval
from ...analyse.titles import find_model_title
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...report.numbers import (
    THIN,
    format_duration,
    format_integer,
    format_percent,
    format_seconds,
    format_significant,
)
from ...report.wording import join_names
from ...spec.config import STRONG
from ...worker.frameworks.catalog import FRAMEWORKS
from . import explain
from .causes import COMMUNICATION, CONTENTION, CROSSING, INPUT, SERVERS, STRAGGLERS, WORK, ExplainedPart
from .explain import PointExplanation, explain_records
from .sources import FULL_CORE, has_comparable_cores

if TYPE_CHECKING:
    from .ranks import LimitedGpu

_NARROW = 0.005  # whole per cents would show less than this as 0
_SAME_CLOCK = 0.98  # of the other clock
_MOST_GPUS = 4  # more limited GPUs than these are described together
# In windows of 0.2 s the step times of a rank that lacked its core looked like a slow exchange (docs/method.md, planted
# causes). The CPU time of ranks tells the two apart, where it can be compared.
_SHORT_WINDOW_SECONDS = 0.5


def list_closing_verdicts(run: RunInfo, records: Sequence[TrialRecord]) -> list[str]:
    """Return a sentence for every series that can be explained, about its largest point: a run ends with them.

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
    """Return one sentence, or two, that name the cause, the evidence and what would help. The last has no full stop.

    Its subject is the network, or ``with_title`` the series, which tells it from others of the same network.
    """
    subject = f"{point.title if with_title else find_model_title(point.config.model)} on {point.devices} devices"
    if point.loss is None or point.verdict == explain.UNKNOWN:
        missing = join_names(point.missing or ("one device",))
        shares = ", ".join(f"{format_percent(part.share)} is {part.part}" for part in point.parts)
        cause = f". {_describe_cause(point)}" if point.verdict == explain.SLOW_RANK else ""
        return f"{subject}: the work alone is not known, because {missing} was not measured; {shares}{cause}"
    if point.loss.mean < 0:
        return (
            f"{subject} loses nothing: it is {format_percent(-point.loss.mean)} faster than one device. Suspect the"
            " one-device point"
        )
    # The efficiency of servers is relative to one worker that exchanges gradients with them, too.
    against = " against one device without servers" if point.config.servers and not point.missing else ""
    return f"{subject} loses {format_share(point.loss)}{against}: {_describe_cause(point)}"


def format_share(interval: Interval) -> str:
    """Format a share with half its interval in percentage points: 31 ± 3 %, 24.4 ± 0.3 %.

    As ± a wide interval would reach beyond 100 %: its limits are shown, 89 (68–100) %.
    """
    half = interval.half_width
    if half is not None and interval.mean + half > 1 >= interval.mean:
        return f"{interval.mean * 100:.0f}{THIN}({(interval.low or 0.0) * 100:.0f}–100){THIN}%".replace("-", "−")
    decimals = 1 if half is not None and half < _NARROW else 0
    mean = f"{interval.mean * 100:.{decimals}f}".replace("-", "−")
    return f"{mean}{THIN}%" if half is None else f"{mean}{THIN}±{THIN}{half * 100:.{decimals}f}{THIN}%"


def format_milliseconds(seconds: float) -> str:
    return f"{format_significant(seconds * 1000, 3)}{THIN}ms"


def format_megabytes(count: float) -> str:
    """Format bytes in decimal units, as rates of networks are: 244 MB, 1.2 MB, 1.1 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{format_significant(count / size, 3 if count >= 100 * size else 2)}{THIN}{unit}"
    return f"{count:.0f}{THIN}B"


def _describe_cause(point: PointExplanation) -> str:
    main = point.main
    if main is None or point.verdict in (explain.NOTHING, WORK):
        return "nothing stands out, the efficiency is high"
    if point.verdict == explain.NOISE:
        return (
            f"no part of it is larger than chance; the largest is {main.part} with {format_share(main.measured)}."
            " More repeats would tell"
        )
    if point.verdict == explain.TOO_SMALL:
        return _describe_too_small_work(point, main)
    what, remedy = _CAUSES[point.verdict](point, main) if point.verdict != explain.TOGETHER else (main.part, "")
    return f"{format_percent(main.share)} is {what}" + (f"; {remedy}" if remedy else "")


def _say_efficiency(point: PointExplanation, less_seconds: float) -> str:
    """Return the efficiency if a step took that much less; where the work is not known, the time of the step."""
    step = max(0.0, point.step_seconds - less_seconds)
    if point.work_seconds is None:
        return format_milliseconds(step)
    return format_percent(min(1.0, point.work_seconds / max(step, point.work_seconds)))


# ---- what a cause is, and what would help


def _describe_contention(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    text = "contention: the ranks slow each other down though they exchange nothing"
    cores = point.config.cores_per_device
    if point.config.device == "cpu" and point.core_share is not None:
        got = point.core_share / cores
        if got < FULL_CORE:
            others_ran = point.other_cores > OTHER_CORES
            reason = "because other programs ran there, too" if others_ran else "so they share cores"
            text += f". Each of them got {format_significant(got, 2)} of its core{'s' if cores > 1 else ''}, {reason}"
        else:
            text += ". They have their cores to themselves, so they share memory bandwidth, caches or clock"
    if clocks := point.gpu_clocks:
        together, alone = _format_mhz(clocks.together_mhz), _format_mhz(clocks.alone_mhz)
        text += f". Their GPUs ran at {together} on average, one alone at {alone}"
        if clocks.together_mhz >= _SAME_CLOCK * clocks.alone_mhz:
            text += ", so it is not the clock"
    return text, f"without it the efficiency would be {_say_efficiency(point, main.seconds)}"


def _describe_slow_rank(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    slow, further = point.slow_ranks[0], len(point.slow_ranks) - 1
    others = f" (and {further} more slow rank{'s' if further > 1 else ''})" if further else ""
    text = f"waiting for rank {slow.rank} on {slow.host or 'its host'}{others}, "
    if slow.has_longer_steps:
        start = "from the start of the window"
        if slow.since_step is not None and slow.since_seconds is not None:
            start = (
                f"since step {slow.since_step} of the window ({format_duration(slow.since_seconds)} after its start)"
            )
        text += f"whose steps take {format_significant(slow.factor, 2)} times as long as those of the others, {start}"
    else:
        text += "which does not get its core whole"
    text += _explain_slow_gpu(point) if point.config.device == "cuda" else _explain_slow_core(point)
    subject = "a step would take" if point.work_seconds is None else "the efficiency would be"
    return text, f"without it {subject} {_say_efficiency(point, main.seconds)}"


def _explain_slow_core(point: PointExplanation) -> str:
    """Say whether the slowest rank lacked its core, and whether another program had it."""
    from . import ranks

    slow = point.slow_ranks[0]
    if point.config.device != "cpu" or slow.core_share is None or slow.others_core_share is None:
        return ""
    if slow.reason == ranks.SLOW_DEVICE:
        return ". It had its core like the others, so the core itself is slower (clock, memory)"
    got, others = (value / point.config.cores_per_device for value in (slow.core_share, slow.others_core_share))
    text = f". It got {format_significant(got, 2)} of its core, the others {format_significant(others, 2)}"
    if slow.reason is None:
        return text
    if slow.reason == ranks.ANOTHER_PROGRAM:
        waited = format_percent(slow.core_wait_share)
        return f"{text}, and was ready to run {waited} of the time without getting it: another program runs there"
    return f"{text}, and was not ready to run meanwhile: a limit or a signal stops it"


def _explain_slow_gpu(point: PointExplanation) -> str:
    """Say whether the clock of its GPU explains that the slowest rank is slow."""
    from . import ranks

    slow = point.slow_ranks[0]
    if slow.gpu_mhz is None or slow.others_gpu_mhz is None:
        return ""
    own, others = _format_mhz(slow.gpu_mhz), _format_mhz(slow.others_gpu_mhz)
    if slow.reason != ranks.SLOW_CLOCK:
        return f". Its GPU ran at {own} and those of the others at {others}, so it is not the clock"
    clock = _describe_limit(slow.limited_gpu) if slow.limited_gpu else own
    return f". Its GPU ran at {clock}, those of the others at {others}"


def _describe_stragglers(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    return (
        "waiting for the slowest rank of each step. No rank is always the slowest: their step times vary",
        f"steady ranks would give {_say_efficiency(point, main.seconds)}",
    )


def _describe_communication(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    exchange = point.exchange
    if exchange is None:
        twice = _say_efficiency(point, main.seconds / 2)
        return "the exchange of gradients", f"one that is twice as fast would give {twice}"
    text = f"the exchange of {format_megabytes(exchange.bytes)} a step"
    hidden_share = (exchange.hidden_seconds or 0.0) / point.step_seconds
    if hidden_share >= _NARROW:
        text += f", of which another {format_percent(hidden_share)} hides behind computing"
    rate, bound = exchange.bytes_per_second, ""
    if rate is None:  # the least that explains what is exposed: less than the links', where nothing hides
        rate, bound = exchange.bytes / exchange.exposed_seconds if exchange.exposed_seconds else 0.0, " or more"
    remedy = _advise_batch(point) or (
        f"one that is twice as fast would give {_say_efficiency(point, main.seconds / 2)}{_name_equal_batch(point)}"
    )
    return text, f"at {format_megabytes(rate)}/s{bound} between these processes {remedy}"


def _describe_servers(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    exchange = point.exchange
    servers = exchange.servers if exchange else 1
    text = (
        f"what {servers} parameter server{'s need' if servers > 1 else ' needs'} for {point.devices} workers beyond one"
    )
    if exchange:
        held = exchange.server_bytes or exchange.bytes // max(1, servers)
        moved = format_megabytes(held * point.devices)
        text += f": the busiest holds {format_megabytes(held)}, and takes and gives {moved} a step"
    return text, f"twice as many servers would give up to {_say_efficiency(point, main.seconds / 2)}"


def _describe_crossing(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    within = sum(part.seconds for part in point.parts if part.causes == (COMMUNICATION,))
    return (
        "what the exchange takes longer because it crosses hosts:"
        f" {format_milliseconds(within + main.seconds)} a step, and {format_milliseconds(within)} if it stayed on one",
        f"links as fast as those within a host would give {_say_efficiency(point, main.seconds)}",
    )


def _describe_input(point: PointExplanation, main: ExplainedPart) -> tuple[str, str]:
    waits = point.waited_share or 0.0
    text = f"input: the ranks wait for samples {format_percent(waits)} of the time"
    if main.share > 2 * waits:
        text += ", the rest is preparing and placing them, which takes cores from training"
    best = _say_efficiency(point, main.seconds)
    return text, f"more --loaders, a faster disk or smaller images would help, up to {best}"


_CAUSES: dict[str, Callable[[PointExplanation, ExplainedPart], tuple[str, str]]] = {
    CONTENTION: _describe_contention,
    explain.SLOW_RANK: _describe_slow_rank,
    STRAGGLERS: _describe_stragglers,
    COMMUNICATION: _describe_communication,
    SERVERS: _describe_servers,
    CROSSING: _describe_crossing,
    INPUT: _describe_input,
}


def _describe_too_small_work(point: PointExplanation, main: ExplainedPart) -> str:
    assert point.work_seconds is not None
    assert point.exchange is not None
    good = point.exchange.estimate_seconds_on_good_network(point.devices)
    is_exchange = main.causes == (COMMUNICATION,)
    exchange = f"the exchange of {format_megabytes(point.exchange.bytes)}"
    text = (
        f"the work is too small to scale. A step computes for {format_milliseconds(point.work_seconds)}, and"
        f" {f'{exchange} takes' if is_exchange else f'{main.part} take'} {format_milliseconds(main.seconds)}"
    )
    if good < main.seconds:
        text += f"; even at 10 Gbit/s {'it' if is_exchange else exchange} would take {format_milliseconds(good)}"
    advice = _advise_batch(point, "From a batch of {} on it would reach")
    return f"{text}. {advice}" if advice else text + _name_equal_batch(point)


def _advise_batch(point: PointExplanation, form: str = "a batch of {} would reach") -> str:
    if point.advice is None:
        return ""
    is_assumed = point.advice.measured_batches == 1
    assumption = " (if a step takes as much longer as its batch is larger)" if is_assumed else ""
    return f"{form.format(point.advice.batch)} {format_percent(point.advice.efficiency)}{assumption}"


def _name_equal_batch(point: PointExplanation) -> str:
    """Say that a larger batch costs nothing, where a smaller one takes as long."""
    if point.equal_batch is None:
        return ""
    framework = FRAMEWORKS.get(point.config.framework)
    can_compile = framework is not None and framework.compiles and not point.config.compile
    batch = point.config.batch_per_device(point.devices)
    return (
        f". A batch of {point.equal_batch} takes as long as one of {batch}, so it is not the samples that take the time"
        f" of a step: try {'--compile or a larger batch' if can_compile else 'a larger batch'}"
    )


# ---- notes


def list_notes(point: PointExplanation) -> list[str]:
    """Return what limits the answer: causes that are not separated, missing repeats, impossible values."""
    notes = []
    if point.missing:
        notes.append(f"not measured: {join_names(point.missing)}")
    if point.has_few_repeats:
        notes.append("a point was measured once or twice only, so the parts have no intervals; --repeats 5 gives them")
    if point.other_cores > OTHER_CORES:
        notes.append(
            f"other programs used {format_significant(point.other_cores, 2)} cores while this was measured, so a part"
            " of it may be theirs; an idle machine would tell"
        )
    window = point.shortest_window_seconds
    tells_cores = has_comparable_cores(point.config) and point.core_share is not None
    if window and window < _SHORT_WINDOW_SECONDS and not tells_cores:
        steps = int(float(f"{point.steps / window:.1e}"))  # of about a second, to two digits
        notes.append(
            f"the shortest windows took {format_seconds(window)} s, too short to tell late ranks from a slow exchange;"
            f" --steps {steps} makes them a second long"
        )
    notes += _describe_limited_gpus(point)
    for part in point.parts:
        if part.is_impossible:
            suspect = " (the one-device trials were slower than those of several devices: was the machine busy?)"
            notes.append(
                f"{part.part} was measured as {format_share(part.measured)}, which cannot be: it is shown as 0,"
                " and the points that it was computed from do not fit together"
                f"{suspect if CONTENTION in part.causes else ''}"
            )
    if point.config.scaling == STRONG and not point.missing:
        notes.append("under strong scaling, contention includes that smaller batches are computed less efficiently")
    return notes


def _describe_limited_gpus(point: PointExplanation) -> list[str]:
    """Return a line for every GPU whose clock was limited, or one for all if there are many."""
    gpus = point.limited_gpus
    if len(gpus) > _MOST_GPUS:
        slowest, fastest = gpus[0], gpus[-1]
        reasons = ", ".join(dict.fromkeys(reason for gpu in gpus for reason in gpu.reasons)) or "an unknown reason"
        return [
            f"the GPUs of {len(gpus)} of {point.devices} ranks ran below their highest clock of"
            f" {_format_mhz(slowest.highest_mhz)}, from {_format_mhz(slowest.mhz)} (rank {slowest.rank} on"
            f" {slowest.host or 'its host'}) to {_format_mhz(fastest.mhz)}; limited by {reasons}"
        ]
    return [f"the GPU of rank {gpu.rank} on {gpu.host or 'its host'} ran at {_describe_limit(gpu)}" for gpu in gpus]


def _describe_limit(gpu: LimitedGpu) -> str:
    return (
        f"{_format_mhz(gpu.mhz)} of {format_integer(round(gpu.highest_mhz))}"
        f" ({', '.join(gpu.reasons) or 'an unknown reason'} in {format_percent(gpu.limited_share)} of the window)"
    )


def _format_mhz(value: float) -> str:
    return f"{format_integer(round(value))}{THIN}MHz"
