"""Files with data of users can be read by their owner alone, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger.consumers.audit import FileBookmarks, WalkPosition, start
from countledger.infra.portability.sending import FilePlace, open_place
from countledger.ledger.errors import BadSetting
from countledger.ledger.private_files import replace_private
from countledger.producers.buffer.settings import SpoolRefused
from countledger.producers.buffer.spool import Spool


@pytest.fixture(autouse=True, params=[0, 0o022, 0o027])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


def test_a_spool_and_its_log_are_private(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "spool", ledger="l")
    names = {one.name for one in tmp_path.iterdir()}
    spool_modes = modes(tmp_path)
    spool.close()

    assert "spool-wal" in names
    assert spool_modes == {0o600}


def test_the_place_of_an_emit_is_private(tmp_path: Path) -> None:
    with open_place(tmp_path / "place") as place:
        place.save(FilePlace(id="a", purpose="p"))

        assert modes(tmp_path) == {0o600}


def test_the_position_of_a_walk_is_private(tmp_path: Path) -> None:
    path = tmp_path / "position"
    path.write_text("readable by all")

    FileBookmarks(path, "p").save(WalkPosition(start()))

    assert modes(tmp_path) == {0o600}


def test_an_existing_spool_keeps_its_mode_and_so_does_its_folder(tmp_path: Path) -> None:
    """An operator may share it with a group."""
    folder = tmp_path / "spools"
    folder.mkdir(mode=0o750)
    folder.chmod(0o750)
    path = folder / "spool"
    path.touch()
    path.chmod(0o640)

    Spool.open(path, ledger="l").close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def test_a_file_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "file"

    with pytest.raises(SpoolRefused, match="no/file"):
        Spool.open(missing, ledger="l")
    with pytest.raises(BadSetting, match="no/file"), open_place(missing):
        pass
    with pytest.raises(BadSetting, match="no/file"):
        FileBookmarks(missing, "p").save(WalkPosition(start()))


def test_a_replacement_leaves_nothing_behind(tmp_path: Path) -> None:
    replace_private(tmp_path / "file", "whole")

    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "whole"


def test_a_replacement_under_a_lock_removes_what_a_killed_process_has_left(tmp_path: Path) -> None:
    (tmp_path / "file.new").write_text("half")

    replace_private(tmp_path / "file", "whole", locked=True)

    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "whole"
    assert modes(tmp_path) == {0o600}


def test_two_processes_that_replace_a_file_at_once_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins and ends while the first one has written a part."""
    path, fsync = tmp_path / "file", os.fsync

    def meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        replace_private(path, "of the second")
        assert path.read_text() == "of the second"
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    replace_private(path, "of the first")

    assert path.read_text() == "of the first"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert modes(tmp_path) == {0o600}


def test_a_replacement_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_private(path, "new")

    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
