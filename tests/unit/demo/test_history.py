"""The events of a repository add up to what git says of its last tree."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from countledger import Event
from countledger.infra import demo
from countledger.infra.demo import open_repository
from tests.unit.demo.repositories import (
    EXECUTABLE,
    LINK,
    ODD_NAMES,
    SUBMODULE,
    At,
    Content,
    Repository,
    git,
    make_odd_repository,
)
from tests.unit.demo.sums import ANN, lines_of, steps_of, sums_of, truth_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository."""
    return Repository(tmp_path / "repository")


def test_odd_names_modes_and_authors_add_up_to_the_last_tree(tmp_path: Path) -> None:
    made = make_odd_repository(tmp_path / "odd")

    sums = lines_of(made.path)

    living = [name for n, name in enumerate(ODD_NAMES) if n % 5]
    three = [name for n, name in enumerate(ODD_NAMES) if n % 5 and n % 2 == 0]
    files = {"link": 3, "module": 2, "main": 1, "side": 2}
    assert len(living) * 2 + len(three) + sum(files.values()) == sum(sums.values())
    assert files == {name: sums[name] for name in files}
    assert len(living) + len(files) == len(sums)


def test_every_event_has_a_key_of_its_own_and_no_delta_is_zero(tmp_path: Path) -> None:
    steps = steps_of(make_odd_repository(tmp_path / "odd").path)

    assert len({(step.counter, step.key) for step in steps}) == len(steps)
    assert all(step.delta for step in steps)
    assert all(len(str(step.key).encode()) <= 1024 for step in steps)


def test_events_come_oldest_first_under_the_keys_of_their_commits(repository: Repository) -> None:
    first = repository.commit({b"a": b"1\n2\n"})
    second = repository.commit({b"a": b"1\n"})

    written = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert steps_of(repository.path) == [
        Event(ANN, 1, first, written),
        Event("lines:a", 2, f"{first}:a", written),
        Event(ANN, 1, second, written),
        Event("lines:a", -1, f"{second}:a", written),
    ]


@pytest.mark.parametrize(
    ("stages", "lines"),
    [
        pytest.param([b"a\nb"], 2, id="no newline at the end"),
        pytest.param([b"a\nb", b"a\nb\n"], 2, id="newline added at the end"),
        pytest.param([b"a\n", b""], 0, id="emptied"),
        pytest.param([b"", b"\n"], 1, id="one empty line"),
        pytest.param([b"a\r\nb\r\n", b"a\nb\n"], 2, id="line ends changed"),
        pytest.param([b"a\n", b"a\n\0"], 0, id="text to binary"),
        pytest.param([b"\0\n\n", b"a\n"], 1, id="binary to text"),
        pytest.param([b"a\n", b"\0", b"\0\0", b"a\nb\n", None], 0, id="there and back, then gone"),
        pytest.param([b"x\n" * 5000 + b"\0\n"], 5001, id="a NUL beyond the sniffed bytes"),
        pytest.param([b"x" * 7999 + b"\0"], 0, id="a NUL in the last sniffed byte"),
        pytest.param([b"x" * 8000 + b"\0"], 1, id="a NUL in the first byte behind them"),
        pytest.param([b"\xff\xfea\0\n\0"], 0, id="UTF-16 is binary"),
        pytest.param([b"\xff\xfe\n\x80\n"], 2, id="not UTF-8 but text"),
        pytest.param([b"a\n", At(EXECUTABLE, b"a\n")], 1, id="mode only"),
        pytest.param([b"a\nb\n", At(LINK, b"target")], 1, id="file to link"),
        pytest.param([At(LINK, b"target"), b"a\nb\n"], 2, id="link to file"),
        pytest.param([At(LINK, b"a\nb"), At(LINK, b"c")], 1, id="link with a newline"),
        pytest.param([b"\0", At(LINK, b"target")], 1, id="binary to link"),
        pytest.param([At(SUBMODULE, b"1" * 40)], 0, id="submodule added"),
        pytest.param([At(SUBMODULE, b"1" * 40), At(SUBMODULE, b"2" * 40)], 0, id="bumped"),
        pytest.param([At(SUBMODULE, b"1" * 40), None], 0, id="submodule removed"),
        pytest.param([At(SUBMODULE, b"1" * 40), b"a\nb\n"], 2, id="submodule to file"),
        pytest.param([b"a\nb\n", At(SUBMODULE, b"1" * 40)], 0, id="file to submodule"),
        pytest.param([b"\0", At(SUBMODULE, b"1" * 40), At(LINK, b"t")], 1, id="all kinds"),
        pytest.param([b"a\n", None, b"a\nb\n"], 2, id="removed and added again"),
        pytest.param([b"a\nb\nc\n", b"c\nb\na\n", b"a\nc\n"], 2, id="reordered"),
    ],
)
def test_a_file_counts_what_it_holds_at_last(
    repository: Repository, stages: list[Content], lines: int
) -> None:
    for content in stages:
        repository.commit({b"path": content})

    assert lines_of(repository.path).get("path", 0) == lines


