"""Method `history`: as `occ`, with the tags of the last changes, oldest out.

One read unit and one write unit (no read with `known`), for each KB of an item that grows with the
history: 20 tags are about 1 KB.

After a write that got no answer the item is read again:

    my tag among them                          applied
    the very same version                      not yet: fenced, as in `occ`
    no more versions on than tags are kept     not applied, final: mine would still be there
    more, and my tag not among them            nobody can know: it may have been pushed out
    made again                                 nobody can know

A key that comes again is recognised while its tag is among the last ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.expressions import Assign

if TYPE_CHECKING:
    from countledger.ledger.expressions import Clause
    from countledger.producers.strict.state import StrictState


@dataclass(frozen=True, slots=True)
class LastTags:
    """A memory of so many changes."""

    length: int

    def after(self, state: StrictState, tag: str) -> tuple[str, ...]:
        """The tags with a new one."""
        return (*state.tags, tag)[-self.length :]

    def clause(self, tags: tuple[str, ...]) -> Clause:
        """How they are stored."""
        return Assign("tags", list(tags))
