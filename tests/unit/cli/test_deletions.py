"""What `countledger delete` tells of a call that could not go on."""

import json
from collections.abc import Iterator

import pytest

from countledger.compaction.deletion import Deletion, DeletionStage
from countledger.infra.cli.app import Options
from countledger.infra.cli.deletions import _show
from countledger.ledger.errors import NoSuchCounter

GONE = Deletion("likes:a", DeletionStage.DELETED, None, "")


def _options() -> Options:
    return Options(output="json")


def test_what_was_deleted_before_a_failure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """It cannot be called back, and the next call would not name it any more."""

    def deleted() -> Iterator[Deletion]:
        yield GONE
        raise NoSuchCounter("no likes:b")

    with pytest.raises(NoSuchCounter):
        _show(_options(), deleted())

    assert [row["counter"] for row in json.loads(capsys.readouterr().out)["items"]] == ["likes:a"]


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        (stage, int(stage not in {DeletionStage.DELETED, DeletionStage.FORGOTTEN}))
        for stage in DeletionStage
    ],
)
def test_the_exit_code_says_whether_anything_is_left(
    stage: DeletionStage, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a job may call it until nothing is."""
    assert _show(_options(), [Deletion("likes:a", stage, 0, "")]) == code

    told = capsys.readouterr()
    assert json.loads(told.out)["items"][0]["stage"] == stage
    assert ("call again" in told.err) is bool(code)


def test_nothing_to_delete_is_an_empty_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert _show(_options(), []) == 0
    assert json.loads(capsys.readouterr().out) == {"items": []}
