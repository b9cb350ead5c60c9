"""Whether a total is the last word on its counter: all that its ledger holds, and at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.verdict import Judgement

if TYPE_CHECKING:
    from countledger.consumers.auditor import Auditor

_ADVICE = "; it is not what its ledger says: `countledger repair` it first"


def why_not_exact(auditor: Auditor, counter: str) -> str | None:
    """Why nothing can be rested on a counter's total, or None: it is exact, and proven so.

    As `Auditor.verify`. A drift is no last word: a record that the stream did not show, or a repair
    that is under way, would make a total anew once this one is gone.
    """
    verdict = auditor.verify(counter)
    if verdict.verdict is Judgement.EXACT:
        return None
    advice = _ADVICE if verdict.verdict is Judgement.DRIFT else ""
    return f"{verdict.verdict}: {verdict.proof}{advice}"
