"""The file of an export: one whole export, after any kill and beside any other file."""

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from countledger.consumers.audit import WalkPosition, start
from countledger.infra.portability.export import (
    Exporter,
    ExportFile,
    open_export,
    part_beside,
    place_beside,
)
from countledger.infra.portability.lines import CounterLine
from countledger.ledger.errors import BadSetting
from countledger.ledger.ids import unique_id
from countledger.testing import MemoryStack

COUNTERS = 40
ALL = {f"likes:{n}" for n in range(COUNTERS)}
_LINE = CounterLine(counter="likes:a", value=1)
# For each folder and number: exports into the folder by a process that is killed at so many waits
# for the disk, and again when the values have changed. Prints how many lines the second one kept.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from countledger import Event
from countledger.infra.portability.export import open_export
from countledger.ledger.ids import unique_id
from countledger.infra.portability.export import Exporter
from countledger.testing import MemoryStack

def export(stack, out):
    exporter = Exporter(stack.ledger)
    with open_export(out, exporter.purpose, unique_id) as file:
        begun = file.counters, file.continues
        for _ in exporter.write_all(file, entries_per_page=5, totals_per_page=2):
            pass
    return begun

def killed(stack, out, left):
    plain = os.fsync
    def fsync(descriptor):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(descriptor)
    os.fsync = fsync
    export(stack, out)

counters, held = int(sys.argv[1]), sys.argv[2] == "held"
for folder, left in zip(sys.argv[3::2], sys.argv[4::2]):
    out = Path(folder) / "all.jsonl"
    stack = MemoryStack()
    if held:
        stack.hold_stream()
    changes = [Event(f"likes:{n % counters}", 1) for n in range(2 * counters)]
    stack.ledger.record_many(changes)
    child = os.fork()
    if child == 0:
        killed(stack, out, int(left))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    if status == 0:
        out.unlink()
    stack.ledger.record_many(changes)
    if held:
        stack.deliver()
    print(*export(stack, out))
