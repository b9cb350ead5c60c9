"""Neither configuration nor the kind of repository alters a count; what has none is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.infra.demo import open_repository, read_events, read_truth
from countledger.ledger.errors import CountledgerError, SetupError
from tests.unit.demo.repositories import (
    SUBMODULE,
    At,
    Repository,
    git,
)
from tests.unit.demo.sums import ANN, lines_of, steps_of, sums_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository."""
    return Repository(tmp_path / "repository")


def test_no_configuration_and_no_attribute_alters_a_count(repository: Repository) -> None:
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
        "core.abbrev": "4",
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
        "diff.orderFile": str(info / "attributes"),
        "diff.relative": "true",
        "log.diffMerges": "separate",
        "core.useReplaceRefs": "true",
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
    one = repository.commit({b"a": b"1\n"})
    two = repository.commit({b"a": b"1\n2\n"})
    git(repository.path, "replace", two, one)

    assert lines_of(repository.path) == {"a": 2}


def test_grafts_are_not_believed(repository: Repository) -> None:
    repository.commit({b"a": b"1\n"})
    two = repository.commit({b"b": b"1\n"})
    info = repository.path / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "grafts").write_text(f"{two}\n")

    assert sums_of(steps_of(repository.path))[ANN] == 2


def test_a_sha256_repository_counts_alike(tmp_path: Path) -> None:
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
    repository.commit({b"top": b"1\n", b"sub/file": b"1\n"})
    (repository.path / "sub").mkdir()

    assert lines_of(repository.path / "sub") == {"top": 1, "sub/file": 1}


def test_a_detached_head_is_where_the_history_ends(repository: Repository) -> None:
    first = repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n"})
    git(repository.path, "update-ref", "--no-deref", "HEAD", first)
    git(repository.path, "symbolic-ref", "HEAD", "refs/heads/other")
    git(repository.path, "update-ref", "refs/heads/other", first)

    assert lines_of(repository.path) == {"a": 1}

    (repository.path / ".git" / "HEAD").write_text(f"{first}\n")

    assert lines_of(repository.path) == {"a": 1}


def test_a_linked_working_tree_has_a_head_of_its_own(repository: Repository) -> None:
    first = repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n"})
    linked = repository.path.parent / "linked"
    git(repository.path, "worktree", "add", "--quiet", str(linked), first)

    assert lines_of(linked) == {"a": 1}


def test_objects_borrowed_from_another_repository_are_found(repository: Repository) -> None:
    repository.commit({b"a": b"1\n"})
    clone = repository.path.parent / "clone"
    git(repository.path, "clone", "--quiet", "--shared", ".", str(clone))

    assert lines_of(clone) == {"a": 1}


def test_a_shallow_clone_counts_from_its_boundary(repository: Repository) -> None:
    repository.commit({b"a": b"1\n2\n", b"b": b"1\n"})
    repository.commit({b"a": b"1\n"})
    repository.commit({b"a": b"1\n2\n3\n"})
    clone = repository.path.parent / "clone"
    source = f"file://{repository.path}"
    git(repository.path, "clone", "--quiet", "--depth=2", source, str(clone))

    assert lines_of(clone) == {"a": 3, "b": 1}
    assert sums_of(steps_of(clone))[ANN] == 2
    with open_repository(clone) as history:
        assert history.shallow
        assert len(history.commits) == 2


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

    with open_repository(repository.path) as history:
        steps = [step for made in read_events(history) for step in made]
        assert {ANN: 1, "lines:a": 1} == sums_of(steps) == read_truth(history)


@pytest.mark.parametrize(
    "variables",
    [
        {"GIT_CEILING_DIRECTORIES": "."},
        {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.bareRepository",
            "GIT_CONFIG_VALUE_0": "explicit",
        },
    ],
)
def test_the_environment_says_which_repositories_git_opens(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "bare", "--bare")
    made.commit({b"a": b"1\n"})
    inside = made.path / "objects"
    assert lines_of(inside) == {"a": 1}

    for name, value in variables.items():
        monkeypatch.setenv(name, str(made.path) if value == "." else value)

    assert isinstance(refusal(inside), SetupError)


def refusal(path: Path) -> CountledgerError:
    """The error that the repository is refused with; one line, exit 2."""
    with pytest.raises(CountledgerError) as caught, open_repository(path) as history:
        list(read_events(history))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def test_what_is_no_repository_with_a_commit_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Repository(tmp_path / "empty")

    assert "not a git repository" in str(refusal(tmp_path))
    for name in ("missing", "file", "empty"):
        error = refusal(tmp_path / name)
        assert isinstance(error, SetupError)
        assert str(tmp_path / name) in str(error)


def test_a_machine_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Repository(tmp_path / "made")
    made.commit()
    monkeypatch.setenv("PATH", str(tmp_path))

    error = refusal(made.path)

    assert isinstance(error, SetupError)
    assert "install git" in str(error)


def test_a_partial_clone_says_how_to_get_the_rest(tmp_path: Path) -> None:
    made = Repository(tmp_path / "made")
    made.commit({b"a": b"1\n"})
    made.commit({b"a": b"2\n3\n"})
    git(made.path, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    options = ("--quiet", "--bare", "--filter=blob:none")
    git(made.path, "clone", *options, f"file://{made.path}", str(clone))

    error = refusal(clone)

    assert isinstance(error, SetupError)
    assert "--no-filter" in str(error)


def test_git_has_ended_when_the_count_is_over(repository: Repository) -> None:
    """Also if it is over before the last event."""
    for n in range(5):
        repository.commit({b"a": b"1\n" * n})

    with open_repository(repository.path) as history:
        next(read_events(history))
        assert history.reader.poll() is None

    assert history.reader.returncode is not None


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(slice(0), id="empty"),
        pytest.param(slice(6), id="cut in its header"),
        pytest.param(slice(30), id="cut midway"),
        pytest.param(slice(-4), id="without its end"),
    ],
)
def test_an_object_that_git_cannot_read_is_refused_by_its_name(
    repository: Repository, kept: slice
) -> None:
    repository.commit({b"a": b"".join(b"%d\n" % n for n in range(100))})
    name = git(repository.path, "rev-parse", "HEAD:a").decode().strip()
    stored = repository.path / ".git" / "objects" / name[:2] / name[2:]
    stored.chmod(0o600)
    stored.write_bytes(stored.read_bytes()[kept])

    assert f"{name} is missing or damaged" in str(refusal(repository.path))


def test_a_reader_that_was_ended_is_an_error(repository: Repository) -> None:
    repository.commit({b"a": b"1\n"})

    with open_repository(repository.path) as history:
        history.reader.kill()
        history.reader.wait()
        with pytest.raises(SetupError, match="is missing or damaged"):
            list(read_events(history))
