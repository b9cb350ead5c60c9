"""What a canary of the explorer is: a rule that is switched off must be found missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.exploring.scope import Case
from tests.exploring.scopes import CAPABILITIES

if TYPE_CHECKING:
    from tests.exploring.search import Found
    from tests.switches import Switch

# Within so many states each must be found: that is a few seconds.
_STATES: Final = 20_000


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """A rule without which a case is wrong.

    Attributes:
        rule: what it says.
        capability: the name of the explored capability.
        case: of it, as `--case` takes it: the one that shows it in the fewest states.
        switch_off: takes the rule out of the product.
        faults: how many the search allows.
    """

    rule: str
    capability: str
    case: str
    switch_off: Switch
    faults: int = 1

    def found(self) -> Found:
        """What a search finds without the rule."""
        with pytest.MonkeyPatch.context() as patch:
            self.switch_off(patch)
            return self._search(_STATES)

    def kept(self, states: int) -> Found:
        """What the first states of the same search are with the rule."""
        return self._search(states)

    def _search(self, states: int) -> Found:
        (capability,) = (one for one in CAPABILITIES if one.name == self.capability)
        bounds = replace(capability.bounds, faults=self.faults, states=states)
        return Case.parse(capability, self.case, bounds).run()
