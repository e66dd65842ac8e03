"""Ladders by work, the knee of each, the cost of a training; and a study in every format."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from factories import failed_record, make_config, make_run
from studied_runs import (
    JOULES,
    STRONG_CONFIG,
    STRONG_SPEEDS,
    WEAK_CONFIG,
    WEAK_SPEEDS,
    both_ladders,
    ladder_records,
    with_energy,
)

from trainscale.analyse.series import build_series
from trainscale.analyse.statistics import Interval
from trainscale.questions.predict import select_ladders
from trainscale.questions.study.study import (
    GOOD_EFFICIENCY,
    Knee,
    Study,
    Training,
    find_knee,
    find_window_seconds,
    make_studies,
)
from trainscale.questions.study.text import (
    Section,
    convert_to_ascii,
    escape_latex,
    format_with_error,
    make_sections,
    render_document,
    render_studies,
)
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.runs import Run
from trainscale.spec.config import STRONG, WEAK

IMAGENET = Training(90, 1_281_167)


def studies(records: list[TrialRecord], training: Training | None = None) -> list[Study]:
    return make_studies(Run.from_records(make_run(), records), 8, training=training)


def test_the_ladders_of_the_same_work_are_one_study_with_the_weak_one_first() -> None:
    (study,) = studies(both_ladders()[::-1])
    assert [ladder.scaling for ladder in study.ladders] == [WEAK, STRONG]
    assert study.missing == ()
    assert studies(ladder_records(WEAK_CONFIG, WEAK_SPEEDS))[0].missing == (STRONG,)
    assert studies(ladder_records(STRONG_CONFIG, STRONG_SPEEDS))[0].missing == (WEAK,)


def test_other_work_is_another_study_and_a_series_on_one_device_none() -> None:
    gpu = {"device": "cuda", "cores_per_device": 0}
    other = ladder_records(make_config(model="vgg16", **gpu), WEAK_SPEEDS)
    local = ladder_records(make_config(strategy="local", **gpu), {1: 100.0})
    assert [study.config.model for study in studies([*both_ladders(), *other, *local])] == ["alexnet", "vgg16"]


# ---- the knee


@pytest.mark.parametrize(
    ("speeds", "least", "expected"),
    [
        (STRONG_SPEEDS, 0.7, Knee(4)),
        (STRONG_SPEEDS, 0.8, Knee(2)),
        (STRONG_SPEEDS, 0.4, Knee(8, is_largest=True)),
        (WEAK_SPEEDS, 0.7, Knee(8, is_largest=True)),  # it may be larger
        ({1: 100.0, 2: 110.0}, 0.7, Knee(None)),
        ({1: 100.0, 2: 120.0, 4: 300.0, 8: 300.0}, 0.7, Knee(4, below=(2,))),
        ({2: 180.0, 4: 300.0}, 0.7, None),  # without one device there is no efficiency
    ],
)
def test_the_knee_is_the_largest_size_that_reaches_the_efficiency(
    speeds: dict[int, float], least: float, expected: Knee | None
) -> None:
    (series,) = build_series(ladder_records(WEAK_CONFIG, speeds))
    assert find_knee(series.good, least) == expected


def test_a_knee_whose_interval_contains_the_share_is_uncertain() -> None:
    spread = (0.9, 0.95, 1.0, 1.05, 1.1)
    (series,) = build_series(ladder_records(WEAK_CONFIG, {1: 100.0, 2: 142.0, 4: 150.0}, spread))
    assert find_knee(series.good, GOOD_EFFICIENCY) == Knee(2, is_uncertain=True)


# ---- cost and energy


def test_the_cost_of_a_training_follows_from_the_speed_and_the_hosts() -> None:
    (study,) = studies(both_ladders(), training=IMAGENET)
    point = study.ladders[0].find_point(8)
    assert point is not None
    cost, speed = study.compute_cost(point), point.samples_per_second
    assert cost is not None
    hours = 90 * 1_281_167 / 720.0 / 3600
    assert cost.hours.mean == pytest.approx(hours, rel=1e-5)
    assert cost.node_hours.mean == pytest.approx(2 * hours, rel=1e-5)
    assert cost.device_hours.mean == pytest.approx(8 * hours, rel=1e-5)
    assert cost.kilowatt_hours is None
    assert speed is not None
    assert speed.high is not None
    assert cost.hours.low == pytest.approx(90 * 1_281_167 / speed.high / 3600)
    (study,) = studies(both_ladders())
    assert all(study.compute_cost(point) is None for point in study.ladders[0].series.points)


def test_energy_is_that_of_a_sample_over_all_devices() -> None:
    (study,) = studies(list(map(with_energy, both_ladders())), training=IMAGENET)
    point = study.ladders[1].find_point(4)
    assert point is not None
    energy, cost = study.measure_energy(point), study.compute_cost(point)
    assert energy is not None
    assert energy.mean == pytest.approx(JOULES)
    assert cost is not None
    assert cost.kilowatt_hours is not None
    assert cost.kilowatt_hours.mean == pytest.approx(JOULES * IMAGENET.total / 3.6e6)
    assert study.energy_sources == ("nvml",)
    records = [record if record.trial.repeat else with_energy(record) for record in both_ladders()]
    (study,) = studies(records)
    assert all(study.measure_energy(point) is None for point in study.ladders[0].series.points), "not every repeat"


def test_a_failed_point_stays_in_its_ladder() -> None:
    records = [record for record in both_ladders() if record.trial.point != (STRONG_CONFIG, 8)]
    (study,) = studies([*records, failed_record(STRONG_CONFIG, 8)], training=IMAGENET)
    point = study.ladders[1].find_point(8)
    assert point is not None
    assert (point.ok, study.compute_cost(point), find_window_seconds(point)) == (False, None, None)
    assert study.ladders[1].knee == Knee(4, is_largest=True)


# ---- what is studied


def test_trials_beside_a_ladder_are_left_out() -> None:
    independent = replace(WEAK_CONFIG, strategy="independent")
    records = [*both_ladders(), *ladder_records(independent, {2: 200.0})]
    explained = RunInfo({"series": [{"strategy": "allreduce"}]})
    assert select_ladders(Run.from_records(explained, records)).records == both_ladders()
    asked_for = RunInfo({"series": [{"strategy": "allreduce"}, {"strategy": "independent"}]})
    assert select_ladders(Run.from_records(asked_for, records)).records == records
    short = [replace(record, trial=replace(record.trial, short=True)) for record in both_ladders()]
    searched = Run.from_records(RunInfo({}), [*short, *both_ladders()])
    assert select_ladders(searched).records == both_ladders()


# ---- as text of 80 columns, Markdown, LaTeX and JSON

COMMAND = "trainscale run -m alexnet:32 --study"
BOTH = both_ladders()
COUNTED = list(map(with_energy, BOTH))
NO_KNEE = ladder_records(WEAK_CONFIG, {1: 100.0, 8: 110.0})
WITHOUT_LAST = [record for record in BOTH if record.trial.point != (STRONG_CONFIG, 8)]
FAILED_LAST = [*WITHOUT_LAST, failed_record(STRONG_CONFIG, 8)]
INFO = replace(make_run(trainscale="0.1.0", command=COMMAND), spec={"warmup": 10, "steps": 100})


def study_of(records: list[TrialRecord], training: Training | None = IMAGENET, info: RunInfo = INFO) -> Study:
    (study,) = make_studies(Run.from_records(info, records), 8, training=training)
    return study


def sections_of(records: list[TrialRecord]) -> list[Section]:
    return list(make_sections(study_of(records), COMMAND))


def section(study: Study, heading: str) -> Section:
    return next(each for each in make_sections(study, COMMAND) if each.heading.startswith(heading))


def paragraph(study: Study, heading: str) -> str:
    (text,) = section(study, heading).paragraphs
    return text


def test_the_tables_have_every_point() -> None:
    grids = [section.grid for section in sections_of(BOTH) if section.grid]
    weak, strong, cost = ([tuple(map(convert_to_ascii, row)) for row in grid.rows] for grid in grids)
    assert weak[0] == ("1", "1", "32", "100.0", "0.2 %", "1.00x", "100 %")
    assert weak[3][:4] == ("8", "2", "256", "720.0")
    assert weak[3][5] == "7.20x"
    assert strong[3][:4] == ("8", "2", "8", "400.0")
    assert strong[3][6] == "50.0 +- 0.1 %"
    assert [row[:3] for row in cost] == [
        (scaling, str(devices), "2" if devices > 4 else "1")
        for scaling in ("weak", "strong")
        for devices in (1, 2, 4, 8)
    ]
    hours = 90 * 1_281_167 / 720 / 3600
    assert (cost[3][3], cost[3][5], cost[3][6]) == (f"{hours:.1f}", f"{2 * hours:.1f}", f"{8 * hours:.0f}")


@pytest.mark.parametrize(
    ("records", "heading", "text"),
    [
        (BOTH, "Efficiency on 8", "90.0 +- 0.2 % efficiency (720.0 images/s, speed-up 7.20x) on 2 nodes."),
        (WITHOUT_LAST, "Efficiency on 8", "Strong scaling: not measured on 8 devices"),
        (FAILED_LAST, "Efficiency on 8", "Strong scaling: no result on 8 devices, out of memory"),
        (FAILED_LAST, "Strong scaling", "8 devices: no result, out of memory"),
        (BOTH, "Largest size", "Weak scaling: 8 devices (90.0 +- 0.2 %), the largest size measured; where the"),
        (BOTH, "Largest size", "where the efficiency falls below 70 % was not measured."),
        (BOTH, "Largest size", "Strong scaling: 4 devices (75.0 +- 0.2 %); 8 devices have 50.0 +- 0.1 %."),
        (NO_KNEE, "Largest size", "Weak scaling: no measured size on several devices reaches it; the highest is 13"),
        (BOTH, "Energy", "Not measured: no energy counter of these devices could be read."),
        (COUNTED, "Energy", "0.500 J/image on 8 devices (weak scaling) and 0.500 J/image on 8 devices (strong scal"),
        (COUNTED, "Energy", "It is the energy of the GPUs, by their own counters (NVML)"),
    ],
)
def test_every_section_says_what_was_measured(records: list[TrialRecord], heading: str, text: str) -> None:
    assert text in convert_to_ascii(" ".join(section(study_of(records), heading).paragraphs))


def test_a_missing_ladder_has_the_command_that_measures_it() -> None:
    block = section(study_of(ladder_records(WEAK_CONFIG, WEAK_SPEEDS)), "Strong scaling")
    assert (block.command, block.grid) == (COMMAND, None)


def test_the_method_has_five_sentences_and_says_what_is_not_proven() -> None:
    method = paragraph(study_of(BOTH), "Method")
    assert re.fullmatch(r"([^.]([^.]|\.\d)*\.){5}", method)
    assert "every point 5 times in fresh processes on 2026-01-02, with 10 warm-up steps" in method
    assert method.endswith("they agreed.")
    assert "not proven" in paragraph(study_of([replace(record, witness=None) for record in BOTH]), "Method")
    by_budget = replace(INFO, spec={"warmup": 10, "steps": 100, "budget": 60.0})
    method = paragraph(study_of(BOTH, info=by_budget), "Method")
    assert "at most 100 measured steps" in method
    assert "wider by" in method


def test_what_is_extrapolated_is_said() -> None:
    with_training = paragraph(study_of(BOTH), "What is extrapolated")
    assert "none is extrapolated to others" in with_training
    assert "115,305,030 images divided by the measured speed" in with_training
    assert "The input was random" in with_training
    assert "epochs" not in paragraph(study_of(BOTH, training=None), "What is extrapolated")


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(24.6123), "24.6"),
        (Interval(24.6123, 24.5, 24.72), "24.61\u202f±\u202f0.11"),
        (Interval(12_345.6, 12_000.0, 12_691.2), "12,346\u202f±\u202f346"),
        (Interval(5.0, 5.0, 5.0), "5.00"),
    ],
)
def test_a_quantity_has_the_decimals_of_its_error(interval: Interval, text: str) -> None:
    assert format_with_error(interval) == text


# ---- formats


def test_text_is_ascii_of_at_most_80_columns() -> None:
    records = [*BOTH[:-1], failed_record(STRONG_CONFIG, 8, 4, message="no memory " * 20)]
    long_command = f"{COMMAND} {' '.join(f'--setup line{number}' for number in range(20))}"
    study = study_of(list(map(with_energy, ladder_records(WEAK_CONFIG, WEAK_SPEEDS))))
    config = replace(WEAK_CONFIG, batch=10**15)  # makes a wide table, which is split
    wide = ladder_records(config, {devices: speed * 1e12 for devices, speed in WEAK_SPEEDS.items()})
    for sections in (sections_of(records), list(make_sections(study, long_command)), sections_of(wide)):
        text = render_document([sections], "text")
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= 80
    lines = render_document([sections_of(BOTH)], "text").splitlines()
    assert lines[:2] == ["Scaling of AlexNet (torch, allreduce)", "====================================="]
    assert "devices  nodes  global batch  images/s     +-  speed-up     efficiency" in lines


def test_no_line_of_text_is_broken_between_a_number_and_its_unit() -> None:
    for number in range(40, 80):
        block = Section("Title", (f"{'x' * number} 12\u202f±\u202f3\u202f% and more",))
        assert "12 +- 3 %" in render_document([[block]], "text")


def test_markdown_has_tables() -> None:
    text = render_document([sections_of(BOTH)], "markdown")
    assert text.startswith("# Scaling of AlexNet (torch, allreduce)\n")
    assert "| devices | nodes | global batch | images/s | ± | speed-up | efficiency |" in text
    assert "## Method" in text


def test_latex_has_numbers_for_siunitx_and_escapes_the_rest() -> None:
    text = render_document([sections_of(BOTH)], "latex")
    assert r"\SI{50.0 +- 0.1}{\percent} \\" in text
    assert r"\num{7.20}\(\times\)" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 3
    assert text.isascii()
    assert escape_latex("more --loaders") == "more -{}-loaders"
    assert escape_latex("a_b & 50 % of {x} ± 1") == r"a\_b \& 50 \% of \{x\} \(\pm\) 1"


@pytest.mark.processes
@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="there is no pdflatex here (tests/needs.sh installs it on Debian)"
)
def test_latex_compiles(tmp_path: Path) -> None:
    failed = failed_record(STRONG_CONFIG, 8, 9, message='a_b & c%d {e} ~f^g \\h $i #j <k> "l" é √ …')
    body = render_document(
        [sections_of([*BOTH, failed]), sections_of(ladder_records(WEAK_CONFIG, WEAK_SPEEDS))], "latex"
    )
    packages = re.findall(r"\\usepackage(?:\[\w+\])?\{\w+\}", body.splitlines()[0])
    assert len(packages) == 3
    document = "\n".join([r"\documentclass{article}", *packages, r"\begin{document}", body, r"\end{document}"])
    (tmp_path / "study.tex").write_text(document)
    argv = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "study.tex"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "study.pdf").exists()
    assert "in paragraph" not in "".join(re.findall(r"Overfull .*", done.stdout)), done.stdout  # of a table


def test_json_has_full_precision_and_the_sentences() -> None:
    document = json.loads(render_studies([study_of(BOTH)], "json"))
    (entry,) = document["studies"]
    point = entry["ladders"][1]["points"][3]
    assert (point["devices"], point["nodes"], point["batch_per_device"], point["global_batch"]) == (8, 2, 8, 64)
    assert point["efficiency"]["mean"] == pytest.approx(0.5, rel=1e-9)
    assert point["cost"]["node_hours"]["mean"] == pytest.approx(2 * IMAGENET.total / 400 / 3600, rel=1e-5)
    assert entry["ladders"][1]["knee"] == {"devices": 4, "is_largest": False, "is_uncertain": False, "below": []}
    assert len(entry["sections"]["Method"]) == 1
    assert document["command_for_missing"] is None
