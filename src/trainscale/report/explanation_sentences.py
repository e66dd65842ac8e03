"""What an explanation says in sentences: the verdict of a point, its evidence, and what would help, with a number."""

from __future__ import annotations

from collections.abc import Callable

from ..analyse.checks import OTHER_CORES
from ..analyse.explanation import explain, ranks
from ..analyse.explanation.causes import COMMUNICATION, CONTENTION, CROSSING, INPUT, SERVERS, STRAGGLERS, WORK
from ..analyse.explanation.cores import FULL_CORE
from ..analyse.explanation.exchange import estimate_good_exchange_seconds
from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.parts import Part
from ..analyse.explanation.ranks import SlowRank
from ..analyse.statistics import Interval
from ..analyse.titles import find_model_title
from ..worker.frameworks.catalog import FRAMEWORKS
from .explanation_gpus import describe_clocks, explain_slow_gpu
from .numbers import THIN, format_duration, format_percent, format_significant

_NARROW = 0.005  # whole per cents would show less than this as 0


def describe_verdict(point: PointExplanation, with_title: bool = False) -> str:
    """Return one sentence, or two, that name the cause, the evidence and what would help.

    Its subject is the network, or ``with_title`` the series, which tells it from others of the same network.
    """
    subject = f"{point.title if with_title else find_model_title(point.config.model)} on {point.devices} devices"
    if point.loss is None or point.verdict == explain.UNKNOWN:
        cause = f". {_describe_slow_rank(point)}" if point.verdict == explain.SLOW_RANK else ""
        return f"{subject}: {_say_work_unknown(point)}{cause}"
    if point.loss.mean < 0:
        return (
            f"{subject} loses nothing: it is {format_percent(-point.loss.mean)} faster than one device. Suspect the"
            " one-device point."
        )
    # The efficiency of servers is relative to one worker that exchanges gradients with them, too.
    against = " against one device without servers" if point.config.servers and not point.missing else ""
    return f"{subject} loses {format_share(point.loss)}{against}: {_SENTENCES[point.verdict](point)}"


def join_causes(causes: tuple[str, ...]) -> str:
    """Join names: «contention», «contention and stragglers», «contention, stragglers and communication»."""
    return causes[0] if len(causes) == 1 else f"{', '.join(causes[:-1])} and {causes[-1]}"


def name_part(part: Part) -> str:
    return join_causes(part.causes) + (" together" if len(part.causes) > 1 else "")


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


def _say_work_unknown(point: PointExplanation) -> str:
    parts = [f"{format_percent(part.share)} is {name_part(part)}" for part in point.parts]
    return (
        f"the work alone is not known, because {join_causes(point.missing or ('one device',))} was not measured; "
        + (", ".join(parts))
    )


def _estimate_efficiency_without(point: PointExplanation, seconds: float) -> str:
    """Return the efficiency if a step took that much less."""
    assert point.work_seconds is not None
    return format_percent(min(1.0, point.work_seconds / max(point.step_seconds - seconds, point.work_seconds)))


def _say_gain(point: PointExplanation, seconds: float) -> str:
    if point.work_seconds is None:
        return f"a step would take {format_milliseconds(max(0.0, point.step_seconds - seconds))}"
    return f"the efficiency would be {_estimate_efficiency_without(point, seconds)}"


def _require_main_part(point: PointExplanation) -> Part:
    assert point.main is not None
    return point.main


def _say_nothing_lost(point: PointExplanation) -> str:
    return "nothing stands out, the efficiency is high"


def _describe_noise(point: PointExplanation) -> str:
    main = _require_main_part(point)
    return (
        f"no part of it is larger than chance; the largest is {name_part(main)} with {format_share(main.measured)}."
        " More repeats would tell"
    )


def _name_joint_causes(point: PointExplanation) -> str:
    main = _require_main_part(point)
    return f"{format_percent(main.share)} is {name_part(main)}"


