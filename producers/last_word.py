"""What a call says when no attempt is left: nothing was written, or nobody can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from countledger.ledger.errors import Throttled, Unclear
from countledger.producers.strict.outcome import Unknown

if TYPE_CHECKING:
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.strict.context import Attempts


def raise_end(attempts: Attempts, what: str, error: CountledgerError) -> NoReturn:
    """End a call that was not done.

    Args:
        attempts: those that were made, with the advice for what stays unknown.
        what: what was to be done, for the message.
        error: of the last one.

    Raises:
        Unclear: an attempt may have been carried out.
        Throttled: each was clearly refused.
        Unreachable: nothing ever answered.
    """
    ended = attempts.end(what, error)
    if isinstance(ended, Unknown):
        raise Unclear(f"{what}: no clear answer in {attempts.made} attempts; {ended.advice}")
    raise Throttled(
        f"{what}: nothing was written in {attempts.made} attempts ({error}); try again later"
    )
