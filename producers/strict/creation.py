"""Making and deleting a strict counter: its items come and go in one transaction (or `in_turn`).

    (strict#<ns>, <counter>)     its entry in the directory, which costs no change anything
    (counter, total)             the definition; without bins also value, bounds, rooms and memory
    (<counter>#NN, bin)          each bin's share of value, bounds and rooms

Markers are not deleted: they belong to an incarnation of the counter, so a recreated one does not
see them, and they expire by themselves.

A version begins at the time of creation, in milliseconds: one item takes no more than a thousand
writes a second for long, so a recreated counter begins above its old version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.expressions import Absent
from countledger.ledger.operations import Delete, Put
from countledger.ledger.ranking import namespace_board
from countledger.producers.strict import token_set
from countledger.producers.strict.bins import deal_state
from countledger.producers.strict.definition import Method, encode_definition
from countledger.producers.strict.state import StrictState, encode_state, of

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.bounds import Bounds
    from countledger.producers.strict.definition import Definition


def plan_creation(
    table: str,
    definition: Definition,
    bounds: Bounds,
    opening: Amount,
    now_ms: int,
    *,
    ranked: bool = False,
) -> list[Put]:
    """All items of a new counter, if there is none of its name: two write units each.

    The directory's entry comes first, then the main item, which decides. In a ranked namespace the
    main item has its place on the board, if the value lies in it: two write units more.
    """
    whole = StrictState(definition.incarnation, now_ms, opening, bounds.lower, bounds.upper)
    # A change by method crt cannot note its time, so its counter shows none.
    stamp = None if definition.method is Method.CRT else now_ms
    main: Item = {"updated_at": stamp, **encode_definition(definition)}
    shares: list[StrictState] = []
    if definition.bins == 1:
        main |= {**encode_state(whole), **_memory(definition)}
        if ranked:
            board = namespace_board(keys.namespace_of(definition.counter))
            main[board.attribute] = board.bucket_of(definition.counter)
    else:
        main["version"] = now_ms
        shares = deal_state(whole, definition.bins)
    listed: Item = {
        **keys.strict_key(definition.counter),
        "incarnation": definition.incarnation,
        "method": str(definition.method),
        "at": now_ms,
    }
    bins = (
        Put(table, {**key, **encode_state(share), "updated_at": stamp})
        for key, share in zip(definition.places, shares, strict=bool(shares))
    )
    return [Put(table, listed), Put(table, main, Absent("part")), *bins]


def plan_deletion(table: str, definition: Definition, *, in_turn: bool = False) -> list[Delete]:
    """All items of a counter, if it is that incarnation of it: two write units for each KB of each.

    The main item comes first, then the directory's entry.
    """
    condition = of(definition.incarnation)
    places = definition.places if definition.bins > 1 else []
    return [
        Delete(table, definition.main, condition),
        # Made and deleted in turn, the entry may be that of another incarnation; then it stays.
        Delete(table, keys.strict_key(definition.counter), condition if in_turn else None),
        *(Delete(table, place, condition) for place in places),
    ]


def _memory(definition: Definition) -> Item:
    """What the method remembers of a counter that nobody has changed yet."""
    tag = f"{definition.incarnation}=0"
    match definition.method:
        case Method.OCC:
            return {"tag": tag}
        case Method.HISTORY:
            return {"tags": [tag]}
        case Method.SET:
            return {"tokens": token_set.seed(definition.incarnation)}
        case _:
            return {}
