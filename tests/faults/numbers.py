"""What every fault must leave right: the ledger's sum and the total."""

from collections.abc import Iterable

from countledger.ledger import amount
from countledger.ledger.amount import Amount
from tests.engines.store import Record, Store
from tests.faults.canary import WrongNumber


def expect_sum(store: Store, counter: str, deltas: Iterable[Amount]) -> None:
    """The ledger holds exactly these deltas: nothing acknowledged is lost or there twice.

    Raises:
        WrongNumber: it does not.
    """
    expected = list(deltas)
    exact = store.exact().read(counter)
    found = exact.value, exact.entries
    if found != (amount.total_of(expected), len(expected)):
        raise WrongNumber(f"ledger of {counter}: {found} instead of {expected}")


def expect_total(store: Store, counter: str, quarantined: Iterable[Record] = ()) -> None:
    """The total is the ledger's sum, less what lies in the quarantine.

    Raises:
        WrongNumber: it is not.
    """
    exact = store.exact().read(counter)
    total = store.totals().read(counter)
    # A record may lie in the quarantine more than once.
    aside = {
        record["dynamodb"]["SequenceNumber"]: record["dynamodb"]["NewImage"]["delta"]["N"]
        for record in quarantined
    }
    known = amount.add(total.value, amount.total_of(map(amount.from_number, aside.values())))
    if (known, total.entries + len(aside)) != (exact.value, exact.entries):
        raise WrongNumber(
            f"total of {counter}: {total.value} of {total.entries} entries and {aside} aside, "
            f"instead of {exact.value} of {exact.entries}"
        )
