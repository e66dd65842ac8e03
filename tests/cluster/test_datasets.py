"""Getting published sets, from a server on this machine that has small ones; looking at what is there."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_sets import write_cifar10, write_folder, write_mnist
from web import Site, serving

from trainscale.cluster import datasets
from trainscale.cluster.datasets import download_dataset, inspect_dataset
from trainscale.errors import InputError, TrainscaleError
from trainscale.spec.data import find_dataset
from trainscale.worker.data import facts, published_files
from trainscale.worker.data.facts import CIFAR10, MNIST, TRAIN, DataError
from trainscale.worker.data.published_files import CHECKSUMS, Edition, PublishedFile

FOLDER = "cifar-10-batches-bin"


def published(folder: Path) -> tuple[PublishedFile, ...]:
    """The files of a small set as if they were the published ones."""
    files = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        if path.name != CHECKSUMS:
            files.append(PublishedFile(path.name, len(content), hashlib.md5(content).hexdigest()))
    return tuple(sorted(files, key=lambda file: file.split != TRAIN))


def pack(folder: Path, more: dict[str, bytes]) -> bytes:
    """An archive of a set, with other members among its files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        contents = {f"{FOLDER}/{path.name}": path.read_bytes() for path in folder.iterdir() if path.name != CHECKSUMS}
        for name, content in {**more, **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(f"{FOLDER}/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Has a small MNIST, and a small CIFAR-10 in an archive with more in it than is wanted."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    mnist, cifar = write_mnist(tmp_path / "m", 20, 10), write_cifar10(tmp_path / "c", 20, 10)
    archive = pack(cifar, {"../outside": b"x", f"{FOLDER}/readme.html": b"x", "/tmp/absolute": b"x"})
    named = PublishedFile("cifar.tar.gz", len(archive), hashlib.md5(archive).hexdigest())
    editions = {
        MNIST: (Edition(published(mnist)),),
        CIFAR10: (Edition(published(cifar), FOLDER), *published_files.EDITIONS[CIFAR10][1:]),
    }
    for name, edition in editions.items():
        monkeypatch.setitem(published_files.EDITIONS, name, edition)
        monkeypatch.setitem(facts.KNOWN, name, replace(facts.KNOWN[name], train=20, valid=10))
    site = Site({path.name: path.read_bytes() for path in mnist.iterdir()} | {"cifar.tar.gz": archive})
    with serving(site) as address:
        monkeypatch.setitem(datasets.PUBLISHED, MNIST, ((f"{address}/nowhere?", f"{address}/"), None))
        monkeypatch.setitem(datasets.PUBLISHED, CIFAR10, ((f"{address}/",), named))
        yield site


def quiet(name: str, directory: Path, base: str | None = None) -> list[str]:
    return [path.relative_to(directory).as_posix() for path in download_dataset(name, directory, base, lambda *_: None)]


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_mnist_is_got_file_by_file(site: Site, tmp_path: Path) -> None:
    got = quiet(MNIST, tmp_path / "new" / "folder", site.address)
    assert len(got) == 4
    assert sorted(got) == tree(tmp_path / "new" / "folder")
    published_files.check_files(MNIST, str(tmp_path / "new" / "folder"))


def test_of_an_archive_only_the_wanted_files_are_taken(site: Site, tmp_path: Path) -> None:
    got = quiet(CIFAR10, tmp_path / "new")
    assert tree(tmp_path / "new") == sorted([FOLDER, *got])
    assert {Path(name).name for name in got} == {file.name for file in published_files.EDITIONS[CIFAR10][0].files}
    assert not (tmp_path / "outside").exists()
    published_files.check_files(CIFAR10, str(tmp_path / "new"))


@pytest.mark.parametrize("name", [MNIST, CIFAR10])
def test_what_is_there_and_right_is_not_got_again(site: Site, tmp_path: Path, name: str) -> None:
    quiet(name, tmp_path / "new", site.address)
    site.requests.clear()
    assert quiet(name, tmp_path / "new", site.address) == []
    assert site.requests == []


def test_only_what_is_missing_or_damaged_is_got(site: Site, tmp_path: Path) -> None:
    quiet(MNIST, tmp_path / "new", site.address)
    (tmp_path / "new" / "t10k-labels-idx1-ubyte.gz").unlink()
    (tmp_path / "new" / "train-labels-idx1-ubyte.gz").write_bytes(b"not this")
    site.requests.clear()
    assert quiet(MNIST, tmp_path / "new", site.address) == ["train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
    assert len(site.requests) == 2
    published_files.check_files(MNIST, str(tmp_path / "new"))


def test_a_damaged_file_of_an_archive_is_replaced_where_it_lies(site: Site, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "c", tmp_path / "flat", ignore=shutil.ignore_patterns(CHECKSUMS))
    (tmp_path / "flat" / "test_batch.bin").write_bytes(b"not this")
    assert quiet(CIFAR10, tmp_path / "flat") == ["test_batch.bin"]
    published_files.check_files(CIFAR10, str(tmp_path / "flat"))
    # An archive that came whole before is not got again
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "cifar.tar.gz").write_bytes(site.files["cifar.tar.gz"])
    site.requests.clear()
    quiet(CIFAR10, tmp_path / "new")
    assert site.requests == []


def test_files_that_are_not_the_published_ones_are_left_alone(site: Site, tmp_path: Path) -> None:
    own = write_cifar10(tmp_path / "own", 10, 5)
    assert quiet(CIFAR10, own) == []
    (own / "test_batch.bin").unlink()
    before = tree(own)
    with pytest.raises(InputError, match=r"has its own checksums\.md5.*test_batch\.bin is missing"):
        quiet(CIFAR10, own)
    assert tree(own) == before
    assert site.requests == []


def test_the_next_server_is_asked_and_every_reason_is_told(site: Site, tmp_path: Path) -> None:
    first, *_ = published_files.EDITIONS[MNIST][0].files
    right = site.files.pop(first.name)
    site.files[first.name] = b"x" + right[1:]
    with pytest.raises(TrainscaleError) as caught:
        quiet(MNIST, tmp_path / "new")
    message = str(caught.value)
    assert message.startswith(f"{first.name} could not be downloaded\n")
    assert f"{site.address}/nowhere?{first.name}: 404 Not Found\n" in message
    assert f"{site.address}/{first.name}: it sends another file than the published one: MD5" in message
    assert "--from URL" in message
    assert tree(tmp_path / "new") == []
    site.files[first.name] = right
    site.cuts = [10]  # a connection that ends early
    with pytest.raises(TrainscaleError, match=r"another file than the published one|IncompleteRead"):
        quiet(MNIST, tmp_path / "new", site.address)
    assert tree(tmp_path / "new") == []
    assert len(quiet(MNIST, tmp_path / "new")) == 4
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file cannot be written: File exists; name another folder"):
        quiet(MNIST, tmp_path / "file")


def test_a_damaged_archive_gives_no_file(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (edition, *others) = published_files.EDITIONS[CIFAR10]
    *first, last = edition.files
    other = Edition((*first, PublishedFile(last.name, last.size, "0" * 32)), FOLDER)
    monkeypatch.setitem(published_files.EDITIONS, CIFAR10, (other, *others))
    with pytest.raises(TrainscaleError, match=r"test_batch\.bin of .* is damaged"):
        quiet(CIFAR10, tmp_path / "new")
    assert not (tmp_path / "new" / FOLDER / "test_batch.bin").exists()
    assert not list((tmp_path / "new").rglob("*.part"))


def test_a_set_is_counted_and_its_checksums_are_looked_at(tmp_path: Path) -> None:
    inspected = inspect_dataset(find_dataset(f"mnist:{write_mnist(tmp_path, 30, 7)}"))
    facts = inspected.facts
    assert (facts.train, facts.valid, facts.classes, inspected.published) == (30, 7, 10, False)
    assert inspected.bytes == sum(path.stat().st_size for path in tmp_path.iterdir() if path.name != CHECKSUMS)


def test_of_a_folder_every_photograph_is_opened(tmp_path: Path) -> None:
    write_folder(tmp_path, sizes=[(40, 30), (100, 20), (64, 64)])
    seen: list[tuple[int, int]] = []
    inspected = inspect_dataset(find_dataset(f"imagefolder:{tmp_path}"), lambda *counts: seen.append(counts))
    assert inspected.sizes == ((40, 30), (64, 64))
    assert (inspected.facts.train, inspected.facts.valid, inspected.facts.classes) == (6, 6, 2)
    assert seen[-1] == (12, 12)
    path = next((tmp_path / "val").rglob("*.jpg"))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=f"{path} is damaged, or no photograph: .*truncated"):
        inspect_dataset(find_dataset(f"imagefolder:{tmp_path}"))
