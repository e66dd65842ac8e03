"""Photographs in folders: whatever size and kind they have, each comes as the network takes it, or is named."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_sets import picture, real, write_folder

from trainscale.worker.data import folder
from trainscale.worker.data.facts import FOLDER, TRAIN, VALID, DataError, read_facts


def decoded(path: Path, size: int = 32, chance: np.ndarray | None = None) -> np.ndarray:
    place = np.full((3, size, size), 77, np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder.decode_photograph(place, str(path), chance)
    return place


def close(image: np.ndarray, other: np.ndarray) -> bool:
    """As near as JPEGs come, decoded at another scale: a few levels of 255."""
    return float(np.abs(image.astype(float) - other.astype(float)).mean()) < 4


def reference(image: Image.Image, box: tuple[float, float, float, float], size: int) -> np.ndarray:
    """Without any short cut: all pixels, one filter."""
    left, top, wide, high = box
    small = image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + wide, top + high))
    return np.asarray(small).transpose(2, 0, 1)


# ---- which there are


def test_classes_are_numbered_by_name_and_all_photographs_are_listed_in_order(tmp_path: Path) -> None:
    write_folder(tmp_path, classes=["zebra", "Ant", "bee"])
    (tmp_path / "train" / "bee" / "notes.txt").write_text("no photograph")
    (tmp_path / "train" / ".hidden").mkdir()
    photographs = folder.list_photographs(str(tmp_path), TRAIN)
    assert photographs.classes == ["Ant", "bee", "zebra"]
    assert photographs.labels == [0, 0, 1, 1, 2, 2]
    assert [Path(path).relative_to(tmp_path / "train").as_posix() for path in photographs.paths[:3]] == [
        "Ant/0.jpg", "Ant/1.jpg", "bee/0.jpg",
    ]  # fmt: skip
    facts = read_facts(FOLDER, str(tmp_path))
    assert (facts.name, facts.classes, facts.train, facts.valid, facts.image_size) == (tmp_path.name, 3, 6, 6, 0)


def test_a_class_without_validation_photographs_keeps_its_number_and_one_that_only_they_have_is_named(
    tmp_path: Path,
) -> None:
    write_folder(tmp_path, classes=["a", "b", "c"])
    (tmp_path / "val" / "b").rename(tmp_path / "elsewhere")
    assert folder.list_photographs(str(tmp_path), VALID).labels == [0, 0, 2, 2]
    (tmp_path / "val" / "wasp").mkdir()
    with pytest.raises(DataError, match="val/wasp is a class that train/ does not have"):
        folder.list_photographs(str(tmp_path), VALID)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ([], "train cannot be read: No such file or directory; valid: a folder with train/ and val/"),
        (["train"], "train has no folders; valid: a folder of photographs for each class"),
        (["train/a"], "train has no photographs; valid: files that end in .jpg, .jpeg"),
    ],
)
def test_what_a_folder_lacks_is_told(folders: list[str], message: str, tmp_path: Path) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataError) as raised:
        read_facts(FOLDER, str(tmp_path))
    assert message in str(raised.value)


# ---- what they look like


@pytest.mark.parametrize("size", [(500, 375), (40, 30), (31, 200), (1600, 1200), (1, 1)], ids=str)
@pytest.mark.parametrize("wanted", [8, 32, 64])
def test_validation_takes_the_middle_whatever_the_size(size: tuple[int, int], wanted: int, tmp_path: Path) -> None:
    picture(*size).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        side = min(size) * 224 / 256
        box = ((size[0] - side) / 2, (size[1] - side) / 2, side, side)
        assert close(decoded(tmp_path / "a.jpg", wanted), reference(image, box, wanted))


def test_training_takes_a_part_of_it_as_it_was_drawn(tmp_path: Path) -> None:
    picture(400, 300).save(tmp_path / "a.jpg", quality=95)
    random = np.random.default_rng(3).random((60, 5))
    with Image.open(tmp_path / "a.jpg") as image:
        for chance in random:
            left, top, wide, high = box = folder.choose_box(400, 300, chance)
            assert left >= 0
            assert top >= 0
            assert left + wide <= 400.001
            assert top + high <= 300.001
            wanted = reference(image, box, 48)
            mirrored = wanted[:, :, ::-1] if chance[4] < 0.5 else wanted
            assert close(decoded(tmp_path / "a.jpg", 48, chance), mirrored)


def test_parts_have_8_to_100_per_cent_of_the_area_and_are_little_wider_or_higher() -> None:
    boxes = np.array([folder.choose_box(1000, 1000, chance) for chance in np.random.default_rng(1).random((2000, 5))])
    area, shape = boxes[:, 2] * boxes[:, 3] / 1e6, boxes[:, 2] / boxes[:, 3]
    assert 0.08 <= area.min() < 0.1
    assert 0.9 < area.max() <= 1
    assert 0.7499 <= shape.min() < 0.78
    assert 1.28 < shape.max() <= 1.3334


def kinds() -> dict[str, Image.Image]:
    colour = picture(64, 48)
    alpha = colour.convert("RGBA")
    alpha.putalpha(Image.new("L", colour.size, 10))
    grey = colour.convert("L")
    sixteen = Image.fromarray(np.asarray(grey).astype(np.uint16) * 256)
    return {"grey.jpg": grey, "cmyk.jpg": colour.convert("CMYK"), "alpha.png": alpha,
            "palette.png": colour.quantize(128), "sixteen.png": sixteen,
            "bit.png": grey.convert("1"), "grey alpha.png": grey.convert("LA"),
            "progressive.jpg": colour, "a.bmp": colour, "a.webp": colour, "CAPITALS.JPEG": colour}  # fmt: skip


@pytest.mark.parametrize("name", kinds())
def test_every_kind_comes_as_red_green_and_blue(name: str, tmp_path: Path) -> None:
    image = kinds()[name]
    options = {"progressive": True} if name.startswith("progressive") else {}
    image.save(tmp_path / name, **options)
    pixels = decoded(tmp_path / name, 40)
    side = 48 * 224 / 256
    box = ((64 - side) / 2, (48 - side) / 2, side, side)
    grey = "grey" in name or "sixteen" in name
    wanted = picture(64, 48).convert("L").convert("RGB") if grey else picture(64, 48)
    if name == "bit.png":
        wanted = image.convert("RGB")
    assert close(pixels, reference(wanted, box, 40)), name
    assert not grey or np.array_equal(pixels[0], pixels[2])


def test_a_transparent_palette_is_no_reason_to_warn_and_an_orientation_is_ignored(tmp_path: Path) -> None:
    picture(64, 48).quantize(16).save(tmp_path / "a.png", transparency=b"\0\x80\xff")
    decoded(tmp_path / "a.png")
    notes = Image.Exif()
    notes[0x0112] = 6  # turn it by a quarter
    picture(64, 48).save(tmp_path / "a.jpg", exif=notes, quality=95)
    picture(64, 48).save(tmp_path / "b.jpg", quality=95)
    assert np.array_equal(decoded(tmp_path / "a.jpg"), decoded(tmp_path / "b.jpg"))


def test_the_same_chance_gives_the_same_pixels_and_another_gives_others(tmp_path: Path) -> None:
    picture(64, 48).save(tmp_path / "a.jpg")
    first, second = np.random.default_rng(1).random((2, 5))
    assert np.array_equal(decoded(tmp_path / "a.jpg", 32, first), decoded(tmp_path / "a.jpg", 32, first))
    assert not np.array_equal(decoded(tmp_path / "a.jpg", 32, first), decoded(tmp_path / "a.jpg", 32, second))


# ---- refused


def test_a_damaged_photograph_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sübject ☃.jpg"
    picture(640, 480).save(path)
    complete = path.read_bytes()
    half, png = complete[: len(complete) // 2], b"\x89PNG\r\n\x1a\n" + b"\1" * 40
    for content in (half, b"", b"text", b"\xff\xd8\xff" + b"\0" * 50, png):
        path.write_bytes(content)
        for read in (decoded, lambda path: folder.inspect_photograph(str(path))):
            with pytest.raises(DataError) as raised:
                read(path)
            assert str(raised.value).startswith(f"{path} is damaged, or no photograph: ")


def test_a_fifo_among_photographs_is_named_and_not_waited_for(tmp_path: Path) -> None:
    write_folder(tmp_path)
    fifo = next(tmp_path.glob("train/*")) / "zz.jpg"
    os.mkfifo(fifo)
    assert str(fifo) in folder.list_photographs(str(tmp_path), TRAIN).paths
    for read in (folder.inspect_photograph, decoded):
        with pytest.raises(DataError, match=r"zz\.jpg cannot be read: this is a FIFO; valid: a file"):
            read(str(fifo))


def test_a_photograph_that_is_gone_is_named_and_one_that_is_there_is_measured(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jpg cannot be read: No such file or directory"):
        decoded(tmp_path / "a.jpg")
    picture(640, 48).save(tmp_path / "a.jpg")
    assert folder.inspect_photograph(str(tmp_path / "a.jpg")) == (640, 48, (tmp_path / "a.jpg").stat().st_size)


# ---- real ones


def test_real_photographs_come_as_they_are(tmp_path: Path) -> None:
    place = real("flowers")
    photographs = folder.list_photographs(str(place), VALID)
    assert len(photographs.classes) == 5
    distances = []
    for number, path in enumerate(photographs.paths[::10]):
        chance = np.random.default_rng(number).random(5) if number % 2 else None
        with Image.open(path) as image:
            box = folder.choose_box(*image.size, chance)
            wanted = reference(image.convert("RGB"), box, 64)
        if chance is not None and chance[4] < 0.5:
            wanted = wanted[:, :, ::-1]
        distances.append(np.sqrt(((decoded(Path(path), 64, chance).astype(float) - wanted) ** 2).mean()))
    assert max(distances) < 8  # of 255, root mean square: decoding at a half or a quarter is a filter of its own