def _describe_contention(point: PointExplanation) -> str:
    main = _require_main_part(point)
    text = f"{format_percent(main.share)} is contention: the ranks slow each other down though they exchange nothing"
    cores = point.config.cores_per_device
    if point.config.device == "cpu" and point.core_share is not None:
        got = point.core_share / cores
        if got < FULL_CORE:
            reason = (
                "because other programs ran there, too" if point.other_cores > OTHER_CORES else "so they share cores"
            )
            text += f". Each of them got {format_significant(got, 2)} of its core{'s' if cores > 1 else ''}, {reason}"
        else:
            text += ". They have their cores to themselves, so they share memory bandwidth, caches or clock"
    text += describe_clocks(point)
    return f"{text}; without it the efficiency would be {_estimate_efficiency_without(point, main.seconds)}"


def _describe_slow_rank(point: PointExplanation) -> str:
    main, slow = _require_main_part(point), point.slow_ranks[0]
    further = len(point.slow_ranks) - 1
    others = f" (and {further} more slow rank{'s' if further > 1 else ''})" if further else ""
    return (
        f"{format_percent(main.share)} is waiting for rank {slow.rank} on {slow.host or 'its host'}{others},"
        f" {_describe_slowness(slow)}{_explain_slow_rank(point, slow)}; without it {_say_gain(point, main.seconds)}"
    )


def _describe_slowness(slow: SlowRank) -> str:
    if not slow.has_longer_steps:
        return "which does not get its core whole"
    factor = format_significant(slow.factor, 2)
    return f"whose steps take {factor} times as long as those of the others, {_describe_start(slow)}"


def _describe_start(slow: SlowRank) -> str:
    if slow.since_step is None or slow.since_seconds is None:
        return "from the start of the window"
    return f"since step {slow.since_step} of the window ({format_duration(slow.since_seconds)} after its start)"


def _explain_slow_rank(point: PointExplanation, slow: SlowRank) -> str:
    """Say whether the rank lacked its core, and whether another program had it; on a GPU, how high its clock was."""
    if point.config.device == "cuda":
        return explain_slow_gpu(slow)
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


def _describe_stragglers(point: PointExplanation) -> str:
    main = _require_main_part(point)
    return (
        f"{format_percent(main.share)} is waiting for the slowest rank of each step. No rank is always the slowest:"
        f" their step times vary; steady ranks would give {_estimate_efficiency_without(point, main.seconds)}"
    )


def _describe_communication(point: PointExplanation) -> str:
    main, exchange = _require_main_part(point), point.exchange
    if exchange is None:
        text = f"{format_percent(main.share)} is the exchange of gradients"
        return f"{text}; one that is twice as fast would give {_estimate_efficiency_without(point, main.seconds / 2)}"
    text = f"{format_percent(main.share)} is the exchange of {format_megabytes(exchange.bytes)} a step"
    hidden_share = (exchange.hidden_seconds or 0.0) / point.step_seconds
    if hidden_share >= _NARROW:
        text += f", of which another {format_percent(hidden_share)} hides behind computing"
    if exchange.bytes_per_second is not None:
        between = f"at {format_megabytes(exchange.bytes_per_second)}/s between these processes"
    else:
        between = f"at {format_megabytes(exchange.exposed_bytes_per_second or 0.0)}/s or more between these processes"
    return f"{text}; {between} {_describe_faster_exchange(point, main)}"


def _describe_faster_exchange(point: PointExplanation, main: Part) -> str:
    if point.advice is not None:
        efficiency = format_percent(point.advice.efficiency)
        return f"a batch of {point.advice.batch} would reach {efficiency}{_describe_assumption(point)}"
    efficiency = _estimate_efficiency_without(point, main.seconds / 2)
    return f"one that is twice as fast would give {efficiency}{_describe_equal_batch(point)}"


def _describe_equal_batch(point: PointExplanation) -> str:
    """Say that a larger batch costs nothing, where a smaller one takes as long."""
    if point.equal_batch is None:
        return ""
    batch = point.config.batch_per_device(point.devices)
    framework = FRAMEWORKS.get(point.config.framework)
    can_compile = framework is not None and framework.compiles and not point.config.compile
    remedies = "--compile or a larger batch" if can_compile else "a larger batch"
    return (
        f". A batch of {point.equal_batch} takes as long as one of {batch}, so it is not the samples that take the time"
        f" of a step: try {remedies}"
    )


