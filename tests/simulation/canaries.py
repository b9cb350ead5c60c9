"""Known wrong variants of the product: each must be caught within so many seeds.

A rule that the simulation does not miss would be a rule that nothing tests.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from countledger.compaction import plan
from countledger.compaction.compactor import Compactor, Run
from countledger.compaction.plan import AgeLimit
from countledger.compaction.schedule import Triggers
from countledger.consumers import materializer, progress, total_writer, totals
from countledger.consumers import verify as repairing
from countledger.consumers.materializer import BatchOutcome, complete_outcome
from countledger.consumers.proof import Prover
from countledger.consumers.record import EntryChange, change_of
from countledger.consumers.verify import Verifier
from countledger.ledger import exact
from countledger.ledger import indexes as due_index
from countledger.ledger.exact import Covered, ExactAccumulator, Head
from countledger.ledger.operations import Put
from countledger.producers import sender
from tests.simulation import (
    alert_canaries,
    consumer_canaries,
    deletion_canaries,
    producer_canaries,
    region_canaries,
    window_canaries,
    world,
)
from tests.simulation.canary import Canary
from tests.simulation.consumer_canaries import believed
from tests.switches import all_of, replaced, unconditional, wrapped


def _watermarks_as_old_as_their_shards(patch: pytest.MonkeyPatch) -> None:
    """They go by when their shard was first met, though they move."""
    met: dict[str, int] = {}
    all_of(
        wrapped(
            total_writer,
            "update_of",
            lambda update_of, table, counter, step, shard, now_ms: update_of(
                table, counter, step, shard, met.setdefault(shard, now_ms)
            ),
        ),
        replaced(progress, "WATERMARK_LIFE_MS", 300_000),
        replaced(progress, "STALE_ENOUGH", 1),
    )(patch)


def _fastest(found: totals.Freshness) -> totals.Freshness:
    reached = [one.handled_through_ms for one in found.shards]
    return replace(found, handled_through_ms=max(reached, default=None), idle=())


def _subtracting(one: Mapping[str, Any], sequence: int, now_ms: int) -> EntryChange | None:
    if one["eventName"] != "REMOVE" or "OldImage" not in one["dynamodb"]:
        return change_of(one, sequence, now_ms)
    stream = {**one["dynamodb"], "NewImage": one["dynamodb"]["OldImage"]}
    added = change_of({"eventName": "INSERT", "dynamodb": stream}, sequence, now_ms)
    return added and added._replace(delta=-added.delta)


def _forgetful(outcome: BatchOutcome, *given: Any) -> None:  # noqa: ANN401 - handed on
    """The shard moves on although a counter could not be written."""
    complete_outcome(outcome, *given)
    outcome.retry_from = None


def _one_head_read(patch: pytest.MonkeyPatch) -> None:
    """The head is read before the entries, and not again."""
    entries = exact.ExactReader._entries
    kept: list[Head] = []
    head = exact.ExactReader._head

    def once(reader: Any, dynamo: Any, counter: str) -> Head:  # noqa: ANN401
        if kept:
            return kept.pop()
        kept.append(head(reader, dynamo, counter))
        return kept[0]

    def reading(*arguments: Any) -> ExactAccumulator:  # noqa: ANN401 - handed on
        try:
            return entries(*arguments)
        except BaseException:
            kept.clear()
            raise

    patch.setattr(exact.ExactReader, "_head", once)
    patch.setattr(exact.ExactReader, "_entries", reading)


def _select_before_all_else(patch: pytest.MonkeyPatch) -> None:
    """The first page is read before the head."""
    work, next_page = Run._work, Run._next_page

    def read_first(run: Run) -> Any:  # noqa: ANN401 - handed on
        pages = iter([next_page(run, 3)])
        patch.setattr(run, "_next_page", lambda size: next(pages, None) or next_page(run, size))
        return work(run)

    patch.setattr(Run, "_work", read_first)


_NO_LAST_CHECK: Final = replaced(sender, "check_age", lambda *_, **__: None)
_PUT_ALWAYS: Final = replaced(sender, "Put", lambda table, item, *_, **__: Put(table, item))


_TOTALS: Final = [
    Canary("watermark", unconditional(total_writer, "update_of"), seed=2),
    Canary(
        "watermark for each stream shard", replaced(progress, "attribute", lambda *_: "w"), seed=2
    ),
    Canary(
        "watermarks outlive the writes that they refuse",
        all_of(
            replaced(progress, "WATERMARK_LIFE_MS", 120_000),
            replaced(progress, "STALE_ENOUGH", 1),
        ),
        seed=49,
        rare=True,
    ),
    Canary("watermarks go by their own age", _watermarks_as_old_as_their_shards, seed=16),
    Canary(
        "freshness is the slowest shard's",
        wrapped(
            totals, "freshness_of", lambda freshness_of, *given: _fastest(freshness_of(*given))
        ),
        "totals",
        seed=8,
        rare=True,
    ),
    Canary(
        "REMOVE adds nothing",
        all_of(
            replaced(total_writer, "change_of", _subtracting),
            replaced(world, "record_filter", lambda _patterns: lambda _record: True),
        ),
    ),
    Canary(
        "failures are reported",
        replaced(world, "answer_of", lambda *_: {"state": {}, "batchItemFailures": []}),
        seed=13,
    ),
    Canary(
        "what was not written is delivered again",
        replaced(materializer, "complete_outcome", _forgetful),
        seed=10,
    ),
    Canary("verify after a proof", replaced(Prover, "past", believed), "totals", seed=1),
    Canary(
        "verify after the stream has caught up",
        wrapped(
            Verifier,
            "compare",
            lambda compare, verifier, counters: compare(replace(verifier, settle_ms=1), counters),
        ),
        "totals",
        seed=141,
        rare=True,
    ),
    Canary(
        "repair on condition of the version",
        unconditional(repairing, "plan_of"),
        "totals",
        seed=3,
    ),
]

_LEDGER: Final = [
    Canary("the horizon", _NO_LAST_CHECK, "compaction", seed=3),
    Canary("the condition of an entry", _PUT_ALWAYS, seed=12),
    Canary("ingest: keyed ones by condition", _PUT_ALWAYS, "ingest", seed=0),
    Canary("ingest: the horizon", _NO_LAST_CHECK, "ingest", seed=22),
    Canary(
        "compaction merges only old entries",
        replaced(
            Compactor,
            "limit",
            lambda _self, namespace: AgeLimit(namespace.horizon_ms // 2, 0, 0, 0),
        ),
        "compaction",
        seed=2,
    ),
    Canary("the condition of publish", unconditional(plan, "publish_of"), "merges"),
    Canary("await", replaced(Run, "_await", lambda *_: None), "merges", seed=3),
    Canary(
        "wait until deleted",
        replaced(Run, "_wait_until_deleted", lambda *_: None),
        "merges",
        seed=7,
    ),
    Canary("the head is read twice", _one_head_read, "merges", seed=2),
    Canary(
        "covers of the first head",
        replaced(
            exact,
            "ExactAccumulator",
            lambda first: ExactAccumulator(replace(first, generation=-1, covers={})),
        ),
        "merges",
        seed=2,
    ),
    Canary(
        "two generations: start over",
        replaced(exact, "moved_too_far", lambda *_: False),
        "merges",
        seed=5,
    ),
    Canary(
        "covers of the second head",
        replaced(ExactAccumulator, "leave_out", lambda *_: None),
        "merges",
        seed=0,
    ),
    Canary("select after the wait", _select_before_all_else, "merges", seed=12),
    Canary(
        "shown alike by every region",
        replaced(plan, "shown_alike", lambda found, _: list(found)),
        "merges",
        seed=162,
        rare=True,
    ),
    Canary(
        "the time of a bare key",
        replaced(plan.Candidate, "covered", property(lambda one: Covered(one.entry.delta))),
        "merges",
        seed=0,
    ),
    # A mark that failed is not tried again: here every mark fails.
    Canary(
        "due marks are set again",
        replaced(total_writer.DueMarker, "mark", lambda *_: None),
        "due",
        seed=125,
        rare=True,
    ),
    Canary(
        "triggers without a schedule are deleted",
        replaced(Triggers, "delete", lambda *_: None),
        "late schedules",
        seed=3,
    ),
    # A run takes its counter out of the index for good.
    Canary("due again after a run", replaced(due_index, "_due", lambda *_: ()), "due"),
]

CANARIES: Final = [
    *_TOTALS,
    *consumer_canaries.CANARIES,
    *_LEDGER,
    *deletion_canaries.CANARIES,
    *region_canaries.CANARIES,
    *alert_canaries.CANARIES,
    *producer_canaries.CANARIES,
    *window_canaries.CANARIES,
]
