"""P8: what a caller of strict counters gets wrong, on one engine: the others judge no input."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from countledger.ledger.errors import (
    BadBounds,
    BadCounterName,
    BadDelta,
    BadKey,
    BadNote,
    BadSetting,
    CounterExists,
    CountledgerError,
    NamespaceUnknown,
    NoSuchCounter,
)
from countledger.producers.strict.counters import StrictCounters
from tests.engines.store import Store
from tests.faults.strict.sellers import seller_of


@pytest.mark.parametrize("store", ["ministack"], indirect=True)
@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda s, c: s.create(c, method="best"), BadSetting),
        (lambda s, c: s.create(c, method="atomic", lower=1, upper=0), BadBounds),
        (lambda s, c: s.create(c, method="atomic", lower=1, upper=1), BadBounds),
        (lambda s, c: s.create(c, method="atomic", upper=float("nan")), BadBounds),
        (lambda s, c: s.create(c, method="atomic", upper=Decimal("NaN")), BadBounds),
        (lambda s, c: s.create(c, method="atomic", upper=10**20), BadBounds),
        (lambda s, c: s.create(c, method="atomic", lower=0, opening=-1), BadBounds),
        (lambda s, c: s.create(c, method="atomic", lower=0, opening=Decimal("1E-10")), BadBounds),
        (lambda s, c: s.create(c, method="occ", bins=2), BadSetting),
        (lambda s, c: s.create(c, method="atomic", bins=99), BadSetting),
        (lambda s, c: s.create(c, method="atomic", bins=0), BadSetting),
        (lambda s, c: s.create(c, method="set", max_tokens=1_639), BadSetting),
        (lambda s, c: s.create(c, method="occ", history=5), BadSetting),
        (lambda s, c: s.create(c, method="history", history=1), BadSetting),
        (lambda s, c: s.create(c, method="marker", window_ms=1), BadSetting),
        (lambda s, _: s.create("a#b", method="atomic"), BadCounterName),
        (lambda s, c: s.create(f"{c}-is", method="atomic"), CounterExists),
        (lambda s, c: s.change(f"{c}-is", 0), BadDelta),
        (lambda s, c: s.change(f"{c}-is", 1.5), BadDelta),
        (lambda s, c: s.change(f"{c}-is", 1, key="k"), BadKey),
        (lambda s, c: s.change(f"{c}-marked", 1, key="k" * 1_025), BadKey),
        (lambda s, c: s.change(f"{c}-marked", 1, prefer="under"), BadSetting),
        (lambda s, c: s.change(f"{c}-is", 1, prefer="both"), BadSetting),
        (lambda s, c: s.change(f"{c}-is", 1, note={"a": "b"}), BadNote),
        (lambda s, c: s.change(f"{c}-set", 2), BadDelta),
        (lambda s, c: s.change(c, 1), NoSuchCounter),
        (lambda s, c: s.show(c), NoSuchCounter),
        (lambda s, c: s.delete(c), NoSuchCounter),
        (lambda s, c: s.set_bounds(c, upper=1), NoSuchCounter),
        (lambda s, c: s.set_bounds(f"{c}-is"), BadSetting),
        (lambda s, c: s.set_bounds(f"{c}-is", lower=3, upper=2), BadBounds),
        (lambda s, c: s.withdraw(c, "k"), NoSuchCounter),
        (lambda s, c: s.withdraw(f"{c}-is", "k"), BadSetting),
        (lambda s, _: s.change("nowhere-at-all:x", 1), NamespaceUnknown),
        (lambda s, _: list(s.list("nowhere-at-all")), NamespaceUnknown),
    ],
)
def test_p8_bad_input_is_refused_and_changes_nothing(
    store: Store,
    counter: str,
    act: Callable[[StrictCounters, str], object],
    error: type[CountledgerError],
) -> None:
    seller = seller_of(store)
    for name, method in (("is", "atomic"), ("marked", "marker"), ("set", "set")):
        seller.create(f"{counter}-{name}", method=method)

    with pytest.raises(error) as raised:
        act(seller, counter)

    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2
    listed = seller.list(counter.partition(":")[0])
    assert [one.value for one in listed] == [0, 0, 0]
