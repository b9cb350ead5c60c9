"""The events of a repository add up to what git says of its last tree."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from countledger.infra.demo.git import open_repository
from countledger.infra.demo.history import Step, count_commits, read_steps
from countledger.infra.demo.truth import read_truth
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

if TYPE_CHECKING:
    from pathlib import Path

ANN = "commits:Ann Author"


def steps_of(path: Path) -> list[Step]:
    """All events of the repository."""
    with open_repository(path) as view:
        return [step for steps in read_steps(view) for step in steps]


def sums_of(steps: list[Step]) -> dict[str, int]:
    """What the counters come to, without those at zero."""
    sums: Counter[str] = Counter()
    for step in steps:
        sums[step.counter] += step.delta
    return {counter: total for counter, total in sums.items() if total}


def truth_of(path: Path) -> dict[str, int]:
    """What git says itself."""
    with open_repository(path) as view:
        return read_truth(view)


def lines_of(path: Path) -> dict[str, int]:
    """The checked sums of the files, by path."""
    sums = sums_of(steps_of(path))

    assert truth_of(path) == sums
    return {name[6:]: total for name, total in sums.items() if name.startswith("lines:")}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository."""
    return Repository(tmp_path / "repository")


def test_odd_names_modes_and_authors_add_up_to_the_last_tree(tmp_path: Path) -> None:
    """Everything odd at once, checked against git and against plain arithmetic."""
    made = make_odd_repository(tmp_path / "odd")

    sums = lines_of(made.path)

    living = [name for n, name in enumerate(ODD_NAMES) if n % 5]
    three = [name for n, name in enumerate(ODD_NAMES) if n % 5 and n % 2 == 0]
    files = {"link": 3, "module": 2, "main": 1, "side": 2}
    assert len(living) * 2 + len(three) + sum(files.values()) == sum(sums.values())
    assert files == {name: sums[name] for name in files}
    assert len(living) + len(files) == len(sums)


def test_every_event_has_a_key_of_its_own_and_no_delta_is_zero(tmp_path: Path) -> None:
    """Counter and key together name an event once, and every event says something."""
    steps = steps_of(make_odd_repository(tmp_path / "odd").path)

    assert len({(step.counter, step.key) for step in steps}) == len(steps)
    assert all(step.delta for step in steps)
    assert all(len(step.key.encode()) <= 1024 for step in steps)


def test_events_come_oldest_first_under_the_keys_of_their_commits(repository: Repository) -> None:
    """The order and the keys are those of the history."""
    first = repository.commit({b"a": b"1\n2\n"})
    second = repository.commit({b"a": b"1\n"})

    assert steps_of(repository.path) == [
        Step(ANN, 1, first),
        Step("lines:a", 2, f"{first}:a"),
        Step(ANN, 1, second),
        Step("lines:a", -1, f"{second}:a"),
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
    """Whatever a path has been, its deltas add up to the lines it has at HEAD."""
    for content in stages:
        repository.commit({b"path": content})

    assert lines_of(repository.path).get("path", 0) == lines


def test_a_directory_may_take_the_place_of_a_file_and_back(repository: Repository) -> None:
    """A path that becomes a directory is gone, and its files are new."""
    repository.commit({b"a": b"1\n"})
    repository.commit({b"a": None, b"a/b": b"1\n2\n"})

    assert lines_of(repository.path) == {"a/b": 2}

    repository.commit({b"a/b": None, b"a": b"1\n2\n3\n"})

    assert lines_of(repository.path) == {"a": 3}


def test_a_rename_moves_the_lines_to_the_new_path(repository: Repository) -> None:
    """Renames are two changes, whatever the configuration says."""
    git(repository.path, "config", "diff.renames", "copies")
    repository.commit({b"old": b"1\n2\n3\n"})
    repository.commit({b"old": None, b"new": b"1\n2\n3\n"})

    assert lines_of(repository.path) == {"new": 3}
    assert len(steps_of(repository.path)) == 5


def test_a_merge_counts_against_its_first_parent(repository: Repository) -> None:
    """What a merge brings in is counted once, with the merge."""
    repository.commit({b"a": b"1\n"})
    side = repository.commit({b"b": b"1\n"}, branch="side", start="main")
    side = repository.commit({b"b": b"1\n2\n"}, branch="side")
    repository.commit({b"c": b"1\n"})
    merge = repository.commit({b"b": b"1\n2\n", b"a": b"1\n2\n"}, merge=side)

    steps = steps_of(repository.path)

    assert lines_of(repository.path) == {"a": 2, "b": 2, "c": 1}
    assert Step("lines:b", 2, f"{merge}:b") in steps
    assert sums_of(steps)[ANN] == 3


def test_empty_commits_count_their_authors(repository: Repository) -> None:
    """A commit that changes nothing still is one of its author's."""
    for _ in range(3):
        repository.commit()

    assert sums_of(steps_of(repository.path)) == {ANN: 3} == truth_of(repository.path)


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
    ],
)
def test_an_author_is_counted_under_the_name_in_the_commit(
    repository: Repository, author: bytes, encoding: bytes, counter: str
) -> None:
    """Both of git's commands give the same name, however odd."""
    repository.commit(author=author, encoding=encoding)

    assert {counter: 1} == sums_of(steps_of(repository.path)) == truth_of(repository.path)


