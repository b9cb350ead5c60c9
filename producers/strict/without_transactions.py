"""What a strict counter over regions cannot do, and when it can be deleted.

Such a counter is in the table `strict`, which has multi-region strong consistency: conditions and
strongly consistent reads see the latest version in every region. The table takes neither
transactions nor a time to live, so a counter is one item, and each request changes that item alone.
A write that meets a write of the same item in another region is refused
(`ReplicatedWriteConflictException`), and was not applied: the attempt driver tries it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from countledger.ledger.attributes import optional
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, Refused
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Kind, Namespace
from countledger.producers.strict.definition import Definition, Method

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext

# Over regions, for how long a creation is sent again.
CREATION_SENT_MS: Final = MINUTE_MS
_WHY_NOT: Final = {
    Method.REQUEST_TOKEN: "method request_token is a transaction, which it does not support",
    Method.MARKER: (
        "method marker is a transaction with a marker that expires, and it supports neither "
        "transactions nor time to live"
    ),
}


def no_table() -> NoReturn:
    """Stands for the table `strict` of a stack that has none.

    Raises:
        BadSetting: always.
    """
    raise BadSetting(
        "this stack has no table for strict counters over regions: deploy it with StrictRegions"
    )


def check_over_regions(definition: Definition) -> None:
    """Check that a counter can work over regions.

    Raises:
        BadSetting: it needs what the table `strict` does not support.
    """
    why = _WHY_NOT.get(definition.method)
    if definition.bins > 1:
        why = "bins are created, read and dealt by transactions, which it does not support"
    if why is not None:
        raise BadSetting(
            f"counter {definition.counter!r} is over regions, in a table with multi-region strong "
            f"consistency; {why}: take atomic, occ, history or set, without bins, or a namespace "
            "of kind strict"
        )


def refuse_together(namespace: Namespace) -> None:
    """Refuse counters over regions where a transaction is needed.

    Raises:
        BadSetting: the counters of the namespace are over regions.
    """
    if namespace.kind is Kind.STRICT_REGIONS:
        raise BadSetting(
            f"counters of namespace {namespace.name!r} are over regions, in a table that takes no "
            "transactions: change each alone (`change`), and set a value by a change of the "
            "difference; or take a namespace of kind strict"
        )


def check_age(context: MethodContext, definition: Definition, item: Item) -> None:
    """Check that no request of a counter's creation can be applied any more.

    Raises:
        Refused: the counter is too young to be deleted.
    """
    created_ms = optional(item, "created_at", int)
    if created_ms is None:
        return
    life_ms = CREATION_SENT_MS + context.request_life_ms + context.clock_skew_ms
    left_ms = created_ms + life_ms - context.clock.now_ms()
    if left_ms >= 0:
        raise Refused(
            f"strict counter {definition.counter!r} was created less than {show_duration(life_ms)} "
            "ago: a request of its creation might still arrive, and create it again. Delete it in "
            f"{show_duration(left_ms // 1_000 * 1_000 + 1_000)}"
        )
