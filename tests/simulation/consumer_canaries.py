"""Known wrong variants of what is behind the totals: progress, watermarks, verdicts, quarantine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from countledger.consumers import materializer, progress, proof, verify
from countledger.consumers.progress import PassedShards, ShardProgress
from countledger.consumers.proof import Prover
from countledger.consumers.quarantine import StoredQuarantine, body, quarantined_of
from countledger.infra.template import mapping_settings
from countledger.ledger.departure import Deadline
from countledger.ledger.limits import MINUTE_MS
from tests.simulation import running_operations, world
from tests.simulation.canary import Canary, little_but, rated, shaped
from tests.simulation.faults import Fault
from tests.switches import all_of, replaced


def _sent_before_it_is_stored(
    kept: StoredQuarantine, one: Mapping[str, Any], reason: str, shard: str
) -> None:
    """A crash after the message leaves what is in a queue alone."""
    copy = quarantined_of(one, reason, shard, kept.source, kept.store.connection.clock.now_ms())
    kept.queue.send(body(one, reason, shard, copy.id))
    kept.store.keep(copy)


def believed(prover: Prover, moment_ms: int, **_: object) -> proof.Proof:
    """Every shard counts as handled to its end."""
    shards = prover.stream.shards()
    progress = prover.totals.progress(str(one.shard) for one in shards)
    ends = dict.fromkeys(shards, proof.By.END)
    return proof._proof(progress, ends, frozenset(progress), moment_ms)


def _by_entry_times(prover: Prover, moment_ms: int, **_: object) -> proof.Proof | None:
    """Verdicts rest on what entries say of their own time, and not on what the stream shows."""
    dynamo: Any = prover.connection.retrying
    entries = dynamo.process.world.copies[dynamo.region]["ledger"].items.values()
    newest_ms = max((item.get("at", 0) for item in entries), default=0)
    latest_ms = newest_ms + prover.connection.clock_skew_ms
    return None if latest_ms > moment_ms else believed(prover, moment_ms)


def _by_age(passed: PassedShards, _dynamo: Any, _table: str, total: Any, *at: Any) -> Any:  # noqa: ANN401
    """Watermarks go once they are as old as late writes can be, whatever their progress says."""
    limit_ms = at[1] - passed.late_ms - MINUTE_MS
    return {
        name: value
        for name, value in progress.marks_in(total).items()
        if int.from_bytes(value[17:]) * MINUTE_MS < limit_ms
    }


_RESTARTS: Final = little_but("remake", "split", "storm")

CANARIES: Final = [
    # What is delivered again is refused by watermarks alone, though these go.
    Canary(
        "records below the progress are dropped",
        all_of(_RESTARTS, replaced(materializer, "above", lambda records, _position: records)),
        "progress",
        seed=29,
        rare=True,
    ),
    Canary(
        "watermarks go by progress",
        all_of(_RESTARTS, replaced(PassedShards, "removable", _by_age)),
        "progress",
        seed=29,
    ),
    # They go as soon as the progress has passed them; what was sent before may still land.
    Canary(
        "watermarks wait for late writes",
        all_of(
            _RESTARTS,
            replaced(ShardProgress, "passed", lambda progress, *_: progress.position),
            replaced(PassedShards, "_is_fresh", lambda *_: False),
        ),
        "progress",
        seed=112,
        rare=True,
    ),
    Canary(
        "no update leaves late",
        all_of(_RESTARTS, replaced(Deadline, "check", lambda _deadline: None)),
        "progress",
        within=800,
        seed=360,
        rare=True,
    ),
    # Little else happens here but that progress is lost, and that mappings are made again.
    Canary(
        "lost progress is not zero",
        all_of(
            little_but("forget", "remake", "split"),
            replaced(progress, "is_known", lambda *_: False),
        ),
        "progress",
        within=800,
        seed=51,
        rare=True,
    ),
    # Either half of a batch may come first.
    Canary(
        "batches are not halved",
        replaced(world, "mapping_settings", lambda: replace(mapping_settings(), bisect=True)),
        seed=3,
    ),
    # Totals are deleted and repaired here while requests of earlier invocations are under way for
    # as long as a minute; little else happens.
    Canary(
        "repair raises watermarks",
        all_of(
            little_but("remake", "split"),
            replaced(verify, "raised", lambda *_: ()),
            replaced(running_operations, "DELETED", 1.0),
            rated(Fault.LATE, 0.15),
            shaped(life_ms=MINUTE_MS, latency_ms=10.0, gap_ms=1_000.0, skew_ms=0),
        ),
        "repairs",
        seed=23,
        rare=True,
    ),
    Canary(
        "verify by the stream, not by entry times",
        replaced(Prover, "past", _by_entry_times),
        "totals",
        seed=5,
    ),
    Canary(
        "quarantine: stored, then sent",
        replaced(StoredQuarantine, "put", _sent_before_it_is_stored),
        "malformed",
        rare=True,
    ),
]