"""


def _killed_and_again(folders: dict[Path, int], held: str = "delivered") -> list[list[str]]:
    """Of each second export: how many counters it had at its begin, and whether it continues."""
    pairs = [part for folder, left in folders.items() for part in (str(folder), str(left))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(COUNTERS), held, *pairs],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def _documents(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _is_one_whole_export(out: Path, expected: set[str] = ALL) -> None:
    header, *documents = _documents(out)
    assert "export" in header
    names = Counter(one["counter"] for one in documents if "counter" in one)
    assert [name for name, times in names.items() if times > 1] == []
    assert set(names) == expected
    assert len([one for one in documents if "namespace" in one]) == 1
    assert not any("export" in one for one in documents)
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("held", ["delivered", "held"])
def test_a_killed_export_goes_on_and_has_each_counter_once(tmp_path: Path, held: str) -> None:
    """Killed at each wait for the disk, also where totals appear while it is interrupted."""
    folders = {tmp_path / str(left): left for left in range(1, 25)}
    for folder in folders:
        folder.mkdir()

    printed = _killed_and_again(folders, held)

    for folder in folders:
        _is_one_whole_export(folder / "all.jsonl")
    assert [continues for _, continues in printed[:3]] == ["False"] * 3
    assert [continues for _, continues in printed[3:9]] == ["True"] * 6
    assert len({kept for kept, _ in printed}) > 4


def _interrupted(out: Path, namespace: str | None = None) -> None:
    """An export of another stack that was left with its place after some counters."""
    stack = MemoryStack()
    stack.ledger.record("other:counter", 7)
    exporter = Exporter(stack.ledger, namespace)
    with open_export(out, exporter.purpose, unique_id) as file:
        next(exporter.write_all(file))
        file.save(WalkPosition(start()))


def _exported(out: Path, value: int = 1) -> ExportFile:
    stack = MemoryStack()
    stack.ledger.record("likes:a", value)
    exporter = Exporter(stack.ledger)
    with open_export(out, exporter.purpose, unique_id) as file:
        assert list(exporter.write_all(file))
    return file


@pytest.mark.parametrize(
    "foreign",
    [b"half a li" * 1000, b'{"counter": "likes:x", "value": 1}\n', b"\x89PNG\r\n\x1a\n\xff"],
)
@pytest.mark.parametrize("with_place", [False, True])
@pytest.mark.parametrize("continues", [True, False])
def test_a_file_that_is_no_part_of_an_export_is_refused_and_stays(
    tmp_path: Path, foreign: bytes, *, continues: bool, with_place: bool
) -> None:
    """Such as a download: other programs call their unfinished files so, too."""
    out = tmp_path / "all.jsonl"
    if with_place:
        _interrupted(out)
    part_beside(out).write_bytes(foreign)
    files = {one: one.read_bytes() for one in tmp_path.iterdir()}

    with (
        pytest.raises(BadSetting, match=r"all\.jsonl\.part is not part of an export"),
        open_export(out, Exporter(MemoryStack().ledger).purpose, unique_id, continues=continues),
    ):
        pass

    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == files


@pytest.mark.parametrize("with_place", [False, True])
def test_an_empty_part_is_begun_again(tmp_path: Path, *, with_place: bool) -> None:
    """It is left by a kill between its creation and its first line."""
    out = tmp_path / "all.jsonl"
    if with_place:
        _interrupted(out)
    part_beside(out).write_bytes(b"")

    file = _exported(out)

    _is_one_whole_export(out, {"likes:a"})
    assert (file.replaced, file.continues) == (True, False)


@pytest.mark.parametrize("place", ["kept", "lost", "exchanged"])
@pytest.mark.parametrize("continues", [True, False])
def test_an_interrupted_export_of_something_else_is_refused_and_stays(
    tmp_path: Path, place: str, *, continues: bool
) -> None:
    """Such as that of a namespace: what it has done may have taken hours."""
    out = tmp_path / "all.jsonl"
    _interrupted(out, "other")
    if place != "kept":
        place_beside(out).unlink()
    if place == "exchanged":
        _interrupted(tmp_path / "new.jsonl")
        place_beside(tmp_path / "new.jsonl").replace(place_beside(out))
    files = {one: one.read_bytes() for one in tmp_path.iterdir()}

    with (
        pytest.raises(
            BadSetting, match=r"belongs to an interrupted export of .*other.*remove .*\.part"
        ),
        open_export(out, "2 counters of another stack", unique_id, continues=continues),
    ):
        pass

    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == files


def test_a_place_that_is_left_without_its_part_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "all.jsonl"
    _interrupted(out)
    part_beside(out).unlink()

    assert not _exported(out).continues

    _is_one_whole_export(out, {"likes:a"})


def test_a_part_that_was_exchanged_for_that_of_a_like_export_is_begun_again(tmp_path: Path) -> None:
    """Both are of the same stack: only their ids differ."""
    out, other = tmp_path / "all.jsonl", tmp_path / "other.jsonl"
    _interrupted(out)
    _interrupted(other)
    part_beside(other).replace(part_beside(out))
    place_beside(other).unlink()

    assert not _exported(out, 3).continues

    _is_one_whole_export(out, {"likes:a"})


@pytest.mark.parametrize("left", [-1, -10])
def test_a_part_that_is_shorter_than_its_place_is_begun_again(tmp_path: Path, left: int) -> None:
    out = tmp_path / "all.jsonl"
    _interrupted(out)
    part_beside(out).write_bytes(part_beside(out).read_bytes()[:left])

    assert not _exported(out).continues

    _is_one_whole_export(out, {"likes:a"})


@pytest.mark.parametrize("with_part", [False, True])
@pytest.mark.parametrize("continues", [True, False])
def test_a_place_of_something_else_is_refused_and_stays(
    tmp_path: Path, *, continues: bool, with_part: bool
) -> None:
    """Such as that of an import of a file of the same name."""
    out = tmp_path / "all.jsonl"
    if with_part:
        part_beside(out).write_bytes(b"")
    place_beside(out).write_bytes(b"SQLite format 3\0")

    with (
        pytest.raises(BadSetting, match="not the place of an export"),
        open_export(out, "p", unique_id, continues=continues),
    ):
        pass

    assert place_beside(out).read_bytes() == b"SQLite format 3\0"
    assert part_beside(out).exists() == with_part


def test_a_part_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Another user of a shared directory would have a file of ours overwritten."""
    out, precious = tmp_path / "all.jsonl", tmp_path / "precious"
    precious.write_text("precious")
    part_beside(out).symlink_to(precious)

    with (
        pytest.raises(BadSetting, match=r"all\.jsonl\.part"),
        open_export(out, "purpose", unique_id),
    ):
        pass

    assert precious.read_text() == "precious"


def test_an_export_can_be_read_by_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    out = tmp_path / "all.jsonl"
    part_beside(out).touch()
    part_beside(out).chmod(0o644)
    before = os.umask(0)
    try:
        with open_export(out, "purpose", unique_id) as file:
            file.add([_LINE])
            file.save(WalkPosition(start()))
            private = {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
            file.complete()
    finally:
        os.umask(before)

    assert private == {0o600}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [out]


def test_an_export_that_was_suspended_never_writes_into_the_file_of_another_one(
    tmp_path: Path,
) -> None:
    """The second one waits for nobody: it is refused until the first one has ended."""
    out = tmp_path / "all.jsonl"
    with open_export(out, "purpose", unique_id) as suspended:
        suspended.add([_LINE])
        for continues in (True, False):
            with (
                pytest.raises(BadSetting, match="in use"),
                open_export(out, "purpose", unique_id, continues=continues),
            ):
                pass
        suspended.save(WalkPosition(start()))
    assert part_beside(out).read_text().count("\n") == 2

    with open_export(out, "purpose", unique_id) as second:
        second.add([CounterLine(counter="likes:b", value=1)])
        second.complete()

    assert out.read_text().count("\n") == 3


def test_an_export_that_opened_a_file_before_it_was_complete_does_not_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its open and its lock the other one gave the file its name."""
    out = tmp_path / "all.jsonl"
    with open_export(out, "purpose", unique_id) as first:
        first.save(WalkPosition(start()))
    opened = os.open

    def completed(path: Path, flags: int, mode: int = 0) -> int:
        descriptor = opened(path, flags, mode)
        if path == part_beside(out):
            monkeypatch.setattr(os, "open", opened)
            part_beside(out).replace(out)
        return descriptor

    monkeypatch.setattr(os, "open", completed)
    with pytest.raises(BadSetting, match="in use"), open_export(out, "purpose", unique_id):
        pass

    assert out.read_text().count("\n") == 1
