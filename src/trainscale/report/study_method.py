"""How a study was measured, in five sentences, and what in it is extrapolated."""

from __future__ import annotations

from ..analyse.study import PredictedSize, Study
from ..record.run import RunInfo
from ..worker.data.facts import SYNTHETIC
from . import numbers
from .predictions import describe_held_out, explain_method
from .wording import format_device_count, join_names


def list_method_sentences(study: Study, run: RunInfo) -> tuple[str, str, str, str, str]:
    """Return five sentences: trials, order, speed, efficiency, proof."""
    unit = study.ladders[0].series.unit
    return (
        _describe_trials(study, run),
        "The repeats of all device counts were interleaved, so that a drift of the machine does not look like scaling.",
        f"Speed is the number of {unit} that all devices trained in a window after the warm-up, divided by its time;"
        f" ± is half a 95 % interval over repeats{_describe_factor(run)}.",
        "Speed-up is the speed divided by that of one device in the same ladder, and efficiency is speed-up divided by"
        " devices, with the errors of both in the interval.",
        _describe_proof(study),
    )


def _describe_trials(study: Study, run: RunInfo) -> str:
    counts = sorted({point.repeats for ladder in study.ladders for point in ladder.series.good})
    often = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    provenance, spec = run.read_provenance(), run.read_spec()
    version = provenance.trainscale
    tool = f"trainscale {version}" if version else "trainscale"
    steps = ""
    if spec.steps:
        most = "at most " if run.is_sequential else ""
        steps = f", with {most}{spec.warmup} warm-up steps and {most}{spec.steps} measured steps"
    when = f" on {provenance.date[:10]}" if provenance.date else ""
    once = len(counts) == 1 and counts[0] == 1
    return f"{tool} measured every point {often} time{'' if once else 's'} in fresh processes{when}{steps}."


def _describe_factor(run: RunInfo) -> str:
    """Say that intervals are wider where the results decided how often to repeat."""
    return ", wider by 1 + 0.8/√repeats because the results decided their number" if run.is_sequential else ""


def _describe_proof(study: Study) -> str:
    states = [ladder.series.work_is_proven for ladder in study.ladders]
    if all(states):
        return (
            "The first steps of every trial were compared with what one device computes with the samples of all, and"
            " they agreed."
        )
    return "It was not proven for every trial that it computes what one device would compute."


def list_extrapolation_sentences(study: Study) -> list[str]:
    """Return on what basis anything is said that was not measured."""
    predictions = _list_prediction_sentences(study)
    sentences = predictions or [
        "Every speed and efficiency above was measured on the stated devices; none is extrapolated to others."
    ]
    if study.training:
        unit = study.ladders[0].series.unit
        sentences.append(
            f"The cost of the training is {numbers.format_integer(study.training.total)} {unit} divided by the"
            f" {'measured or predicted' if predictions else 'measured'} speed: this assumes that the speed of the"
            f" measured windows ({_describe_windows(study)}) lasts, and that every batch needs the same number of"
            " epochs."
        )
        sentences.append("Start-up, validation and saving are not included.")
    if study.config.data == SYNTHETIC:
        sentences.append(
            "The input was random and stayed on the devices, so reading and preparing data is not included."
        )
    return sentences


def _list_prediction_sentences(study: Study) -> list[str]:
    """Return what is predicted and on what basis. Empty if nothing is."""
    predicted = [(ladder, ladder.predicted) for ladder in study.ladders if isinstance(ladder.predicted, PredictedSize)]
    if not predicted:
        return []
    ladders = " and ".join(
        f"{ladder.scaling} scaling, from {join_names(map(str, size.prediction.given))} devices"
        for ladder, size in predicted
    )
    tests = [
        f"{ladder.scaling.capitalize()} scaling: {describe_held_out(size.prediction.held_out, ladder.series.unit)}"
        for ladder, size in predicted
        if size.prediction.held_out
    ]
    return [
        f"The figures for {format_device_count(study.devices)} are predicted ({ladders}); all others were measured on"
        " the stated devices.",
        explain_method(),
        *tests,
    ]


def _describe_windows(study: Study) -> str:
    """Return how long the measured windows are, from the shortest to the longest."""
    seconds = [point.window_seconds for ladder in study.ladders for point in ladder.points if point.window_seconds]
    shortest, longest = numbers.format_duration(min(seconds)), numbers.format_duration(max(seconds))
    return shortest if shortest == longest else f"{shortest} to {longest}"
