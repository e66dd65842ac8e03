"""Hostile data files: MNIST and CIFAR-10 as they are published, and folders of photographs."""

import gzip
import io
import struct

import numpy as np
from hostile import damaged, refusal, scratch_folder
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from small_sets import read_split, write_cifar10, write_mnist

from trainscale.errors import InputError
from trainscale.worker.data import published_files
from trainscale.worker.data.facts import CIFAR10, MNIST, TRAIN, VALID, DataError
from trainscale.worker.data.folder import decode_photograph, inspect_photograph, list_photographs

FOLDER = scratch_folder("data")
SETS = {MNIST: write_mnist(FOLDER / "mnist", 10, 4), CIFAR10: write_cifar10(FOLDER / "cifar10", 10, 4)}
LENGTHS = st.sampled_from([0, 1, 28, 4, 255, 2**31, 2**32 - 1])
IDX = st.builds(
    lambda magic, lengths, body: gzip.compress(struct.pack(f">{1 + len(lengths)}I", magic, *lengths) + body, mtime=0),
    st.sampled_from([2051, 2049, 0]),
    st.lists(LENGTHS, max_size=3),
    st.one_of(st.binary(max_size=30), st.just(bytes(28 * 28))),
)


def _photograph(form: str) -> bytes:
    out = io.BytesIO()
    pixels = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)
    Image.fromarray(pixels).save(out, form)
    return out.getvalue()


PHOTOGRAPHS = {ending: _photograph(form) for ending, form in ((".jpg", "JPEG"), (".png", "PNG"), (".bmp", "BMP"))}


def data_refusal(read: object) -> str:
    """Return the message of a DataError, which the commands show as an InputError."""

    def call() -> None:
        try:
            read()  # type: ignore[operator]
        except DataError as error:
            raise InputError(str(error)) from None

    return refusal(call)


@given(
    st.one_of(IDX, damaged(gzip.compress(struct.pack(">2I", 2049, 4) + b"\1\2\3\4", mtime=0))), st.sampled_from([1, 3])
)
def test_mnist_files(content: bytes, axes: int) -> None:
    path = FOLDER / "some-ubyte.gz"
    path.write_bytes(content)
    message = data_refusal(lambda: published_files._read_idx(str(path), axes))
    assert not message or str(path) in message


@given(st.binary(max_size=40), st.sampled_from([0, 1, 3073, 6146]), st.sampled_from([".bin", ""]))
def test_cifar10_files(content: bytes, length: int, ending: str) -> None:
    path = FOLDER / f"some_batch{ending}"
    path.write_bytes((content * 200)[:length] if length else content)
    read = published_files._read_records if ending else published_files._read_pickle
    message = data_refusal(lambda: read(str(path)))
    assert not message or str(path) in message


CHECKSUMS = {name: (folder / published_files.CHECKSUMS).read_bytes() for name, folder in SETS.items()}


@given(st.sampled_from([MNIST, CIFAR10]), st.sampled_from([TRAIN, VALID]), st.data())
def test_checksums(name: str, split: str, data: st.DataObject) -> None:
    path = SETS[name] / published_files.CHECKSUMS
    path.write_bytes(data.draw(damaged(CHECKSUMS[name])))
    message = data_refusal(lambda: read_split(name, str(SETS[name]), split))
    assert not message or str(SETS[name]) in message


@given(st.sampled_from(sorted(PHOTOGRAPHS)), st.data(), st.booleans())
def test_photographs(ending: str, data: st.DataObject, random: bool) -> None:
    path = FOLDER / "photos" / "train" / "class" / f"picture{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.draw(damaged(PHOTOGRAPHS[ending])))
    assert str(path) in list_photographs(str(FOLDER / "photos"), TRAIN).paths
    out = np.zeros((3, 8, 8), np.uint8)
    draws = (0.5, 0.5, 0.1, 0.9, 0.2) if random else None
    for read in (lambda: inspect_photograph(str(path)), lambda: decode_photograph(out, str(path), draws)):
        message = data_refusal(read)
        assert not message or str(path) in message
