"""Method `occ`: write what was read plus the change, if nobody else has written since.

One read unit and one write unit; no read where the caller hands in the state that its last change
answered with (`known`). The item's version says which state it is, its tag whose change was last.
Refused for want of room is said of a state that was read, so it costs no write.

After a write that got no answer the item is read again:

    my tag                                  applied
    the very same version                   not yet: the request may still land. A fencing write
                                            (version + 1, all else as it is) refuses it for good
    one version on, and not by me           not applied, final: my place is taken
    two or more versions on, not by me      nobody can know: mine may have been overwritten
    made again                              nobody can know

The fencing write may fail or stay unclear itself: then the item is read again, with the same table.
After "not applied" the change goes on from the state that was found.

Every change of the item raises its version, also one of its bounds. A version never comes back: a
counter that is made again begins above its old one. A key that comes again is recognised while its
tag is the last; later, nobody can tell, and it counts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.expressions import Assign

if TYPE_CHECKING:
    from countledger.ledger.expressions import Clause
    from countledger.producers.strict.state import StrictState


@dataclass(frozen=True, slots=True)
class LastTag:
    """A memory of one change."""

    length: int = 1

    def after(self, _state: StrictState, tag: str) -> tuple[str, ...]:
        """The tags with a new one."""
        return (tag,)

    def clause(self, tags: tuple[str, ...]) -> Clause:
        """How they are stored."""
        return Assign("tag", tags[-1])
