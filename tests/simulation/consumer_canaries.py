"""Known wrong variants of what is behind the totals: alerts, and verdicts on totals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from countledger.consumers import directory, materializer, proof, repair, watermark
from countledger.consumers.alerts import rule_items, state
from countledger.consumers.alerts.evaluator import InitialScan
from countledger.consumers.alerts.message import QueueDeadLetters
from countledger.consumers.alerts.rules import RuleChanger
from countledger.consumers.progress import ShardProgress
from countledger.consumers.proof import Prover
from countledger.consumers.quarantine import StoredQuarantine, body, quarantined_of
from countledger.consumers.watermark import PassedShards
from countledger.infra.template import mapping_settings
from countledger.ledger.deadline import Deadline
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.definition import Definition
from tests.simulation import (
    evaluating,
    faults,
    running_operations,
    transactions,
    world,
)
from tests.simulation.accidents import ACCIDENTS
from tests.simulation.faults import Fault
from tests.simulation.shape import drawn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    import pytest

    from countledger.ledger.attributes import Item
    from tests.simulation.shape import Shape


def half_a_change_is_known(patch: pytest.MonkeyPatch) -> None:
    """Whatever items of a change of rules a query meets, they are taken for the rules.

    The items of a transaction land far apart here, so that a query meets that more often.
    """

    def whole(*_: Any) -> bool:  # noqa: ANN401 - of the check
        return True

    patch.setattr(rule_items, "_is_whole", whole)
    patch.setattr(transactions, "_SPREAD_MS", (300,))


def a_scan_alert_hides_the_way_there(patch: pytest.MonkeyPatch) -> None:
    """Changes up to the total of an initial scan count as evaluated."""
    patch.setattr(state, "state_before", lambda known, _change: known)


def told_before_it_is_in_force(patch: pytest.MonkeyPatch) -> None:
    """Totals are read at once, and what moves until the rule is in force nobody evaluates."""
    patch.setattr(InitialScan, "_await", lambda _standing, _rule: None)


def dead_letters_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """What a target refuses is kept nowhere."""
    patch.setattr(QueueDeadLetters, "put", lambda letters, letter: None)  # noqa: ARG005


def rules_leave_late(patch: pytest.MonkeyPatch) -> None:
    """A change of a rule is sent however long ago its effective time was computed."""
    patch.setattr(RuleChanger, "refuse_late", lambda *_: None)


def rung_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The message goes first: a crash behind it leaves what is in a queue alone."""

    def put(kept: StoredQuarantine, one: Mapping[str, Any], reason: str, shard: str) -> None:
        copy = quarantined_of(one, reason, shard, kept.source, kept.store.clock.now_ms())
        kept.queue.send(body(one, reason, shard, copy.id))
        kept.store.keep(copy)

    patch.setattr(StoredQuarantine, "put", put)


def old_makings_speak(patch: pytest.MonkeyPatch) -> None:
    """A marker or token is believed without a look whether the counter was made again."""

    def any_incarnation(definition: Definition, item: Item | None) -> Item:
        if item is None:
            raise definition.stale()
        return item

    patch.setattr(Definition, "expect", any_incarnation)


def verify_by_entry_times(patch: pytest.MonkeyPatch) -> None:
    """A ledger without young entries is taken for one whose stream has been handled.

    Verdicts rest on what entries say of their own time, and not on what the stream shows.
    """

    def believe(prover: Prover, moment_ms: int, **_: object) -> proof.Proof | None:
        counters = prover.totals.dynamo
        newest_ms = max((item.get("at", 0) for item in _entries(counters)), default=0)
        if newest_ms + prover.clock_skew_ms > moment_ms:
            return None
        shards = prover.stream.shards()
        progress = prover.totals.progress(str(one.shard) for one in shards)
        ends = dict.fromkeys(shards, proof.By.END)
        return proof._proof(progress, ends, frozenset(progress), moment_ms)

    patch.setattr(Prover, "past", believe)


def _entries(dynamo: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a simulated client
    copies = dynamo.process.world.copies[dynamo.region]
    return list(copies["ledger"].items.values())


def materializer_halves(patch: pytest.MonkeyPatch) -> None:
    """A batch of the ledger's stream that failed is halved; either half may come first."""
    settings = mapping_settings()
    patch.setattr(world, "mapping_settings", lambda: replace(settings, bisect=True))


def evaluator_halves(patch: pytest.MonkeyPatch) -> None:
    """The same of the stream of totals."""
    settings = mapping_settings("EvaluatorMapping")
    patch.setattr(
        evaluating, "mapping_settings", lambda _logical_id: replace(settings, bisect=True)
    )


def shape_all(patch: pytest.MonkeyPatch, **changes: Any) -> None:  # noqa: ANN401 - of a `Shape`
    """Give each simulation the shape of its seed with these changes."""

    def changed(random: Random, operations: dict[str, float], focus: str | None) -> Shape:
        return replace(drawn(random, operations, focus), **changes)

    patch.setattr("tests.simulation.simulation.drawn", changed)


def _accidents(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let little else happen than these."""
    some = {name: ACCIDENTS[name] for name in names}
    patch.setattr("tests.simulation.simulation.ACCIDENTS", some)


def progress_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    """What is delivered again is refused by watermarks alone, though these go."""
    _accidents(patch, "remake", "split", "storm")
    patch.setattr(materializer, "above", lambda records, _position: records)


def watermarks_go_without_progress(patch: pytest.MonkeyPatch) -> None:
    """They go once they are as old as late writes can be, wherever their shard's progress is."""
    _accidents(patch, "remake", "split", "storm")

    def by_age(passed: PassedShards, _dynamo: Any, _table: str, total: Any, *at: Any) -> Any:  # noqa: ANN401
        limit_ms = at[1] - passed.late_ms - MINUTE_MS
        return {
            name: value
            for name, value in watermark.marks_in(total).items()
            if int.from_bytes(value[17:]) * MINUTE_MS < limit_ms
        }

    patch.setattr(PassedShards, "removable", by_age)


def watermarks_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """They go as soon as the progress has passed them; what was sent before may still land."""
    _accidents(patch, "remake", "split", "storm")
    patch.setattr(ShardProgress, "passed", lambda progress, *_: progress.position)
    patch.setattr(PassedShards, "_is_fresh", lambda *_: False)


def updates_leave_late(patch: pytest.MonkeyPatch) -> None:
    """No look at the time is taken as an update leaves."""
    _accidents(patch, "remake", "split", "storm")
    patch.setattr(Deadline, "check", lambda _deadline: None)


def repairs_raise_no_watermarks(patch: pytest.MonkeyPatch) -> None:
    """A repair relies on the progress alone, also for shards that were handled a moment ago.

    Here totals are deleted and repaired while requests of earlier invocations are under way for as
    long as a minute; little else happens.
    """
    _accidents(patch, "remake", "split")
    patch.setattr(repair, "_raised", lambda *_: ())
    patch.setattr(running_operations, "DELETED", 1.0)
    patch.setitem(faults._RATES, Fault.LATE, (0.15,))
    shape_all(patch, life_ms=MINUTE_MS, latency_ms=10.0, gap_ms=1_000.0, skew_ms=0)


def lost_progress_is_zero(patch: pytest.MonkeyPatch) -> None:
    """A shard without progress is taken for a new one, whether it is known or not.

    Here little else happens but that progress is lost, and that mappings are made again.
    """
    _accidents(patch, "forget", "remake", "split")
    patch.setattr(directory, "is_known", lambda _entry, _now_ms: False)