def _describe_assumption(point: PointExplanation) -> str:
    if point.advice is None or point.advice.measured_batches > 1:
        return ""
    return " (if a step takes as much longer as its batch is larger)"


def _describe_too_small_work(point: PointExplanation) -> str:
    assert point.work_seconds is not None
    assert point.exchange is not None
    main, exchange = _require_main_part(point), point.exchange
    good = estimate_good_exchange_seconds(exchange, point.devices)
    is_exchange = main.causes == (COMMUNICATION,)
    size = format_megabytes(exchange.bytes)
    lost = f"the exchange of {size} takes" if is_exchange else f"{name_part(main)} take"
    text = (
        f"the work is too small to scale. A step computes for {format_milliseconds(point.work_seconds)}, and"
        f" {lost} {format_milliseconds(main.seconds)}"
    )
    if good < main.seconds:
        subject = "it" if is_exchange else f"the exchange of {size}"
        text += f"; even at 10 Gbit/s {subject} would take {format_milliseconds(good)}"
    if point.advice is None:
        return text + _describe_equal_batch(point)
    return (
        f"{text}. From a batch of {point.advice.batch} on it would reach {format_percent(point.advice.efficiency)}"
        + (_describe_assumption(point))
    )


def _describe_servers(point: PointExplanation) -> str:
    main, exchange = _require_main_part(point), point.exchange
    servers = exchange.servers if exchange else 1
    text = (
        f"{format_percent(main.share)} is what {servers} parameter server{'s need' if servers > 1 else ' needs'} for"
        f" {point.devices} workers beyond one"
    )
    if exchange:
        held = exchange.server_bytes or exchange.bytes // max(1, servers)
        moved = format_megabytes(held * point.devices)
        text += f": the busiest holds {format_megabytes(held)}, and takes and gives {moved} a step"
    return f"{text}; twice as many servers would give up to {_estimate_efficiency_without(point, main.seconds / 2)}"


def _describe_crossing(point: PointExplanation) -> str:
    main = _require_main_part(point)
    within = sum(part.seconds for part in point.parts if part.causes == (COMMUNICATION,))
    return (
        f"{format_percent(main.share)} is what the exchange takes longer because it crosses hosts:"
        f" {format_milliseconds(within + main.seconds)} a step, and {format_milliseconds(within)} if it stayed on one;"
        f" links as fast as those within a host would give {_estimate_efficiency_without(point, main.seconds)}"
    )


def _describe_input(point: PointExplanation) -> str:
    main = _require_main_part(point)
    waits = point.waited_share or 0.0
    text = f"{format_percent(main.share)} is input: the ranks wait for samples {format_percent(waits)} of the time"
    if main.share > 2 * waits:
        text += ", the rest is preparing and placing them, which takes cores from training"
    return (
        f"{text}; more --loaders, a faster disk or smaller images would help, up to"
        f" {_estimate_efficiency_without(point, main.seconds)}"
    )


def format_milliseconds(seconds: float) -> str:
    return f"{format_significant(seconds * 1000, 3)}{THIN}ms"


def format_megabytes(count: float) -> str:
    """Format bytes in decimal units, as rates of networks are: 244 MB, 1.2 MB, 1.1 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{format_significant(count / size, 3 if count >= 100 * size else 2)}{THIN}{unit}"
    return f"{count:.0f}{THIN}B"


_SENTENCES: dict[str, Callable[[PointExplanation], str]] = {
    explain.NOTHING: _say_nothing_lost,
    explain.NOISE: _describe_noise,
    explain.TOGETHER: _name_joint_causes,
    explain.SLOW_RANK: _describe_slow_rank,
    explain.TOO_SMALL: _describe_too_small_work,
    WORK: _say_nothing_lost,
    CONTENTION: _describe_contention,
    STRAGGLERS: _describe_stragglers,
    COMMUNICATION: _describe_communication,
    SERVERS: _describe_servers,
    CROSSING: _describe_crossing,
    INPUT: _describe_input,
}
