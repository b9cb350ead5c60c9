"""Rules of the protocol, switched off: the model must then break a promise.

The other rules of compaction are among the canaries of the whole simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.compaction import plan
from countledger.compaction.run import Run
from countledger.ledger import exact
from countledger.ledger.exact import ExactAccumulator
from countledger.ledger.head import Covered
from tests.simulation import deletion_canaries as deletions
from tests.simulation.canaries import Canary

if TYPE_CHECKING:
    import pytest


def _any_number_of_generations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exact, "moved_too_far", lambda first, second: False)  # noqa: ARG005


def _without_covers_of_the_second_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactAccumulator, "leave_out", lambda seen, second: None)  # noqa: ARG005


def _select_before_all_else(patch: pytest.MonkeyPatch) -> None:
    """The first page is read before the head."""
    work, next_page = Run._work, Run._next_page

    def read_first(run: Run) -> Any:  # noqa: ANN401 - handed on
        early = next_page(run, 3)
        served: list[Any] = []

        def page(size: int) -> Any:  # noqa: ANN401 - handed on
            if served:
                return next_page(run, size)
            served.append(True)
            return early

        patch.setattr(run, "_next_page", page, raising=False)
        return work(run)

    patch.setattr(Run, "_work", read_first)


def _select_what_some_region_lacks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "shown_alike", lambda candidates, elsewhere: list(candidates))  # noqa: ARG005


def _forget_when_bare_keys_were_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan.Candidate, "covered", property(lambda one: Covered(one.entry.delta)))


CANARIES = [
    Canary("two generations: start over", _any_number_of_generations),
    Canary("heads of one run", deletions.generations_identify_heads),
    Canary("exact reads of one incarnation", deletions.reads_take_steps_back),
    Canary("covers of the second head", _without_covers_of_the_second_head),
    Canary("select after the wait", _select_before_all_else),
    Canary("shown alike by every region", _select_what_some_region_lacks),
    Canary("the time of a bare key", _forget_when_bare_keys_were_made),
]
