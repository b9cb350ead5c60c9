"""One use of each capability of a client, on a stack in memory."""

from datetime import timedelta

from countledger import Claim, Collection, CountLedger, Event, Kind
from countledger.consumers.verify import Judgement
from countledger.ledger.limits import HOUR_MS
from countledger.testing import MemoryStack


def use_everything(stack: MemoryStack) -> None:
    """Use each capability once, and check its answer."""
    ledger = stack.ledger
    ledger.namespaces.create("views", horizon_ms=HOUR_MS, spread=16)
    _use_strict(stack, ledger)
    _use_numbers(stack, ledger)
    _use_ledger(stack, ledger)
    _use_boards(stack, ledger)


def _use_ledger(stack: MemoryStack, ledger: CountLedger) -> None:
    counter = "views:page"
    ledger.window_settings.enable("views", by="hour")
    ledger.alerts.create("busy", counter=counter, threshold=3, direction="rising", now=True)
    stack.advance(minutes=10)
    receipt = ledger.record(counter, 1, occurred_at=stack.clock.now, note={"by": "test"})
    ledger.record_many([Event(counter, 1, key=f"k{n}") for n in range(3)])
    with ledger.buffered() as producer:
        producer.add(counter, 1)
    assert ledger.total(counter, after=receipt).value == 5
    assert ledger.set_value(counter, 7, key="correction").delta == 2
    assert (ledger.exact(counter).value, ledger.total(counter).value) == (7, 7)
    assert ledger.totals([counter])[counter].value == 7
    assert ledger.snapshot([counter]).totals[counter].value == 7
    assert sum(1 for _ in ledger.entries(counter)) == 6
    assert [one.counter for one in ledger.counters("views")] == [counter]
    since = stack.clock.now - timedelta(hours=1)
    assert sum(one.value for one in ledger.windows(counter, "hour", since=since)) == 7
    assert ledger.total(counter, regions=True).total.value == 7
    assert ledger.freshness(prove=True).up_to_date
    assert [one["rule"] for one in stack.alerts] == ["busy"]
    ledger.schedules.create("views", min_entries=2, every_ms=HOUR_MS)
    stack.advance(hours=4)
    assert stack.compact(counter).error is None
    assert ledger.head(counter).entries == 6
    assert ledger.audit.verify(counter).verdict is Judgement.EXACT
    assert list(ledger.quarantine.list()) == []
    assert ledger.deletions.delete(counter) is not None


def _use_strict(stack: MemoryStack, ledger: CountLedger) -> None:
    strict = ledger.strict
    for method in ("atomic", "occ", "history", "request_token", "marker", "set"):
        counter = f"stock-{method}:a"
        strict.create(counter, method=method, lower=0, opening=5)
        strict.change(counter, -1, key=None if method == "atomic" else "order")
        assert strict.show(counter).value == 4
    hold = strict.hold("stock-marker:a", 1, key="basket", expires_in=timedelta(minutes=5))
    stack.advance(minutes=10)
    assert list(strict.holds("stock-marker:a")) == []
    assert hold is not None
    assert ledger.namespaces.get("stock-marker", Kind.STRICT).kind is Kind.STRICT


def _use_numbers(stack: MemoryStack, ledger: CountLedger) -> None:
    assert [ledger.sequences.draw("shop:orders") for _ in range(2)] == [1, 2]
    stack.create_table("posts", "post", "place")
    posts = Collection("posts", ("post", "p-1"), "place")
    assert ledger.sequences.append(posts, {"text": "first"}).number == 1
    assert ledger.claims.take(Claim("mail", "a@example.com", owner="a"))
    ledger.quotas.create("calls:", limit=2, per="hour")
    assert [type(ledger.quotas.acquire("calls:a", 1)).__name__ for _ in range(3)] == [
        "Admitted",
        "Admitted",
        "Denied",
    ]
    stack.advance(hours=1)
    assert type(ledger.quotas.acquire("calls:a", 1)).__name__ == "Admitted"


def _use_boards(stack: MemoryStack, ledger: CountLedger) -> None:
    for number in (1, 2, 3):
        ledger.record(f"points:{number}", number)
    ledger.rankings.switch_on("points")
    ledger.groups.add("team", ["points:1", "points:3"])
    ledger.groups.switch_ranking("team", on=True)
    ledger.record("points:1", 9)
    assert ledger.rankings.top("points", 1)[0].counter == "points:1"
    assert [one.counter for one in ledger.groups.top("team", 2)] == ["points:1", "points:3"]
    assert stack.failures == []