def test_no_configuration_and_no_attribute_alters_a_count(repository: Repository) -> None:
    """What a user set up for reading diffs does not reach the counts."""
    files = {b"a.txt": b"1\n2\n", b"b.bin": b"\0\n\n", b"caf\xe9": b"1\n"}
    attributes = b"*.txt -diff\n*.bin diff\n* textconv=shout\n* diff=shout\n*.txt binary\n"
    repository.commit({**files, b".gitattributes": attributes, b".mailmap": b"X <ann@example.org>"})
    repository.commit({b"a.txt": b"1\n2\n3\n"})
    before = steps_of(repository.path)
    (repository.path / ".gitattributes").write_bytes(attributes)
    (repository.path / ".mailmap").write_text("X <ann@example.org>\n")
    info = repository.path / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_bytes(attributes)
    for name, value in {
        "diff.algorithm": "patience",
        "diff.external": "false",
        "diff.shout.textconv": "false",
        "diff.shout.binary": "true",
        "diff.noprefix": "true",
        "diff.renames": "copies",
        "diff.submodule": "log",
        "diff.ignoreSubmodules": "all",
        "color.ui": "always",
        "core.quotepath": "false",
        "core.attributesFile": str(info / "attributes"),
        "core.bigFileThreshold": "1",
        "core.pager": "false",
        "log.showSignature": "true",
        "log.mailmap": "true",
        "log.showRoot": "false",
        "log.follow": "true",
        "format.pretty": "fuller",
        "i18n.logOutputEncoding": "UTF-16",
        "grep.fullName": "true",
        "grep.column": "true",
        "grep.lineNumber": "true",
    }.items():
        git(repository.path, "config", name, value)

    assert before == steps_of(repository.path)
    assert lines_of(repository.path) == {
        ".gitattributes": 5,
        ".mailmap": 1,
        "a.txt": 3,
        "caf%E9": 1,
    }


def test_replaced_objects_are_not_believed(repository: Repository) -> None:
    """A replacement reference of the user's changes what git shows, and not what is counted."""
    one = repository.commit({b"a": b"1\n"})
    two = repository.commit({b"a": b"1\n2\n"})
    git(repository.path, "replace", two, one)

    assert lines_of(repository.path) == {"a": 2}


def test_a_sha256_repository_counts_alike(tmp_path: Path) -> None:
    """The hash function of the objects makes no difference."""
    made = Repository(tmp_path / "long", "--object-format=sha256")
    oid = made.commit({b"a": b"1\n", b"m": At(SUBMODULE, b"1" * 64), b"b": b"\0"})

    assert len(oid) == 64
    assert lines_of(made.path) == {"a": 1}


def test_a_bare_repository_counts_alike(tmp_path: Path) -> None:
    """No working tree is needed, and no attribute of a tree is taken instead."""
    made = Repository(tmp_path / "bare", "--bare")
    made.commit(
        {b"a": b"1\n", b".gitattributes": b"* -diff\n", b".mailmap": b"X <ann@example.org>\n"}
    )

    assert lines_of(made.path) == {"a": 1, ".gitattributes": 1, ".mailmap": 1}
    assert sums_of(steps_of(made.path))[ANN] == 1


