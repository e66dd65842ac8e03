"""``trainscale best`` on journals: text, JSON, Markdown, and what is refused."""

import json
from pathlib import Path

import pytest
from command import trainscale
from factories import curve, make_config
from stored_runs import ALLREDUCE, SERVERS, with_energy, write_run

RECORDS = curve(ALLREDUCE, {1: 100, 2: 190, 4: 300}, 3, 0.01) + curve(SERVERS, {1: 100, 2: 150, 4: 200}, 3, 0.01)


def test_the_text_fits_100_columns_and_says_how_sure_each_answer_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RECORDS)
    done = trainscale(tmp_path, "best", "run", "--price", "3.6/device-hour", columns=100)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    text = " ".join(done.stdout.split())
    assert "1 device: a tie. Noise does not separate the best from torch · ps:1" in text
    assert "4 devices: 1.50 (1.47–1.53) times as good as the runner-up, torch · ps:1: more than noise." in text
    assert "The last step, from 2 to 4 devices, gains 110.0 images/s." in text
    assert "Each of these costs 1.73 (1.63–1.84) times what one cost before, 18.2 (17.2–19.3) per million." in text
    assert "no trial recorded it" in text


def test_json_has_everything_with_full_precision(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RECORDS)
    document = json.loads(trainscale(tmp_path, "best", "run", "--json", "--by", "efficiency").stdout)
    (work,) = document["works"]
    on_1, on_2, on_4 = work["answers"]
    assert (document["by"], document["price"]) == ("efficiency", None)
    assert document["energy"] == "Energy: no trial recorded it."
    assert (on_1["verdict"], on_1["leader"]) == ("none", None)
    assert on_2["leader"]["value"]["mean"] == pytest.approx(0.95)
    assert on_4["others"][0]["lead"]["mean"] == pytest.approx(1.5)
    assert on_4["others"][0]["differs"] is True
    assert on_4["leader"]["config"]["strategy"] == "allreduce"
    assert [(step["before"], step["after"]) for step in work["steps"]] == [(2, 4)]


def test_energy_is_shown_where_every_trial_recorded_it(tmp_path: Path) -> None:
    records = [with_energy(record, 96.0 * 3.6) for record in curve(make_config(device="cuda"), {2: 190}, 3, 0.01)]
    write_run(tmp_path / "run", records)
    text = trainscale(tmp_path, "best", "run").stdout
    assert "Wh/million" in text
    assert "1,000 (1,000–1,000)" in text.replace("\u202f", " ")
    assert "Energy is that of the GPUs (NVML)" in text
