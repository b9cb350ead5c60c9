"""A counter that an import creates, once under the name of the import.

An opening balance of a ledger is an entry under a key, so it counts once. A strict counter or a
sequence has no such key. Its absence proves nothing, because this import may have created it, and
it may have been used, emptied and deleted since. So the import stores a note of each:

    (`import#<name>`, `made#<counter>`)    `id` of the attempt; `made_at` once it was created

    note       `id`, if there is no note
    create     the counter
    complete   `made_at`, if the note has that id; after a clear refusal a tombstone takes its place

The tombstone refuses a late request of the note, which would say that the counter may have been
created.

A note without `made_at` is that of an attempt that was killed, is under way, or got no answer. If
its counter is absent, it is unknown whether it was created: its line is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.errors import BadPayload, CountledgerError, Unclear
from countledger.ledger.ids import unique_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.operations import Assign, Compare, Put, Update
from countledger.ledger.tombstones import put_if_vacant, tombstone

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient


@dataclass(frozen=True, slots=True)
class MadeOnce:
    """What an import has created.

    Attributes:
        dynamo: a DynamoDB client; its SDK may retry.
        table: the table `counters`.
        name: of the import.
        clock: the time.
        clock_skew_ms: how far clocks may differ.
        new_id: makes the id of an attempt.
    """

    dynamo: DynamoClient
    table: str
    name: str
    clock: Clock
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    new_id: Callable[[], str] = unique_id

    def make(
        self, counter: str, create: Callable[[], object], exists: Callable[[], bool]
    ) -> bool | None:
        """Create a counter, unless this import has created it: two write units more.

        Args:
            counter: its name.
            create: creates it, or raises.
            exists: whether a counter of that name exists, also one that this import did not create.

        Returns:
            Whether this call created it; None: this import created it, and it was deleted since.

        Raises:
            BadPayload: it is unknown whether an earlier attempt created it.
            CountledgerError: as `create`.
        """
        note = {**keys.import_key(self.name), "part": keys.MADE_PREFIX + counter}
        key, attempt = dict(note), self.new_id()
        put = Put(self.table, {**note, "id": attempt})
        found = put_if_vacant(self.dynamo, put, self.clock.now_ms(), self.clock_skew_ms)
        if found is not None:
            if exists():
                return False
            if "made_at" in found:
                return None
            raise _unknown(self.name, counter)
        same = Compare("id", "=", attempt)
        try:
            create()
        except Unclear:
            raise
        except CountledgerError:
            gone = tombstone(key, attempt, self.clock.now_ms(), self.clock_skew_ms)
            wrote(self.dynamo, Put(self.table, gone, same))
            raise
        made = Assign("made_at", self.clock.now_ms())
        wrote(self.dynamo, Update(self.table, key, (made,), same))
        return True


def _unknown(name: str, counter: str) -> BadPayload:
    return BadPayload(
        f"an earlier try of import {name!r} was stopped while it created {counter!r}, which does "
        "not exist now: it may have been created and deleted since. If it was not, import its line "
        "under another name (or wait, if that try is still running)"
    )
