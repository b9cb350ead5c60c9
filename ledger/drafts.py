"""Drafts: frozen dataclasses that are created as fast as plain ones.

A frozen dataclass sets each attribute through `object.__setattr__`: an entry takes four
microseconds, as long as to send it in a batch. A draft has the same attributes and is not frozen,
so it takes a seventh of that. `freeze` makes the object one of the frozen class:

>>> draft_of_receipt = draft_of(Receipt)
>>> receipt: Receipt = freeze(draft_of_receipt(counter, entry_id, status), Receipt)

A draft is not checked: it is for classes without `__post_init__`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, make_dataclass
from dataclasses import field as new_field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def draft_of(frozen: type) -> Callable[..., Any]:
    """What creates drafts of a frozen dataclass with slots; positional arguments in its order."""
    if hasattr(frozen, "__post_init__"):
        raise TypeError(f"{frozen.__name__} checks its values: it has no drafts")
    return make_dataclass(
        f"{frozen.__name__}Draft",
        [
            (
                one.name,
                Any,
                new_field() if one.default is MISSING else new_field(default=one.default),
            )
            for one in fields(frozen)
        ],
        slots=True,
        eq=False,
        repr=False,
    )
