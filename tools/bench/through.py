"""From the event to the total on the embedded engine: how much of the engine's rate is left.

Events are emitted; the pump delivers the stream to the materializer in this machine's stack. The
engine is the bottleneck, so the rate of applied updates is compared with the rate at which the same
engine takes bare UpdateItem calls, by a plain client of HTTP, in the same run: one half of them
before, one half after, because the speed of a machine changes while a minute passes.
"""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from countledger import Event, Receipt
from countledger.infra.local.engine import REGION, ROOT_SECRET
from countledger.infra.local.following import SECRET_HEADER
from countledger.infra.local.stack import ROOT, LocalStack

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS: Final = 60_000
COUNTERS: Final = 20_000
_BARE: Final = 3_000
_CONNECTIONS: Final = 8
_PATIENCE_S: Final = 1_800
# The engine reads region and account of a request; its secret stands for the signature.
_HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDB_20120810.UpdateItem",
    SECRET_HEADER: ROOT_SECRET,
    "Authorization": (
        f"AWS4-HMAC-SHA256 Credential={ROOT.access_key}/20261122/{REGION}/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=0"
    ),
}


@dataclass(frozen=True, slots=True)
class Through:
    """What was measured.

    Attributes:
        bare_rate: UpdateItem calls a second by the plain client.
        emit_rate: events a second that `record_many` emitted.
        applied_rate: updates of totals a second, from the first event to the last total.
        events: how many events.
        counters: of how many counters.
    """

    bare_rate: float
    emit_rate: float
    applied_rate: float
    events: int
    counters: int

    @property
    def share(self) -> float:
        """How much of the bare rate the applied updates reach."""
        return self.applied_rate / self.bare_rate


def measure(scale: float, show: Callable[[str], object]) -> Through:
    """Emit and apply that part of the events, and measure the engine beside it."""
    events, counters = int(EVENTS * scale), int(COUNTERS * scale)
    with LocalStack(pumping=False) as stack:
        ledger = stack.home.ledger()
        show("end to end: bare calls")
        table = ledger.connection.setting("counters_table")
        bare_s = _bare_s(stack.url, table)
        show(f"end to end: {events:,} events are emitted")
        namespace = f"through{uuid.uuid4().hex[:6]}"
        began_s = time.perf_counter()
        outcomes = ledger.record_many(
            Event(f"{namespace}:{number % counters}", 1) for number in range(events)
        )
        emit_s = time.perf_counter() - began_s
        if not all(isinstance(one, Receipt) for one in outcomes):
            raise AssertionError("an event was not recorded")
        show("end to end: and applied")
        began_s = time.perf_counter()
        stack.pump.drain(_PATIENCE_S)
        apply_s = time.perf_counter() - began_s
        updates = sum(one.updates for one in ledger.freshness().shards)
        total = sum(one.value for one in ledger.totals([f"{namespace}:0"]).values())
        if total != events // counters:
            raise AssertionError(f"a total is {total}")
        bare_s += _bare_s(stack.url, table)
    return Through(2 * _BARE / bare_s, events / emit_s, updates / apply_s, events, counters)


def _bare_s(url: str, table: str) -> float:
    """How long the UpdateItem calls take, over some connections."""
    bodies = deque(
        json.dumps(
            {
                "TableName": table,
                "Key": {"counter": {"S": f"bare:{number}"}, "part": {"S": "bare"}},
                "UpdateExpression": "ADD #n :one",
                "ExpressionAttributeNames": {"#n": "total"},
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        )
        for number in range(_BARE)
    )

    def work(_: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while bodies:
            try:
                body = bodies.popleft()
            except IndexError:
                break  # another connection took the last one
            connection.request("POST", "/", body, _HEADERS)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise AssertionError(text)

    began_s = time.perf_counter()
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        deque(pool.map(work, range(_CONNECTIONS)), maxlen=0)
    return time.perf_counter() - began_s
