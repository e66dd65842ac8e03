"""Downloads from a real server: continued after an interruption, from another server if one fails, and checked."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from web import Site, serving

from trainscale.cluster import download
from trainscale.cluster.download import DownloadFailed
from trainscale.errors import InputError
from trainscale.worker.data.published_files import PublishedFile

CONTENT = random.Random(1).randbytes(1_000_000)
FILE = PublishedFile("images.gz", len(CONTENT), hashlib.md5(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _no_pause_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site({FILE.name: CONTENT})
    with serving(server):
        yield server


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def get(target: Path, *sites: Site) -> list[int]:
    """What the watcher was told of bytes that are there."""
    seen: list[int] = []
    download.download(
        FILE, [f"{site.address}/{FILE.name}" for site in sites], target, lambda _, done, __: seen.append(done)
    )
    return seen


def test_a_file_comes_whole_under_its_name_and_the_watcher_sees_it_grow(site: Site, tmp_path: Path) -> None:
    seen = get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert seen[-1] == FILE.size
    assert names(tmp_path) == ["a"]


def test_after_a_cut_only_the_rest_is_asked_for(site: Site, tmp_path: Path) -> None:
    site.cuts = [300_000, 1, 400_000]
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert site.requested_ranges() == ["", "bytes=300000-", "bytes=300001-", "bytes=700001-"]


def test_what_an_earlier_try_left_is_continued(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:999_999])
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert site.requested_ranges() == ["bytes=999999-"]


def test_a_whole_part_is_only_checked(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT)
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert site.requests == []


@pytest.mark.parametrize("older", [b"x" * 1000, b"x" * FILE.size, CONTENT + b"x"], ids=["begun", "whole", "too long"])
def test_what_an_earlier_try_left_and_is_wrong_is_thrown_away(site: Site, tmp_path: Path, older: bytes) -> None:
    (tmp_path / "a.part").write_bytes(older)
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_server_that_does_not_know_of_parts_sends_all_again(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts = False, [600_000]
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert site.requested_ranges() == ["", "bytes=600000-"]


def test_a_server_that_sends_another_part_is_not_believed(site: Site, tmp_path: Path) -> None:
    site.wrong_part = True
    (tmp_path / "a.part").write_bytes(CONTENT[:10])
    with pytest.raises(DownloadFailed, match="another range than requested"):
        get(tmp_path / "a", site)
    assert (tmp_path / "a.part").read_bytes() == CONTENT[:10]


def test_a_server_that_is_tired_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.statuses = [503, 500]
    get(tmp_path / "a", site)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_the_next_place_continues_what_the_first_began(site: Site, tmp_path: Path) -> None:
    site.cuts, site.statuses = [200_000], [200, 404]
    with serving(other := Site({FILE.name: CONTENT})):
        get(tmp_path / "a", site, other)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert other.requested_ranges() == ["bytes=200000-"]


def test_a_corrupted_file_is_got_from_the_next_place(site: Site, tmp_path: Path) -> None:
    site.files[FILE.name] = CONTENT[:-1] + b"\0"
    with serving(other := Site({FILE.name: CONTENT})):
        get(tmp_path / "a", site, other)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_corrupted_file_that_no_place_has_right_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.files[FILE.name] = CONTENT[:-1] + b"\0"
    site.cuts = [500_000]
    with pytest.raises(DownloadFailed, match=f"another file than the published one: MD5 [0-9a-f]+, not {FILE.md5}"):
        get(tmp_path / "a", site)
    assert names(tmp_path) == []


def test_a_file_that_is_another_one_now_is_noticed_before_it_is_read(site: Site, tmp_path: Path) -> None:
    site.files[FILE.name] = CONTENT + b"more"
    (tmp_path / "a.part").write_bytes(CONTENT[:10])
    with pytest.raises(DownloadFailed, match="has 1,000,004 bytes, not 1,000,000: it is another file"):
        get(tmp_path / "a", site)
    assert (tmp_path / "a.part").read_bytes() == CONTENT[:10]


def test_every_place_that_failed_is_named_with_its_reason_and_what_came_is_kept(site: Site, tmp_path: Path) -> None:
    site.cuts = [100_000, 0, 0, 0]
    with serving(gone := Site()):
        pass
    with serving(other := Site()), pytest.raises(DownloadFailed) as raised:
        get(tmp_path / "a", site, other, gone)
    message = str(raised.value)
    assert raised.value.exit_code == 1
    assert "0.1 MB of it are here, and the same command continues" in message
    assert f"{site.address}/images.gz: the connection ended after 100,000 of 1,000,000 bytes" in message
    assert f"{other.address}/images.gz: 404 Not Found" in message
    assert f"{gone.address}/images.gz: Connection refused" in message
    assert "--from URL" in message
    assert names(tmp_path) == ["a.part"]
    assert len(other.requests) == 1  # asking again changes nothing


def test_a_folder_that_may_not_be_written_to_is_wrong_input(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").mkdir()
    with pytest.raises(InputError, match=r"a\.part cannot be written: Is a directory; name another folder"):
        get(tmp_path / "a", site)