def test_a_directory_may_take_the_place_of_a_file_and_back(repository: Repository) -> None:
    repository.commit({b"a": b"1\n"})
    repository.commit({b"a": None, b"a/b": b"1\n2\n"})

    assert lines_of(repository.path) == {"a/b": 2}

    repository.commit({b"a/b": None, b"a": b"1\n2\n3\n"})

    assert lines_of(repository.path) == {"a": 3}


def test_a_rename_moves_the_lines_to_the_new_path(repository: Repository) -> None:
    git(repository.path, "config", "diff.renames", "copies")
    repository.commit({b"old": b"1\n2\n3\n"})
    repository.commit({b"old": None, b"new": b"1\n2\n3\n"})

    assert lines_of(repository.path) == {"new": 3}
    assert len(steps_of(repository.path)) == 5


def test_a_merge_counts_against_its_first_parent(repository: Repository) -> None:
    repository.commit({b"a": b"1\n"})
    side = repository.commit({b"b": b"1\n"}, branch="side", start="main")
    side = repository.commit({b"b": b"1\n2\n"}, branch="side")
    repository.commit({b"c": b"1\n"})
    merge = repository.commit({b"b": b"1\n2\n", b"a": b"1\n2\n"}, merge=side)

    steps = steps_of(repository.path)

    assert lines_of(repository.path) == {"a": 2, "b": 2, "c": 1}
    written = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert Event("lines:b", 2, f"{merge}:b", written) in steps
    assert sums_of(steps)[ANN] == 3


def test_the_commits_that_git_lists_at_once_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_odd_repository(tmp_path / "odd")
    steps = steps_of(made.path)

    for at_once in (1, 4):
        monkeypatch.setattr(demo, "_COMMITS_AT_ONCE", at_once)
        assert steps_of(made.path) == steps


def test_empty_commits_count_their_authors(repository: Repository) -> None:
    for _ in range(3):
        repository.commit()

    assert sums_of(steps_of(repository.path)) == {ANN: 3} == truth_of(repository.path)


@pytest.mark.parametrize("date", [b"9" * 15, b"9" * 30, b"yesterday", b"-5", b""])
def test_a_date_that_nobody_can_read_is_none(repository: Repository, date: bytes) -> None:
    commit = repository.commit()
    body = git(repository.path, "cat-file", "commit", commit)
    body = body.replace(b"ann@example.org> 1 ", b"ann@example.org> %s " % date)
    write = ("hash-object", "-t", "commit", "-w", "--literally", "--stdin")
    odd = git(repository.path, *write, stdin=body).decode().strip()
    git(repository.path, "update-ref", "refs/heads/main", odd)

    assert steps_of(repository.path) == [Event(ANN, 1, odd, None)]


@pytest.mark.parametrize(
    ("author", "encoding", "counter"),
    [
        (b"", b"", "commits:%"),
        (b"100% #1", b"", "commits:100%25 %231"),
        (b"Tab\tNewpage\x0c", b"", "commits:Tab%09Newpage%0C"),
        (b'O\'Neil, "Q" (x)', b"", 'commits:O\'Neil, "Q" (x)'),
        (b"caf\xe9", b"ISO-8859-1", "commits:café"),
        (b"caf\xe9", b"", "commits:caf%E9"),
        ("日本 🎉".encode(), b"", "commits:日本 🎉"),
        (b"%aN %an", b"", "commits:%25aN %25an"),
        (b"[bot]: a:b", b"", "commits:[bot]: a:b"),
        (b'"Q", Jr.;', b"", 'commits:"Q", Jr.;'),
        (b"A, B,", b"", "commits:A, B,"),
        (b"caf\xe9", b"no-such-encoding", "commits:caf%E9"),
    ],
)
def test_an_author_is_counted_under_the_name_in_the_commit(
    repository: Repository, author: bytes, encoding: bytes, counter: str
) -> None:
    repository.commit(author=author, encoding=encoding)

    assert {counter: 1} == sums_of(steps_of(repository.path)) == truth_of(repository.path)


def test_random_histories_add_up(tmp_path: Path) -> None:
    dice = random.Random(20_240_611)  # noqa: S311 - a test that can be run again
    bodies: list[Content] = [b"", b"a", b"a\n", b"a\nb\n\n", b"\0", b"a\n\0b", b"\n" * 30, None]
    bodies += [At(LINK, b"a"), At(SUBMODULE, b"3" * 40), At(EXECUTABLE, b"b\na\n")]
    made = Repository(tmp_path / "random")
    for _ in range(40):
        names = dice.sample([b"a", b"b", b"c", b"d/a", b"d/b", b"e"], 3)
        made.commit({name: dice.choice(bodies) for name in names})

    with open_repository(made.path) as opened:
        assert len(opened.commits) == 40
    lines_of(made.path)
