"""Whether a total is the last word on its counter: the stream has been handled past its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.verdict import Judgement

if TYPE_CHECKING:
    from countledger.consumers.auditor import Auditor

_PROVEN = frozenset({Judgement.EXACT, Judgement.DRIFT})


def unproven(auditor: Auditor, counter: str) -> str | None:
    """Why nothing can be rested on a counter's total, or None: it stands still, and is proven.

    As `Auditor.verify`. A drift is proven as well: no record is left that would move the total.
    """
    verdict = auditor.verify(counter)
    return None if verdict.verdict in _PROVEN else f"{verdict.verdict}: {verdict.proof}"
