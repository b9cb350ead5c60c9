"""Verdicts: what a verification found of a counter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from countledger.ledger import amount

if TYPE_CHECKING:
    from countledger.consumers.stored import StoredTotal
    from countledger.ledger.amount import Amount
    from countledger.ledger.exact import ExactSum


class Judgement(StrEnum):
    """What a verification found."""

    EXACT = "exact"
    DRIFT = "drift"
    BUSY = "busy"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A counter's total and its ledger, compared.

    Attributes:
        counter: its name.
        verdict: `exact`, `drift`, `busy` (updates kept coming, or the stream lags), or
            `unreadable` (an item cannot be read as what it should be).
        total: as materialized; None where it cannot be read.
        exact: the ledger's sum; None where it cannot be read.
        events_drift: events of the total minus events of the ledger; 0 where one is unknown.
        proof: what the verdict rests on, for a person.
    """

    counter: str
    verdict: Judgement
    total: Amount | None
    exact: Amount | None
    events_drift: int
    proof: str

    @property
    def drift(self) -> Amount | None:
        """Total minus exact sum; None where one of them is unknown."""
        if self.total is None or self.exact is None:
            return None
        return amount.add(self.total, amount.negated(self.exact))


def compared(stored: StoredTotal, exact: ExactSum, proof: str) -> Verdict:
    """The verdict on two numbers of one moment."""
    total = stored.total
    if total is None:
        return unreadable(stored, exact, f"{stored.flaw}")
    same = total.total == exact.sum and total.events == exact.events
    judgement = Judgement.EXACT if same else Judgement.DRIFT
    return _verdict(stored, exact, judgement, proof)


def busy(stored: StoredTotal, exact: ExactSum | None, reason: str) -> Verdict:
    """No verdict this time."""
    return _verdict(stored, exact, Judgement.BUSY, f"no verdict: {reason}; try again")


def unreadable(stored: StoredTotal, exact: ExactSum | None, reason: str) -> Verdict:
    """No verdict before somebody looks after an item."""
    return _verdict(stored, exact, Judgement.UNREADABLE, reason)


def _verdict(
    stored: StoredTotal, exact: ExactSum | None, judgement: Judgement, proof: str
) -> Verdict:
    total = stored.total
    return Verdict(
        counter=stored.counter,
        verdict=judgement,
        total=None if total is None else total.total,
        exact=None if exact is None else exact.sum,
        events_drift=0 if total is None or exact is None else total.events - exact.events,
        proof=proof,
    )
