"""Canaries: a law is checked with its rule kept, and again with the rule switched off.

    @judged(without_the_watermark)
    def test_the_same_batch_again_changes_nothing(rule: Rule, ...) -> None:
        with rule.watched():
            ...
            expect_total(store, counter)

With the rule kept the body must pass. With the rule switched off (in our code, never in boto3) the
very same body must find a wrong number; else the check sees nothing and is worth nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from tests.switches import Switch


class WrongNumber(AssertionError):
    """A number is not what was acknowledged, or what the ledger says."""


@dataclass(frozen=True)
class Rule:
    """A rule as it stands for one run of a check.

    Attributes:
        name: for the id of the test.
        switch_off: takes the rule out of the product; None keeps it.
    """

    name: str
    switch_off: Switch | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run a check: it passes with the rule kept, and finds a wrong number without it."""
        if self.switch_off is None:
            yield
            return
        with pytest.MonkeyPatch.context() as patch:
            self.switch_off(patch)
            with pytest.raises(WrongNumber):
                yield


_KEPT: Final = Rule("kept")


def judged(*switches: Switch) -> pytest.MarkDecorator:
    """Run a test with its rule kept, and once with each of the switches."""
    off = [Rule(switch.__name__, switch) for switch in switches]
    return pytest.mark.parametrize("rule", [_KEPT, *off], ids=lambda rule: rule.name)
