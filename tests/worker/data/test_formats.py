"""The published formats: read as they are, counted, and refused with the file's name when wrong."""

import gzip
import hashlib
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from small_sets import pictures, read_split, real, write_cifar10, write_mnist

from trainscale.worker.data import facts, published_files
from trainscale.worker.data.facts import CIFAR10, MNIST, TRAIN, VALID, DataError
from trainscale.worker.data.published_files import CHECKSUMS

WRITERS = {MNIST: write_mnist, CIFAR10: write_cifar10}


def write_sums(folder: Path) -> None:
    paths = [path for path in folder.iterdir() if path.name != CHECKSUMS]
    lines = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / CHECKSUMS).write_text("".join(lines))


class Python2(pickle._Pickler):
    """Writes as the published files were written: protocol 2, all text as the bytes it was then."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_text(self, text: str | bytes) -> None:
        content = text.encode("latin1") if isinstance(text, str) else text
        short = len(content) < 256
        self.write(b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content)))
        self.write(content)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_text


def write_pickle(path: Path, content: object) -> None:
    out = io.BytesIO()
    Python2(out, protocol=2).dump(content)
    path.write_bytes(out.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def write_pickles(folder: Path, train: int = 50, valid: int = 13) -> Path:
    folder.mkdir(parents=True)
    images, labels = pictures(train, 3, 32, seed=1)
    parts = [*zip(np.split(images, 5), np.split(labels, 5), strict=True), pictures(valid, 3, 32, seed=2)]
    for name, (part, truth) in zip([f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"], parts, strict=True):
        others = {"batch_label": name, "filenames": ["one.png"] * len(part)}
        write_pickle(folder / name, {**others, "labels": truth.tolist(), "data": part.reshape(len(part), -1)})
    write_sums(folder)
    return folder


# ---- read


@pytest.mark.parametrize(("name", "shape"), [(MNIST, (1, 28, 28)), (CIFAR10, (3, 32, 32))])
def test_images_and_labels_are_those_that_were_written(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    folder = WRITERS[name](tmp_path, 50, 13)
    for split, count, seed in ((TRAIN, 50, 1), (VALID, 13, 2)):
        images, labels = read_split(name, str(folder), split)
        wanted, truth = pictures(count, *shape[:2], seed=seed)
        assert images.dtype == labels.dtype == np.uint8
        assert np.array_equal(images, wanted)
        assert np.array_equal(labels, truth)


def test_the_pickles_for_python_hold_the_same_as_the_binary_files(tmp_path: Path) -> None:
    write_pickles(tmp_path / "set" / "cifar-10-batches-py")
    binary = write_cifar10(tmp_path / "binary", 50, 13)
    assert published_files.count_images(CIFAR10, str(tmp_path / "set")) == {TRAIN: 50, VALID: 13}
    for split in (TRAIN, VALID):
        images, labels = read_split(CIFAR10, str(tmp_path / "set"), split)
        same_images, same_labels = read_split(CIFAR10, str(binary), split)
        assert np.array_equal(images, same_images)
        assert np.array_equal(labels, same_labels)


def test_pickles_that_python_3_wrote_are_read_and_counted_too(tmp_path: Path) -> None:
    folder = write_pickles(tmp_path / "set")
    images, labels = pictures(13, 3, 32, seed=2)
    content = {b"data": images.reshape(13, -1), b"labels": labels.tolist()}
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (folder / "test_batch").write_bytes(pickle.dumps(content, protocol))
        write_sums(folder)
        assert np.array_equal(read_split(CIFAR10, str(folder), VALID)[0], images)
        assert published_files.count_images(CIFAR10, str(folder))[VALID] == 13


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": np.zeros((2, 3072), np.float32), "labels": [0, 1]}, "its images are float32, not uint8"),
        ({"data": np.zeros((2, 3071), np.uint8), "labels": [0, 1]}, "cannot reshape"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 300]}, "OverflowError|a label is"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "2 images and 1 labels"),
        ({"labels": [0, 1]}, "KeyError: b'data'"),
        ([1, 2], "TypeError"),
    ],
)
def test_a_pickle_of_something_else_is_refused(content: object, message: str, tmp_path: Path) -> None:
    folder = write_pickles(tmp_path / "set")
    write_pickle(folder / "test_batch", content)
    write_sums(folder)
    with pytest.raises(DataError, match=f"{folder}/test_batch.*({message})"):
        read_split(CIFAR10, str(folder), VALID)


def test_of_two_editions_the_binary_one_counts(tmp_path: Path) -> None:
    for writer, name, counts in ((write_pickles, "py", (10, 5)), (write_cifar10, "bin", (20, 7))):
        writer(tmp_path / f"cifar-10-batches-{name}", *counts)
        published_files.check_files(CIFAR10, str(tmp_path))
        dataset = facts.read_facts(CIFAR10, str(tmp_path))
        assert (dataset.train, dataset.valid) == counts


def test_a_pickle_that_runs_a_program_runs_none(tmp_path: Path) -> None:
    folder = write_pickles(tmp_path / "set")
    ran = tmp_path / "ran"
    evil = f"cos\nsystem\n(S'touch {ran}'\ntR."
    (folder / "data_batch_2").write_bytes(evil.encode())
    write_sums(folder)
    with pytest.raises(DataError, match=r"data_batch_2 is damaged: UnpicklingError: it asks for os\.system"):
        read_split(CIFAR10, str(folder), TRAIN)
    with pytest.raises(DataError, match="data_batch_2 is damaged"):
        published_files.count_images(CIFAR10, str(folder))
    assert not ran.exists()


def test_digits_are_counted_and_what_is_published_is_known_without_the_files(tmp_path: Path) -> None:
    assert facts.read_facts(MNIST, str(tmp_path)).train == 60_000
    assert facts.read_facts(CIFAR10, str(tmp_path)).valid == 10_000
    assert facts.read_facts(MNIST, str(write_mnist(tmp_path, 20, 7))).train == 20


# ---- refused


def test_a_missing_file_is_named_with_the_command_that_gets_it(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "a set")
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(DataError) as raised:
        read_split(CIFAR10, str(folder), VALID)
    assert str(raised.value) == (
        f"{folder}/data_batch_5.bin is missing; get the set with: trainscale data get cifar10 '{folder}'"
    )


@pytest.mark.parametrize("name", [MNIST, CIFAR10])
def test_files_that_are_not_the_published_ones_are_refused_without_a_list_of_checksums(
    name: str, tmp_path: Path
) -> None:
    folder = WRITERS[name](tmp_path)
    (folder / CHECKSUMS).unlink()
    with pytest.raises(DataError, match=r"is damaged: it has [\d,]+ bytes, not [\d,]+; remove it and get it again"):
        read_split(name, str(folder), TRAIN)


def test_a_file_of_the_right_size_with_another_byte_is_damaged(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    path = folder / "data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} is damaged: its MD5 is [0-9a-f]{{32}}, not [0-9a-f]{{32}}"):
        read_split(CIFAR10, str(folder), TRAIN)
    assert len(read_split(CIFAR10, str(folder), VALID)[0]) == 103  # the other files are right


def harm_idx(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))

    return harm


def cut(count: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:-count])


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
# What is wrong inside of files whose checksums are right.
WRONG = {
    "cut gzip": (MNIST, IMAGES, cut(50), "is damaged"),
    "no gzip": (MNIST, LABELS, lambda p: p.write_bytes(b"text"), "is damaged: Not a gzipped file"),
    "other magic": (MNIST, LABELS, harm_idx(lambda c: b"\0\0\x08\x03" + c[4:]), "not an idx file of 1"),
    "too few": (MNIST, IMAGES, harm_idx(lambda c: c[:-1]), "not an idx file of 3 axes"),
    "empty": (MNIST, IMAGES, harm_idx(lambda c: b""), "is damaged|not an idx file of 3 axes"),
    "fewer labels": (
        MNIST, LABELS,
        harm_idx(lambda c: c[:4] + struct.pack(">I", 499) + c[8:-1]), "500 images and 499 labels",
    ),
    "label 10": (MNIST, LABELS, harm_idx(lambda c: c[:-1] + b"\x0a"), "a label is 10; valid: 0 to 9"),
    "other size": (
        MNIST, IMAGES,
        harm_idx(lambda c: c[:8] + struct.pack(">2I", 14, 56) + c[16:]), "images of 14×56; valid: 28×28",
    ),
    "cut record": (CIFAR10, "data_batch_1.bin", cut(5), "not whole records of 3,073"),
    "label 255": (CIFAR10, "data_batch_2.bin", lambda p: p.write_bytes(b"\xff" + p.read_bytes()[1:]), "a label is 255"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_inside_a_file_is_told_with_its_name(wrong: str, tmp_path: Path) -> None:
    name, file, harm, message = WRONG[wrong]
    folder = WRITERS[name](tmp_path)
    harm(folder / file)
    write_sums(folder)
    with pytest.raises(DataError, match=f"{folder / file}.*({message})"):
        read_split(name, str(folder), TRAIN)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "checksums.md5 is not as md5sum writes it"),
        ("not a sum\n", "checksums.md5 is not as md5sum writes it"),
        ("d41d8cd98f00b204e9800998ecf8427e\n", "checksums.md5 is not as md5sum writes it"),
        (f"{'0' * 32}  data_batch_2.bin\n", r"data_batch_1\.bin: checksums\.md5 in the same folder does not name it"),
    ],
)
def test_a_list_of_checksums_must_be_as_md5sum_writes_it_and_name_every_file(
    content: str, message: str, tmp_path: Path
) -> None:
    folder = write_cifar10(tmp_path)
    (folder / CHECKSUMS).write_text(content)
    with pytest.raises(DataError, match=message):
        read_split(CIFAR10, str(folder), TRAIN)


def test_binary_marks_and_capitals_in_a_list_of_checksums_are_understood(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    lines = [line.split() for line in (folder / CHECKSUMS).read_text().splitlines()]
    (folder / CHECKSUMS).write_text("".join(f"{md5.upper()} *{name}\n" for md5, name in lines))
    published_files.check_files(CIFAR10, str(folder))


# ---- the real ones


def test_the_real_mnist_is_read(tmp_path: Path) -> None:
    folder = str(real("mnist"))
    images, labels = read_split(MNIST, folder, TRAIN)
    assert images.shape == (60_000, 1, 28, 28)
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    known = facts.KNOWN[MNIST]
    assert images.mean() / 255 == pytest.approx(known.mean[0], abs=1e-4)
    assert images[:5000].std() / 255 == pytest.approx(known.deviation[0], abs=2e-3)
    assert len(read_split(MNIST, folder, VALID)[1]) == 10_000