def test_a_subdirectory_stands_for_the_whole_repository(repository: Repository) -> None:
    """The whole history counts, from wherever in it the command is run."""
    repository.commit({b"top": b"1\n", b"sub/file": b"1\n"})
    (repository.path / "sub").mkdir()

    assert lines_of(repository.path / "sub") == {"top": 1, "sub/file": 1}


def test_a_detached_head_is_where_the_history_ends(repository: Repository) -> None:
    """HEAD is what counts, not a branch."""
    first = repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n"})
    git(repository.path, "update-ref", "--no-deref", "HEAD", first)
    git(repository.path, "symbolic-ref", "HEAD", "refs/heads/other")
    git(repository.path, "update-ref", "refs/heads/other", first)

    assert lines_of(repository.path) == {"a": 1}

    (repository.path / ".git" / "HEAD").write_text(f"{first}\n")

    assert lines_of(repository.path) == {"a": 1}


def test_a_linked_working_tree_has_a_head_of_its_own(repository: Repository) -> None:
    """A `git worktree` finds its objects in the repository that it belongs to."""
    first = repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n"})
    linked = repository.path.parent / "linked"
    git(repository.path, "worktree", "add", "--quiet", str(linked), first)

    assert lines_of(linked) == {"a": 1}


def test_objects_borrowed_from_another_repository_are_found(repository: Repository) -> None:
    """A clone that shares objects instead of copying them can be counted."""
    repository.commit({b"a": b"1\n"})
    clone = repository.path.parent / "clone"
    git(repository.path, "clone", "--quiet", "--shared", ".", str(clone))

    assert lines_of(clone) == {"a": 1}


def test_a_shallow_clone_counts_from_its_boundary(repository: Repository) -> None:
    """The commit at the boundary counts as the first, with all its files."""
    repository.commit({b"a": b"1\n2\n", b"b": b"1\n"})
    repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n3\n"})
    clone = repository.path.parent / "clone"
    source = f"file://{repository.path}"
    git(repository.path, "clone", "--quiet", "--depth=2", source, str(clone))

    assert lines_of(clone) == {"a": 3, "b": 1}
    assert sums_of(steps_of(clone))[ANN] == 2
    with open_repository(clone) as view:
        assert view.shallow
        assert count_commits(view) == 2


def test_the_environment_does_not_point_elsewhere(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a git hook: variables of another repository are no matter."""
    repository.commit({b"a": b"1\n"})
    other = Repository(tmp_path / "other")
    other.commit({b"b": b"1\n"})
    for name, value in {
        "GIT_DIR": str(other.path / ".git"),
        "GIT_WORK_TREE": str(other.path),
        "GIT_OBJECT_DIRECTORY": str(other.path / ".git" / "objects"),
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "--unified=9",
        "GIT_LITERAL_PATHSPECS": "1",
    }.items():
        monkeypatch.setenv(name, value)

    with open_repository(repository.path) as view:
        steps = [step for made in read_steps(view) for step in made]
        assert {ANN: 1, "lines:a": 1} == sums_of(steps) == read_truth(view)


def test_random_histories_add_up(tmp_path: Path) -> None:
    """Seeded random changes of kind, content and place never lose a line."""
    dice = random.Random(20_240_611)  # noqa: S311 - a test that can be run again
    bodies: list[Content] = [b"", b"a", b"a\n", b"a\nb\n\n", b"\0", b"a\n\0b", b"\n" * 30, None]
    bodies += [At(LINK, b"a"), At(SUBMODULE, b"3" * 40), At(EXECUTABLE, b"b\na\n")]
    made = Repository(tmp_path / "random")
    for _ in range(40):
        names = dice.sample([b"a", b"b", b"c", b"d/a", b"d/b", b"e"], 3)
        made.commit({name: dice.choice(bodies) for name in names})

    with open_repository(made.path) as view:
        assert count_commits(view) == 40
    lines_of(made.path)
