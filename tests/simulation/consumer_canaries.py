"""Known wrong variants of what is behind the totals: alerts, and verdicts on totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.consumers import proof
from countledger.consumers.alerts import judged, rule_items
from countledger.consumers.alerts.dead_letters import QueueDeadLetters
from countledger.consumers.alerts.standing import Standing
from countledger.consumers.proof import Prover
from countledger.consumers.quarantine import KeptQuarantine, body, copy_of
from countledger.producers.strict.means import Means
from tests.simulation import transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


def half_a_change_is_known(patch: pytest.MonkeyPatch) -> None:
    """Whatever items of a change of rules a query meets, they are taken for the rules.

    The items of a transaction land far apart here, so that a query meets that more often.
    """

    def whole(*_: Any) -> bool:  # noqa: ANN401 - of the check
        return True

    patch.setattr(rule_items, "_is_whole", whole)
    patch.setattr(transactions, "_SPREAD_MS", (300,))


def where_a_total_stood_hides_its_way(patch: pytest.MonkeyPatch) -> None:
    """Moves up to where a total was told to stand count as judged."""
    patch.setattr(judged, "up_to", lambda state, _move: state)


def told_before_it_is_in_force(patch: pytest.MonkeyPatch) -> None:
    """Totals are read at once, and what moves until the rule is in force nobody judges."""
    patch.setattr(Standing, "_await", lambda _standing, _rule: None)


def dead_letters_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """What a target refuses is kept nowhere."""
    patch.setattr(QueueDeadLetters, "put", lambda letters, letter: None)  # noqa: ARG005


def rung_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The message goes first: a crash behind it leaves what is in a queue alone."""

    def put(kept: KeptQuarantine, one: Mapping[str, Any], reason: str, shard: str) -> None:
        copy = copy_of(one, reason, shard, kept.source, kept.copies.clock.now_ms())
        kept.queue.send(body(one, reason, shard, copy.id))
        kept.copies.keep(copy)

    patch.setattr(KeptQuarantine, "put", put)


def old_makings_speak(patch: pytest.MonkeyPatch) -> None:
    """A marker or token is believed without a look whether the counter was made again."""
    patch.setattr(Means, "read_as_made", lambda means, key, _made: means.read(key))


def verify_by_entry_times(patch: pytest.MonkeyPatch) -> None:
    """A ledger without young entries is taken for one whose stream has been handled.

    Verdicts rest on what entries say of their own time, and not on what the stream shows.
    """

    def believe(prover: Prover, moment_ms: int, **_: object) -> proof.Proof | None:
        counters = prover.totals.door
        newest_ms = max((item.get("at", 0) for item in _entries(counters)), default=0)
        if newest_ms + prover.clock_skew_ms > moment_ms:
            return None
        shards = prover.stream.shards()
        progress = prover.totals.progress(str(one.shard) for one in shards)
        return proof._proof(progress, dict.fromkeys(shards, proof.By.END))

    patch.setattr(Prover, "past", believe)


def _entries(door: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a simulated door
    copies = door.process.world.copies[door.region]
    return list(copies["ledger"].items.values())
