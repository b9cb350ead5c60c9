"""Known wrong variants of the product: each must be caught within so many seeds.

A rule that the simulation does not miss would be a rule that nothing tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from countledger.compaction import plan
from countledger.compaction.plan import AgeLimit
from countledger.compaction.run import Run
from countledger.consumers import (
    fold,
    materializer,
    namespace_rules,
    proof,
    record,
    total_writer,
    totals,
    watermark,
)
from countledger.consumers import repair as repairing
from countledger.consumers.batch import BatchOutcome, complete_outcome
from countledger.consumers.proof import Prover
from countledger.consumers.verify import Verifier
from countledger.ledger import attempts, exact
from countledger.ledger import due as due_index
from countledger.ledger.exact import ExactAccumulator
from countledger.ledger.expressions import Absent, Assign
from countledger.ledger.head import Covered
from countledger.ledger.operations import Put, Update
from countledger.producers import sender
from countledger.producers.strict import change, methods, optimistic, token, token_set
from countledger.producers.strict.marker import MarkerChange
from countledger.producers.strict.outcome import BoundReached
from countledger.producers.strict.token import CrtChange
from countledger.producers.strict.token_set import SetChange
from tests.simulation import alert_canaries as alerts
from tests.simulation import consumer_canaries as consumers
from tests.simulation import deletion_canaries as deletions
from tests.simulation import producer_canaries as wrong
from tests.simulation import product, world
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.consumers.record import EntryChange
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item
    from countledger.ledger.head import Head


@dataclass(frozen=True)
class Canary:
    """A wrong variant.

    Attributes:
        rule: what it lacks.
        switch_off: takes the rule out of the product.
        focus: what the simulations do, in which it is looked for; None: anything.
        within: in how many of them it must be caught.
        seed: the one in which it was caught last, tried first.
    """

    rule: str
    switch_off: Callable[[pytest.MonkeyPatch], None]
    focus: str | None = None
    within: int = 400
    seed: int = 0

    def caught_by(self) -> int | None:
        """The seed that breaks a promise without the rule; that the variant crashes is no catch."""
        with pytest.MonkeyPatch.context() as patch:
            self.switch_off(patch)
            seeds = (self.seed, *range(self.within))
            return next((seed for seed in seeds if self._breaks(seed)), None)

    def _breaks(self, seed: int) -> bool:
        try:
            Simulation(seed, focus=self.focus).run()
        except AssertionError:
            return True
        return False


def replaced(owner: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    """Something of the product is replaced."""
    return lambda patch: patch.setattr(owner, name, value)


def _unconditional(write: Any) -> Any:  # noqa: ANN401 - any write
    return replace(write, condition=None)


# ---- totals ----


def _no_watermark(patch: pytest.MonkeyPatch) -> None:
    def update(*arguments: object) -> Any:  # noqa: ANN401 - a write
        return _unconditional(update_of(*arguments))

    update_of: Any = total_writer.update_of
    patch.setattr(total_writer, "update_of", update)


def _one_watermark_for_all_shards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watermark, "attribute", lambda shard: "w")  # noqa: ARG005


def _watermarks_of_a_short_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watermark, "WATERMARK_LIFE_MS", 120_000)
    patch.setattr(watermark, "STALE_ENOUGH", 1)


def _watermarks_as_old_as_their_shards(patch: pytest.MonkeyPatch) -> None:
    """They go by when their shard was first met, though they move."""
    update_of: Any = total_writer.update_of
    met: dict[str, int] = {}

    def update(table: str, counter: str, step: Any, shard: str, now_ms: int) -> Any:  # noqa: ANN401
        return update_of(table, counter, step, shard, met.setdefault(shard, now_ms))

    patch.setattr(total_writer, "update_of", update)
    patch.setattr(watermark, "WATERMARK_LIFE_MS", 300_000)
    patch.setattr(watermark, "STALE_ENOUGH", 1)


def _freshness_of_the_fastest(patch: pytest.MonkeyPatch) -> None:
    freshness_of = totals.freshness_of

    def fresh(shards: Any, progress: Any) -> totals.Freshness:  # noqa: ANN401 - handed on
        found = freshness_of(shards, progress)
        reached = [one.handled_through_ms for one in found.shards]
        return replace(found, handled_through_ms=max(reached, default=None), idle=())

    patch.setattr(totals, "freshness_of", fresh)


def _removals_subtract(patch: pytest.MonkeyPatch) -> None:
    change_of = record.change_of

    def subtracting(one: Mapping[str, Any], sequence: int, now_ms: int) -> EntryChange | None:
        if one["eventName"] != "REMOVE" or "OldImage" not in one["dynamodb"]:
            return change_of(one, sequence, now_ms)
        stream = {**one["dynamodb"], "NewImage": one["dynamodb"]["OldImage"]}
        added = change_of({"eventName": "INSERT", "dynamodb": stream}, sequence, now_ms)
        return added and added._replace(delta=-added.delta)

    patch.setattr(fold, "change_of", subtracting)
    patch.setattr(world, "record_filter", lambda _patterns: lambda _record: True)


def _failures_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        world, "answer_of", lambda _outcome, _records: {"state": {}, "batchItemFailures": []}
    )


def _progress_before_effect(patch: pytest.MonkeyPatch) -> None:
    """The shard moves on although a counter could not be written."""

    def forgetful(outcome: BatchOutcome, *arguments: Any) -> None:  # noqa: ANN401
        complete_outcome(outcome, *arguments)
        outcome.retry_from = None

    patch.setattr(materializer, "complete_outcome", forgetful)


def _verify_without_proof(patch: pytest.MonkeyPatch) -> None:
    def believe(prover: Prover, moment_ms: int, **_: object) -> proof.Proof:
        shards = prover.stream.shards()
        progress = prover.totals.progress(str(one.shard) for one in shards)
        ends = dict.fromkeys(shards, proof.By.END)
        return proof._proof(progress, ends, frozenset(progress), moment_ms)

    patch.setattr(Prover, "past", believe)


def _verify_without_settling(patch: pytest.MonkeyPatch) -> None:
    compare = Verifier.compare

    def hasty(verifier: Verifier, counters: Any) -> Any:  # noqa: ANN401 - handed on
        return compare(replace(verifier, settle_ms=1), counters)

    patch.setattr(Verifier, "compare", hasty)


def _repair_without_version(patch: pytest.MonkeyPatch) -> None:
    plan_of = repairing.plan_of

    def careless(*arguments: Any) -> Update | str:  # noqa: ANN401 - handed on
        planned = plan_of(*arguments)
        return planned if isinstance(planned, str) else _unconditional(planned)

    patch.setattr(repairing, "plan_of", careless)


# ---- recording ----


def _send_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sender, "check_age", lambda *_, **__: None)


def _put_without_condition(patch: pytest.MonkeyPatch) -> None:
    put = Put

    def unconditional(table: str, item: Item, condition: object) -> Put:  # noqa: ARG001
        return put(table, item)

    patch.setattr(sender, "Put", unconditional)


# ---- compaction ----


def _merge_the_young(patch: pytest.MonkeyPatch) -> None:
    def limit_of(world: Any, min_age_ms: int | None = None) -> Any:  # noqa: ANN401, ARG001
        return lambda namespace: AgeLimit(namespace.horizon_ms // 2, 0, 0, 0)

    patch.setattr(product, "limit_of", limit_of)


def _publish_without_condition(patch: pytest.MonkeyPatch) -> None:
    publish_of = plan.publish_of

    def unconditional(*arguments: Any) -> Any:  # noqa: ANN401 - handed on
        return _unconditional(publish_of(*arguments))

    patch.setattr(plan, "publish_of", unconditional)


def _skip(step: str) -> Callable[[pytest.MonkeyPatch], None]:
    def switch_off(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Run, step, lambda run, head: None)  # noqa: ARG005

    return switch_off


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


def _covers_of_the_first_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        exact,
        "ExactAccumulator",
        lambda first: ExactAccumulator(replace(first, generation=-1, covers={})),
    )


def _select_before_all_else(patch: pytest.MonkeyPatch) -> None:
    """The first page is read before the head."""
    work, next_page = Run._work, Run._next_page

    def read_first(run: Run) -> Any:  # noqa: ANN401 - handed on
        pages = iter([next_page(run, 3)])
        patch.setattr(run, "_next_page", lambda size: next(pages, None) or next_page(run, size))
        return work(run)

    patch.setattr(Run, "_work", read_first)


def _due_forgets_redelivery(patch: pytest.MonkeyPatch) -> None:
    """A mark that failed is not tried again: here every mark fails."""
    patch.setattr(namespace_rules.DueMarker, "mark", lambda marker, total: None)  # noqa: ARG005


def _reschedule_forgets_the_due(patch: pytest.MonkeyPatch) -> None:
    """A run takes its counter out of the index for ever."""
    patch.setattr(due_index, "_due", lambda counter, at_ms: ())  # noqa: ARG005


# ---- strict counters ----


def _sdk_retries_atomic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(product.Product, "writes", property(lambda self: self.reads))


def _no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(change, "has_headroom", lambda delta: Absent("never"))  # noqa: ARG005
    patch.setattr(token_set, "has_headroom", lambda delta: Absent("never"))  # noqa: ARG005


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    def harmless(table: str, definition: Any, _state: Any) -> Update:  # noqa: ANN401
        return Update(table, definition.main, (Assign("fenced", 1),))

    patch.setattr(optimistic, "plan_fence", harmless)


def _refuse_without_settling(patch: pytest.MonkeyPatch) -> None:
    def believed(_self: Any, refused: Any) -> Steps[Any]:  # noqa: ANN401
        yield from ()
        return refused

    for one in (CrtChange, MarkerChange, SetChange):
        patch.setattr(one, "confirm_refusal", believed)


def _bins_without_a_final_look(patch: pytest.MonkeyPatch) -> None:
    def hasty(_means: Any, _definition: Any, change: Any, one: Any) -> Any:  # noqa: ANN401
        return one.confirm_refusal(BoundReached(change.counter, 0, "upper", 0, change.delta))

    patch.setattr(methods, "_split_over_bins", hasty)


def _a_new_token_each_time(patch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**9))
    transact = token.transact_parts

    def fresh(
        context: Any,  # noqa: ANN401 - handed on
        definition: Any,  # noqa: ANN401
        parts: Any,  # noqa: ANN401
        token: str,
        *more: Any,  # noqa: ANN401
        **rest: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return transact(context, definition, parts, f"{token[:20]}{next(numbers)}", *more, **rest)

    patch.setattr("countledger.producers.strict.token.transact_parts", fresh)


def _tokens_outlived(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempts.Attempts, "check", lambda attempts: None)  # noqa: ARG005


def _markers_of_a_short_life(patch: pytest.MonkeyPatch) -> None:
    """They may go before their window is over."""
    put_marker = MarkerChange.begin.__globals__["put_marker"]

    def brief(*arguments: Any) -> Any:  # noqa: ANN401 - handed on
        put = put_marker(*arguments)
        return replace(put, item={**put.item, "expires_at": put.item["at"] // 1_000})

    patch.setattr("countledger.producers.strict.marker.put_marker", brief)


def _markers_unread(patch: pytest.MonkeyPatch) -> None:
    """A marker is put whatever lies there."""
    put_marker = MarkerChange.begin.__globals__["put_marker"]

    def careless(*arguments: Any) -> Any:  # noqa: ANN401 - handed on
        return _unconditional(put_marker(*arguments))

    patch.setattr("countledger.producers.strict.marker.put_marker", careless)


CANARIES = [
    Canary("watermark", _no_watermark, seed=5),
    Canary("watermark for each stream shard", _one_watermark_for_all_shards, seed=2),
    Canary("watermarks outlive the writes that they refuse", _watermarks_of_a_short_life, seed=34),
    Canary("watermarks go by their own age", _watermarks_as_old_as_their_shards, seed=5),
    Canary("freshness is the slowest shard's", _freshness_of_the_fastest, "totals", seed=14),
    Canary("REMOVE adds nothing", _removals_subtract),
    Canary("failures are reported", _failures_are_not_reported, seed=10),
    Canary("what was not written is delivered again", _progress_before_effect, seed=5),
    Canary(
        "records below the progress are dropped",
        consumers.progress_is_not_compared,
        "progress",
        seed=1,
    ),
    Canary(
        "watermarks go by progress", consumers.watermarks_go_without_progress, "progress", seed=44
    ),
    Canary("watermarks wait for late writes", consumers.watermarks_go_at_once, "progress", seed=34),
    Canary("no update leaves late", consumers.updates_leave_late, "progress", within=800, seed=193),
    Canary(
        "lost progress is not zero", consumers.lost_progress_is_zero, "progress", within=800, seed=1
    ),
    Canary("batches are not halved", consumers.materializer_halves, seed=5),
    Canary("alerts: batches are not halved", consumers.evaluator_halves, "alerts", seed=16),
    Canary("verify after a proof", _verify_without_proof, "totals", seed=2),
    Canary("verify after the stream has caught up", _verify_without_settling, "totals", seed=174),
    Canary("repair on condition of the version", _repair_without_version, "totals", seed=143),
    Canary("repair raises watermarks", consumers.repairs_raise_no_watermarks, "repairs", seed=13),
    Canary("the horizon", _send_without_a_last_look, "compaction", seed=1),
    Canary("the condition of an entry", _put_without_condition, seed=5),
    Canary("compaction merges only old entries", _merge_the_young, "compaction", seed=1),
    Canary("the condition of publish", _publish_without_condition, "merges"),
    Canary("await", _skip("_await"), "merges", seed=3),
    Canary("wait until deleted", _skip("_wait_until_deleted"), "merges", seed=3),
    Canary("the head is read twice", _one_head_read, "merges", seed=10),
    Canary("covers of the first head", _covers_of_the_first_head, "merges", seed=5),
    Canary(
        "two generations: start over",
        replaced(exact, "moved_too_far", lambda *_: False),
        "merges",
        seed=5,
    ),
    Canary("heads of one run", deletions.generations_identify_heads, "merges", seed=34),
    Canary("exact reads of one incarnation", deletions.reads_take_steps_back, "merges", seed=11),
    Canary(
        "covers of the second head",
        replaced(ExactAccumulator, "leave_out", lambda *_: None),
        "merges",
        seed=62,
    ),
    Canary("select after the wait", _select_before_all_else, "merges", seed=20),
    Canary(
        "shown alike by every region",
        replaced(plan, "shown_alike", lambda found, _: list(found)),
        "merges",
        seed=21,
    ),
    Canary(
        "the time of a bare key",
        replaced(plan.Candidate, "covered", property(lambda one: Covered(one.entry.delta))),
        "merges",
        seed=24,
    ),
    Canary("due marks are set again", _due_forgets_redelivery, "due", seed=84),
    Canary("due again after a run", _reschedule_forgets_the_due, "due"),
    Canary("no SDK retries for atomic", _sdk_retries_atomic, "atomic", seed=1),
    Canary("bounds", _no_bound, "atomic"),
    Canary("the fence of occ", _no_fence, "tags", seed=6),
    Canary("refusals are confirmed", _refuse_without_settling, "tokens", seed=26),
    Canary("bins: a final read", _bins_without_a_final_look, "atomic"),
    Canary("crt: one token", _a_new_token_each_time, "tokens", seed=10),
    Canary("nothing is sent after a key has expired", _tokens_outlived, "makings", seed=296),
    Canary("marker: its condition", _markers_unread, "markers", seed=3),
    Canary("marker: its window", _markers_of_a_short_life, "markers", seed=4),
    Canary(
        "verify by the stream, not by entry times",
        consumers.verify_by_entry_times,
        "totals",
        seed=3,
    ),
    Canary("quarantine: stored, then sent", consumers.rung_before_it_is_kept, "malformed"),
    Canary(
        "markers and tokens of one incarnation", consumers.old_makings_speak, "makings", seed=91
    ),
    Canary(
        "deletion waits for the stream",
        deletions.records_come_again_after_a_deletion,
        "deletion",
        seed=22,
    ),
    Canary("memberships of one counter", deletions.memberships_go_by_name, "deletion", seed=17),
    Canary("an empty head stays for a day", deletions.empty_heads_go_at_once, "deletion", seed=6),
    Canary("archives are recorded", deletions.what_is_gone_was_archived, "deletion", seed=3),
    Canary("alerts: versions", alerts.evaluated_versions_are_evaluated_again, "alerts", seed=16),
    Canary(
        "alerts: the next change waits for the last",
        alerts.next_alerts_do_not_wait,
        "alerts",
        seed=4,
    ),
    Canary(
        "alerts: published, then marked", alerts.marked_before_it_is_published, "alerts", seed=4
    ),
    Canary(
        "alerts: the time of a record", alerts.evaluated_by_the_rules_of_today, "alerts", seed=1
    ),
    Canary("alerts: re-arm levels", alerts.levels_are_not_looked_up, "alerts", seed=60),
    Canary("alerts: no half change of a rule", consumers.half_a_change_is_known, "alerts", seed=9),
    Canary("alerts: a change leaves in time", consumers.rules_leave_late, "alerts", seed=103),
    Canary(
        "alerts: an initial scan waits until the rule is effective",
        consumers.told_before_it_is_in_force,
        "alerts",
        seed=8,
    ),
    Canary(
        "alerts: an initial scan keeps the state before it",
        consumers.a_scan_alert_hides_the_way_there,
        "alerts",
        seed=8,
    ),
    Canary("alerts: dead letters", consumers.dead_letters_are_dropped, "alerts", seed=6),
    Canary("set: from the exact sum", wrong.set_by_the_total, "stock", seed=1),
    Canary("set: its entry is found by its key", wrong.set_without_a_look, "stock"),
    Canary("keyed events are not coalesced", wrong.coalesce_the_keyed, "buffer", seed=2),
    Canary("a spool's entries keep their ids", wrong.reopen_under_other_ids, "buffer", seed=5),
    Canary(
        "a spool stores an entry before it is sent", wrong.send_before_it_is_kept, "buffer", seed=3
    ),
    Canary(
        "a spool deletes an entry after the answer",
        wrong.forget_before_the_answer,
        "buffer",
        seed=9,
    ),
    Canary("failures of a buffer are reported", wrong.fail_without_a_word, "buffer", seed=1),
    Canary("async: failures are reported", wrong.fail_without_a_word, "async", seed=1),
    Canary("async: a spool stores an entry first", wrong.send_before_it_is_kept, "async", seed=1),
    Canary("fork: a lease belongs to one process", wrong.forks_share_a_lease, "forks"),
    Canary("fork: events belong to the parent", wrong.forks_keep_events, "forks", seed=3),
    Canary("import: one time for all attempts", wrong.import_at_each_try, "moving", seed=2),
    Canary("import: its name is the key", wrong.import_without_a_key, "moving", seed=3),
    Canary("import: sequences never go back", wrong.sequences_are_moved_behind, "moving", seed=65),
    Canary("export: the exact sum", wrong.export_totals, "moving", seed=1),
    Canary("export: the ledger before the totals", wrong.walk_totals_first, "moving", seed=5),
    Canary("ingest: keyed ones by condition", _put_without_condition, "ingest", seed=1),
    Canary("ingest: the horizon", _send_without_a_last_look, "ingest", seed=4),
    Canary("ingest: identity is the event's", wrong.identity_by_arrival, "ingest", seed=1),
    Canary("ingest: identity is the content, too", wrong.identity_by_id_alone, "ingest", seed=6),
    Canary("ingest: failures are delivered again", wrong.ingest_goes_on, "ingest", seed=2),
    Canary("ingest: refused payloads are quarantined", wrong.ingest_sets_nothing_aside, "ingest"),
    Canary("marker: deleted by its incarnation", wrong.markers_by_age, "makings", seed=63),
    Canary("append: on condition", wrong.append_over, "numbers", seed=4),
    Canary("append: an uncertain number is read", wrong.append_without_doubt, "numbers"),
    Canary("draw_expected: its condition", wrong.expect_nothing, "numbers", seed=1),
    Canary("draw_expected: its tag", wrong.expect_by_the_number, "numbers", seed=1),
    Canary("sequences: deleted by their id", wrong.delete_any_sequence, "numbers", seed=3),
    Canary("claims: released by their owner", wrong.free_for_anybody, "numbers", seed=1),
    Canary("claims: taken if free", wrong.take_from_anybody, "numbers", seed=1),
    Canary("claims: released by their id", wrong.free_by_owner_alone, "numbers", seed=102),
    Canary("claims: an owner's claim keeps its id", wrong.take_under_another_id, "numbers", seed=1),
    Canary("transfer: one transaction", wrong.transfer_in_steps, "joint"),
    Canary("transfer: its marker", wrong.transfers_unmarked, "joint", seed=3),
    Canary("transfer: refusals are confirmed", wrong.transfers_refused_at_once, "joint", seed=86),
]
