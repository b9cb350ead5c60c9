"""What the service makes of our conditions and updates, judged over plain items.

The engines' contract suite holds the real dynamo to the same behaviour.
"""

from __future__ import annotations

from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.ledger import amount
from countledger.ledger.errors import RequestRejected, SumOverflow
from countledger.ledger.expressions import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Lacks,
    SizeAtMost,
)
from countledger.ledger.limits import NUMBER_MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Clause

_RELATIONS: Final[dict[str, Any]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_LIMIT: Final = 10**NUMBER_MAX_DIGITS
_SORT_KEYS: Final = ("entry", "part")


def key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """Partition and sort key of an item, or of its key."""
    sort = next(name for name in _SORT_KEYS if name in item)
    return item["counter"], item[sort]


def holds(condition: Condition, item: Item) -> bool:
    """Whether a condition holds of an item."""
    if isinstance(condition, AllOf):
        return all(holds(one, item) for one in condition.conditions)
    if isinstance(condition, AnyOf):
        return any(holds(one, item) for one in condition.conditions)
    return _holds_alone(condition, item)


def _holds_alone(condition: Condition, item: Item) -> bool:  # noqa: PLR0911 - one for each kind
    if isinstance(condition, Absent):
        return condition.name not in item
    if isinstance(condition, Compare):
        if condition.operator == "<>":
            return bool(item.get(condition.name) != condition.value)
        relation = _RELATIONS[condition.operator]
        return condition.name in item and relation(item[condition.name], condition.value)
    if isinstance(condition, Lacks):
        return condition.value not in cast("set[str]", item.get(condition.name, set()))
    if isinstance(condition, SizeAtMost):
        return condition.name in item and len(item[condition.name]) <= condition.size
    if isinstance(condition, BeginsWith):
        return str(item.get(condition.name, "")).startswith(condition.prefix)
    if isinstance(condition, Between):
        value: Any = item.get(condition.name)
        low: Any = condition.low
        high: Any = condition.high
        return value is not None and low <= value <= high
    raise TypeError(f"no judgement of {condition!r}")


def changed(item: Item, clauses: Iterable[Clause]) -> Item:
    """The item behind an update.

    Raises:
        RequestRejected: what it adds to is no number.
        SumOverflow: a number that it writes has too many digits.
    """
    after = dict(item)
    for clause in clauses:
        if isinstance(clause, Assign):
            if isinstance(clause.value, int | Decimal) and not _holds(clause.value):
                raise SumOverflow("the number needs more than 38 digits")
            after[clause.name] = clause.value
        elif isinstance(clause, AssignOnce):
            after.setdefault(clause.name, clause.value)
        elif isinstance(clause, Add):
            after[clause.name] = _added(after.get(clause.name), clause.value)
        else:
            after.pop(clause.name, None)
    return after


def _holds(total: int | Decimal) -> bool:
    """Whether the service holds a number: 38 significant digits, wherever the point is."""
    if isinstance(total, int) and -_LIMIT < total < _LIMIT:
        return True
    digits = "".join(map(str, Decimal(total).as_tuple().digits)).strip("0")
    return len(digits) <= NUMBER_MAX_DIGITS


def _added(there: Any, added: Any) -> Any:  # noqa: ANN401 - a number or a set
    if isinstance(added, set):
        return (there or set()) | added
    there = 0 if there is None else there
    if not isinstance(there, int | Decimal):
        raise RequestRejected(f"{there!r} is no number")
    total = amount.add(there, added)
    if not _holds(total):
        raise SumOverflow("the number needs more than 38 digits")
    return total
