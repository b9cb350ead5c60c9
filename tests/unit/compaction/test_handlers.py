"""What the functions of compaction log."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from aws_lambda_powertools import Logger

from countledger.compaction.handlers import log_report
from countledger.compaction.report import CompactionReport, RunOutcome


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_a_counter_that_could_not_be_compacted_is_logged_as_an_error(
    outcome: RunOutcome,
) -> None:
    """With its name and the reason; all else is for debugging."""
    written = StringIO()
    logger = Logger(service=f"test {outcome}", level="DEBUG", stream=written)

    log_report(logger, CompactionReport(counter="a:b", outcome=outcome, detail="why"))

    line = json.loads(written.getvalue())
    failed = outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}
    assert line["level"] == ("ERROR" if failed else "DEBUG")
    assert line["message"] == ("a counter could not be compacted" if failed else "compacted")
    assert (line["counter"], line["outcome"], line["reason"]) == ("a:b", str(outcome), "why")
