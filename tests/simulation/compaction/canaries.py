"""Every rule of the protocol, switched off: the model must then break a promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from countledger.compaction import plan
from countledger.compaction.plan import AgeLimit
from countledger.compaction.run import Run
from countledger.ledger import exact
from countledger.ledger.exact_accumulator import ExactAccumulator
from countledger.ledger.head import Covered, Head
from tests.simulation import deletion_canaries as deletions
from tests.simulation.compaction import dynamo, simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from countledger.ledger.operations import Put


@dataclass(frozen=True)
class Canary:
    """A rule, and how it is switched off."""

    rule: str
    switch_off: Callable[[pytest.MonkeyPatch], None]


def _publish_without_condition(patch: pytest.MonkeyPatch) -> None:
    publish_of = plan.publish_of

    def unconditional(table: str, counter: str, before: Head, after: Head) -> Put:
        return replace(publish_of(table, counter, before, after), condition=None)

    patch.setattr(plan, "publish_of", unconditional)


def _any_number_of_generations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exact, "moved_too_far", lambda first, second: False)  # noqa: ARG005


def _without_covers_of_the_first_head(patch: pytest.MonkeyPatch) -> None:
    def ignorant(first: Head) -> ExactAccumulator:
        return ExactAccumulator(replace(first, generation=-1, covers={}))

    patch.setattr(exact, "ExactAccumulator", ignorant)


def _without_covers_of_the_second_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactAccumulator, "leave_out", lambda seen, second: None)  # noqa: ARG005


def _skip(step: str) -> Callable[[pytest.MonkeyPatch], None]:
    def switch_off(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Run, step, lambda run, head: None)  # noqa: ARG005

    return switch_off


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


def _merge_at_the_horizon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulation, "AgeLimit", lambda horizon_ms, *_: AgeLimit(horizon_ms, 0, 0, 0))


def _send_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dynamo, "leave", lambda: None)


CANARIES = [
    Canary("the condition of publish", _publish_without_condition),
    Canary("two generations: start over", _any_number_of_generations),
    Canary("heads of one run", deletions.generations_identify_heads),
    Canary("exact reads of one incarnation", deletions.reads_take_steps_back),
    Canary("covers of the first head", _without_covers_of_the_first_head),
    Canary("covers of the second head", _without_covers_of_the_second_head),
    Canary("await", _skip("_await")),
    Canary("wait until deleted", _skip("_wait_until_deleted")),
    Canary("select after the wait", _select_before_all_else),
    Canary("shown alike by every region", _select_what_some_region_lacks),
    Canary("the time of a bare key", _forget_when_bare_keys_were_made),
    Canary("the age limit", _merge_at_the_horizon),
    Canary("the check after signing", _send_without_a_last_look),
]
