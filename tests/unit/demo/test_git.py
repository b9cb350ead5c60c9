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


def test_what_is_no_repository_with_a_commit_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Repository(tmp_path / "empty")

    assert "not a git repository" in str(refusal(tmp_path))
    for name in ("missing", "file", "empty"):
        error = refusal(tmp_path / name)
        assert isinstance(error, GitUnusable)
        assert str(tmp_path / name) in str(error)


def test_a_machine_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Repository(tmp_path / "made")
    made.commit()
    monkeypatch.setenv("PATH", str(tmp_path))

    error = refusal(made.path)

    assert isinstance(error, GitUnusable)
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

    assert isinstance(error, GitUnusable)
    assert "--no-filter" in str(error)


def test_the_view_is_gone_when_the_count_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
