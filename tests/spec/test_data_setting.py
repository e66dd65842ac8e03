"""What ``--data`` means: which images, where they lie, what is known of them before a run."""

from pathlib import Path

import pytest
from small_sets import write_cifar10, write_folder

from trainscale.errors import InputError
from trainscale.spec.data import SYNTHETIC_DATASET, Dataset, find_dataset, find_datasets_folder, parse_data
from trainscale.worker.data import facts


@pytest.mark.parametrize("text", ["synthetic", "mnist", "cifar10", "mnist:a/b", "imagefolder:a folder", "cifar10:/x:y"])
def test_what_can_be_understood_stays_as_it_was_typed(text: str) -> None:
    assert parse_data(text) == text
    assert parse_data(text.partition(":")[0].upper() + text[len(text.partition(":")[0]) :]) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minst", "unknown value 'minst'; did you mean 'mnist'?"),
        ("", "unknown value ''"),
        ("synthetic:here", "synthetic images have no folder; valid: synthetic"),
        ("imagefolder", "has no folder; valid: imagefolder:DIR"),
        ("imagefolder:", "has no folder; valid: imagefolder:DIR"),
        ("mnist:", "has an empty folder; valid: mnist or mnist:DIR"),
    ],
)
def test_what_cannot_is_answered_with_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_data(text)
    assert message in str(raised.value)


def test_folders_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert find_dataset("mnist") == Dataset("mnist", str(tmp_path / "trainscale" / "data" / "mnist"))
    for unusable in ("", "relative/path"):
        monkeypatch.setenv("XDG_DATA_HOME", unusable)
        monkeypatch.setenv("HOME", str(tmp_path / "me"))
        assert find_datasets_folder() == tmp_path / "me" / ".local" / "share" / "trainscale" / "data"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert find_dataset("cifar10:here") == Dataset("cifar10", str(tmp_path / "here"))
    assert find_dataset("imagefolder:sets/flowers/") == Dataset(
        "imagefolder:flowers", str(tmp_path / "sets" / "flowers")
    )
    assert find_dataset("mnist:~/m").directory == str(tmp_path / "me" / "m")
    assert find_dataset("synthetic") == SYNTHETIC_DATASET


def test_facts_are_counted_once(tmp_path: Path) -> None:
    write_folder(tmp_path / "set")
    dataset = find_dataset(f"imagefolder:{tmp_path / 'set'}")
    assert dataset.facts.train == 4
    (tmp_path / "set" / "train").rename(tmp_path / "elsewhere")
    assert dataset.facts.train == 4
    with pytest.raises(InputError, match=r"data: .*train cannot be read"):
        _ = find_dataset(f"imagefolder:{tmp_path / 'set'}").facts


def test_a_check_is_of_published_sets_and_names_field_and_file(tmp_path: Path) -> None:
    find_dataset(f"cifar10:{write_cifar10(tmp_path, 10, 5)}").check()
    (tmp_path / "test_batch.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"^data: .*test_batch\.bin is damaged"):
        find_dataset(f"cifar10:{tmp_path}").check()
    SYNTHETIC_DATASET.check()
    find_dataset("imagefolder:/nowhere").check()


def test_only_photographs_need_pillow_and_every_source_is_described() -> None:
    assert find_dataset("imagefolder:x").needs == ("PIL",)
    assert find_dataset("mnist").needs == SYNTHETIC_DATASET.needs == ()
    assert list(facts.SOURCES) == ["synthetic", "mnist", "cifar10", "imagefolder"]
