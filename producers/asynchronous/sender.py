"""Sending entries from an event loop: the same rules as `sender`, awaited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from countledger.ledger.departure import looking
from countledger.ledger.errors import (
    ClockSkew,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    RequestRejected,
    Throttled,
    Unclear,
)
from countledger.ledger.expressions import Absent
from countledger.ledger.keys import namespace_of
from countledger.ledger.operations import Put
from countledger.producers.receipt import Receipt, Status, judge_existing
from countledger.producers.sender import _AGAIN, Sender, _given_up, _in_order, _stored_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace
    from countledger.producers.asynchronous.door import AsyncDoor
    from countledger.producers.sender import Outcome


@dataclass(frozen=True, slots=True)
class AsyncSender(Sender):
    """Sends entries to the ledger without holding up an event loop.

    Its door is an `AsyncDoor`. The first use of a namespace reads it, on a thread of its own.

    Attributes:
        met: the namespaces that are known.
    """

    met: set[str] = field(default_factory=set)

    async def meet(self, entry: Entry) -> None:
        """Know the namespace of an entry.

        Raises:
            NamespaceUnknown, WrongKind: its counter cannot be used like this.
        """
        name = namespace_of(entry.counter)
        if name not in self.met:
            await asyncio.to_thread(self._namespace, entry)
            self.met.add(name)

    async def send_soon(self, entry: Entry) -> Receipt:
        """As `send`, of an entry whose namespace is known."""
        namespace = self._namespace(entry)
        item = _stored_form(entry, namespace)
        waits_ms = self.backoff.waits_ms(self.random)
        still_young = partial(self._check_age, entry, namespace)
        lost = False
        while True:
            still_young()
            try:
                with looking(still_young):
                    await self._async_door.put_soon(Put(self.table, item, Absent("entry")))
            except (KeyExpired, ClockSkew):
                raise
            except ConditionFailed as failed:
                if failed.item is None:
                    raise
                if lost and failed.item == item:
                    break
                return judge_existing(entry, failed.item)
            except CountledgerError as error:
                lost = lost or isinstance(error, Unclear)
                if isinstance(error, _AGAIN) and await self._pause_soon(waits_ms):
                    continue
                raise _given_up(entry, error, lost=lost) from error
            else:
                break
        return Receipt(entry.counter, entry.id, Status.RECORDED)

    async def send_batch_soon(self, entries: Sequence[Entry]) -> list[Outcome]:
        """As `send_batch`, of entries whose namespaces are known."""
        outcomes: dict[int, Outcome] = {}
        pending = dict(enumerate(entries))
        waits_ms = self.backoff.waits_ms(self.random)
        lost = False
        while pending:
            namespaces, refused = self._refuse_too_old(pending)
            outcomes |= refused
            if not pending:
                break
            try:
                taken, error = await self._put_batch_soon(pending, namespaces)
            except RequestRejected:
                alone = {n: await self.outcome_soon(entry) for n, entry in pending.items()}
                return _in_order(outcomes | alone)
            if isinstance(error, KeyExpired | ClockSkew):
                continue
            outcomes |= taken
            pending = {n: entry for n, entry in pending.items() if n not in outcomes}
            lost = lost or isinstance(error, Unclear)
            if pending and not (isinstance(error, _AGAIN) and await self._pause_soon(waits_ms)):
                outcomes |= {n: _given_up(e, error, lost=lost) for n, e in pending.items()}
                break
        return _in_order(outcomes)

    async def outcome_soon(self, entry: Entry) -> Outcome:
        """`send_soon`, with an error as a value."""
        try:
            return await self.send_soon(entry)
        except CountledgerError as error:
            return error

    async def _put_batch_soon(
        self, pending: dict[int, Entry], namespaces: dict[int, Namespace]
    ) -> tuple[dict[int, Outcome], CountledgerError]:
        items = {n: _stored_form(e, namespaces[n]) for n, e in pending.items()}
        try:
            with looking(partial(self._check_ages, pending, namespaces)):
                unprocessed = await self._async_door.put_batch_soon(
                    self.table, list(items.values())
                )
        except RequestRejected:
            raise
        except CountledgerError as error:
            return {}, error
        left = {(item["counter"], item["entry"]) for item in unprocessed}
        return {
            n: Receipt(pending[n].counter, pending[n].id, Status.RECORDED)
            for n, item in items.items()
            if (item["counter"], item["entry"]) not in left
        }, Throttled(f"BatchWriteItem on {self.table}: left unprocessed")

    async def _pause_soon(self, waits_ms: Iterator[float]) -> bool:
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            return False
        await asyncio.sleep(wait_ms / 1_000)
        return True

    @property
    def _async_door(self) -> AsyncDoor:
        return cast("AsyncDoor", self.door)
