"""What cannot be counted is refused for a stated reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.infra.demo.history import GitUnusable, open_repository, read_events
from countledger.ledger.errors import CountledgerError
from tests.unit.demo.repositories import Repository, git

if TYPE_CHECKING:
    from pathlib import Path


def refusal(path: Path) -> CountledgerError:
    """The error that the repository is refused with; one line, exit 2."""
    with pytest.raises(CountledgerError) as caught, open_repository(path) as view:
        list(read_events(view))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_directory_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    """The error names the path and says what git said."""
    error = refusal(tmp_path)

    assert isinstance(error, GitUnusable)
    assert str(tmp_path) in str(error)
    assert "not a git repository" in str(error)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """A missing directory and a file are no repositories."""
    (tmp_path / "file").touch()

    assert isinstance(refusal(tmp_path / "missing"), GitUnusable)
    assert isinstance(refusal(tmp_path / "file"), GitUnusable)


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    """There is nothing to count before the first commit."""
    made = Repository(tmp_path / "empty")

    assert isinstance(refusal(made.path), GitUnusable)


def test_a_machine_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No git, no demo; and the error says what to install."""
    made = Repository(tmp_path / "made")
    made.commit()
    monkeypatch.setenv("PATH", str(tmp_path))

    error = refusal(made.path)

    assert isinstance(error, GitUnusable)
    assert "install git" in str(error)


def test_a_partial_clone_says_how_to_get_the_rest(tmp_path: Path) -> None:
    """Objects that are not here stop the count; nothing is fetched behind the user's back."""
    made = Repository(tmp_path / "made")
    made.commit({b"a": b"1\n"})
    made.commit({b"a": b"2\n3\n"})
    git(made.path, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    options = ("--quiet", "--bare", "--filter=blob:none")
    git(made.path, "clone", *options, f"file://{made.path}", str(clone))

    error = refusal(clone)

    assert isinstance(error, GitUnusable)
    assert "--no-filter" in str(error)


def test_the_view_is_gone_when_the_count_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left behind, also when the reader stops in the middle."""
    made = Repository(tmp_path / "made")
    for _ in range(5):
        made.commit()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    with open_repository(made.path) as view:
        assert list(scratch.iterdir())
        next(read_events(view))

    assert not list(scratch.iterdir())
