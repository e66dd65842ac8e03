"""Names in a journal or of a plug-in cannot lead out of the folder of a run."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from trainscale.report.csv_files import make_series_paths, make_slug
from trainscale.spec.config import Config, Trial

HOSTILE = ["../../etc/passwd", "/etc/passwd", "..", ".", "a/../../b", "~root/x", "a\0b", "a\nb", "-rf", "C:\\x", ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_becomes_one_part_of_a_path(name: str) -> None:
    assert PurePosixPath(make_slug(name)).parts == (make_slug(name),)
    assert not make_slug(name).startswith((".", "-", "~"))


@pytest.mark.parametrize("name", HOSTILE)
def test_files_of_a_series_stay_in_its_folder(name: str, tmp_path: Path) -> None:
    config = Config(name, name, 8, "allreduce", 28, 10)
    for path in make_series_paths([config]).values():
        assert (tmp_path / f"{path}.csv").resolve().is_relative_to(tmp_path)
        assert len(PurePosixPath(path).parts) == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_logs_are_named_after_a_digest(name: str) -> None:
    key = Trial(Config(name, name, 8, name, 28, 10, data=name), 2, 0).key
    assert key.replace("-", "").isalnum()
