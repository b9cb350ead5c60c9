"""Answers that routes of more than one kind have."""

from __future__ import annotations

from countledger.infra.http.shapes import AmountText, AnswerBody, ShownTime


class TotalAnswer(AnswerBody):
    """A counter's current value."""

    counter: str
    value: AmountText
    events: int
    entries: int
    version: int
    updated_at: ShownTime | None
    method: str | None
    bins: int


class TotalsAnswer(AnswerBody):
    """Totals of several counters."""

    totals: list[TotalAnswer]
    next: str | None = None
