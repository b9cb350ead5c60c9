"""What was found, by the simulation and by reading: each as its shortest script of faults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    ClockSkew,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchCounter,
    Reason,
    TransactionCancelled,
    Unacknowledged,
    Unclear,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, TOKEN_LIFE_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Write
from countledger.producers.buffer.settings import Buffering, SpoolRefused
from countledger.producers.claims.claim import Claim
from countledger.producers.event import Event
from countledger.producers.ingest.ingest import LateResender, LateStatus
from countledger.producers.own_items import ItemChange
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    Unknown,
    Withdrawn,
)
from tests.simulation import threads
from tests.simulation.buffer_operations import open_producer
from tests.simulation.calm import calm_world, script
from tests.simulation.faults import Fault
from tests.simulation.ingest import IngestWay
from tests.simulation.number_account import POSTS
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS
from tests.simulation.spool import SimulatedSpool
from tests.simulation.world import World

HALL, SHELF = "s:hall", "s:shelf"
CHANGES = {HALL: 5, SHELF: -5}
# Longer than the key of several changes is remembered.
_DAY = DAY_MS + HOUR_MS
_THROTTLED = [Fault.THROTTLE] * 8


def _forget_markers(world: World) -> None:
    """As time to live does."""
    table = world.copies["home"][COUNTERS]
    for key in [
        key for key in table.items if key[1].startswith("m#") or key[0].startswith("keyed#")
    ]:
        table.store(key, None)


class Shop:
    """A process that changes strict counters, in a world where only scripted faults happen."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, hall: int, shelf: int = 20) -> None:
        self.world = world = calm_world()
        Product(world.process("home", "set-up")).namespaces.create("s", kind=Kind.STRICT)
        self.method, self.naps, self.product = method, list[int](), self.process("seller")
        for counter, opening in ((HALL, hall), (SHELF, shelf)):
            self.create(self.product, counter, opening)
        patch.setattr(world, "freeze_ms", self._freeze_ms)

    def process(self, name: str) -> Product:
        return Product(self.world.process("home", name))

    def create(self, product: Product, counter: str, opening: int = 0) -> None:
        window_ms = 5 * MINUTE_MS if self.method == "marker" else None
        product.strict.create(
            counter, method=self.method, lower=0, upper=100, opening=opening, window_ms=window_ms
        )

    def made_again(self) -> Product:
        """By another process, while the first knows the old counter."""
        other = self.process("other")
        with self.world.auditor.strict.accounts[HALL].deleted.one(NoSuchCounter):
            other.strict.delete(HALL)
        self.create(other, HALL)
        return other

    def key(self, ahead: timedelta = timedelta()) -> IdempotencyKey:
        return IdempotencyKey("order-1", to_datetime(self.product.process.now_ms()) + ahead)

    def pass_time(self, duration_ms: int) -> None:
        self.world.schedule.now_ms += duration_ms
        if duration_ms >= HOUR_MS:
            _forget_markers(self.world)

    def _freeze_ms(self, _operation: str) -> float:
        self.pass_time(self.naps.pop(0))
        return 0

    def values(self) -> list[int]:
        return [int(self.product.strict.show(counter).value) for counter in CHANGES]

    def hide_first_reason(self, patch: pytest.MonkeyPatch) -> None:
        """A cancelled transaction names one of the conditions that failed, and not the first."""
        service = self.world.transactions["home"]
        judge = service._check

        def hiding(writes: Sequence[Write]) -> None:
            try:
                judge(writes)
            except TransactionCancelled as cancelled:
                first, *others = cancelled.reasons
                hidden = Reason("None") if any(one.condition_failed for one in others) else first
                raise TransactionCancelled((hidden, *others)) from None

        patch.setattr(service, "_check", hiding)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One attempt too many, and what must come of it.

    Attributes:
        methods: of the counters.
        faults: of the calls, in order; the value is read first where several are set.
        naps: how long each `FROZEN` takes (ms); markers and tokens are forgotten meanwhile.
        act: the call.
        outcome: of the call.
        values: of both counters at the end.
        hall: the opening value of the first; 100 is its upper bound.
        hidden: whether a cancelled transaction hides its first reason.
        before: what happened before, with the same key; then this much time passed.
        warm: whether the process has read all definitions before.
    """

    name: str
    methods: Sequence[str] = ("atomic",)
    faults: Sequence[Fault | None] = ()
    naps: Sequence[int] = ()
    act: Callable[[Shop, IdempotencyKey], object]
    outcome: type[object]
    values: list[int]
    hall: int = 0
    hidden: bool = False
    before: Callable[[Shop, IdempotencyKey], object] | None = None
    later_ms: int = 0
    warm: bool = False


def _change(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.change(HALL, 5, key=key if shop.method != "set" else None)


def _withdraw(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.withdraw(HALL, key)


def _change_all(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.transactions.change(CHANGES, key=key.key)


def _transfer(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.transactions.transfer(SHELF, HALL, 5, key=key)


def _withdraw_all(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.transactions.withdraw(key)


def _set(shop: Shop, key: IdempotencyKey) -> object:
    return shop.product.strict.transactions.set_value(HALL, 7, key=key.key)


_KEYED = ("request_token", "marker")
FOUND = [
    Found(
        name="a change that is in cannot be withdrawn once its key may be forgotten",
        methods=_KEYED,
        before=_change,
        later_ms=HOUR_MS,
        act=_withdraw,
        outcome=KeyExpired,
        values=[5, 20],
    ),
    Found(
        name="a process that was suspended for longer than its key is remembered sends nothing",
        methods=_KEYED,
        faults=[Fault.AFTER, Fault.FROZEN],
        naps=[HOUR_MS],
        act=lambda shop, _: shop.product.strict.change(HALL, 5),
        outcome=Unknown,
        values=[5, 20],
    ),
    Found(
        name="a key is not reported as reused if its token cannot be looked up",
        methods=("request_token",),
        before=_withdraw,
        faults=[None, *_THROTTLED[:4]],
        act=_change,
        outcome=Unknown,
        values=[0, 20],
    ),
    Found(
        name="a refusal is not final while an unanswered request could not be prevented",
        methods=("request_token", "marker", "set"),
        hall=100,
        faults=[Fault.BEFORE, None, *_THROTTLED],
        act=lambda shop, _: shop.product.strict.change(HALL, 1),
        outcome=Unknown,
        values=[100, 20],
    ),
    Found(
        name="several changes that are in cannot be withdrawn once their marker may be forgotten",
        before=_transfer,
        later_ms=_DAY,
        act=_withdraw_all,
        outcome=KeyExpired,
        values=[5, 15],
    ),
    Found(
        name="several changes are not withdrawn with a key from the future",
        before=_transfer,
        later_ms=-HOUR_MS,
        act=_withdraw_all,
        outcome=ClockSkew,
        values=[5, 15],
    ),
    Found(
        name="a withdrawal that was suspended for a day proves nothing",
        before=_transfer,
        faults=[Fault.FROZEN],
        naps=[_DAY],
        act=_withdraw_all,
        outcome=Unknown,
        values=[5, 15],
    ),
    Found(
        name="a transfer that is in is not sent again after a day",
        warm=True,
        faults=[Fault.AFTER, Fault.FROZEN],
        naps=[_DAY],
        act=_transfer,
        outcome=Unknown,
        values=[5, 15],
    ),
    Found(
        name="a transfer that was suspended for a day before its first attempt is not sent",
        warm=True,
        faults=[Fault.FROZEN],
        naps=[_DAY],
        act=_transfer,
        outcome=Contended,
        values=[0, 20],
    ),
    Found(
        name="a value is not set a second time after a day",
        faults=[None, Fault.AFTER, Fault.FROZEN],
        naps=[_DAY],
        act=_set,
        outcome=Unknown,
        values=[7, 20],
    ),
    Found(
        name="a void marker that comes too late prevents nothing",
        hall=95,
        hidden=True,
        faults=[Fault.AFTER, Fault.FROZEN, Fault.FROZEN],
        naps=[2 * TOKEN_LIFE_MS, _DAY],
        act=_change_all,
        outcome=Unknown,
        values=[100, 15],
    ),
    Found(
        name="a refusal of several changes is not final while its void marker is throttled",
        hall=100,
        faults=[Fault.BEFORE, None, *_THROTTLED],
        act=_change_all,
        outcome=Unknown,
        values=[100, 20],
    ),
    Found(
        name="a refusal of several changes is final after a void marker",
        hall=100,
        faults=[Fault.BEFORE],
        act=_change_all,
        outcome=BoundReached,
        values=[100, 20],
    ),
    Found(
        name="a key that another call used is reported, also where a void marker meets it",
        hall=100,
        hidden=True,
        faults=[Fault.BEFORE],
        act=_change_all,
        before=lambda shop, key: shop.process("other").strict.transactions.change(
            {SHELF: -1}, key=key.key
        ),
        outcome=IdempotencyKeyReused,
        values=[100, 19],
    ),
]


@pytest.mark.parametrize(
    ("found", "method"),
    [pytest.param(one, m, id=f"{one.name} ({m})") for one in FOUND for m in one.methods],
)
def test_a_strict_change_is_never_applied_twice_nor_reported_wrongly(
    found: Found, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(monkeypatch, method, found.hall)
    shop.naps = list(found.naps)
    key = shop.key()
    if found.before is not None:
        assert isinstance(found.before(shop, key), Applied | Withdrawn)
    if found.warm:
        for delta in (1, -1):
            shop.product.strict.transactions.transfer(SHELF, HALL, 5, key=f"warm {delta}")
            shop.product.strict.transactions.transfer(HALL, SHELF, 5, key=f"back {delta}")
    shop.pass_time(found.later_ms)
    if found.hidden:
        shop.hide_first_reason(monkeypatch)
    script(shop.world, *found.faults)

    outcome: object
    try:
        outcome = found.act(shop, key)
    except (KeyExpired, ClockSkew, IdempotencyKeyReused) as error:
        outcome = error

    assert isinstance(outcome, found.outcome)
    assert shop.naps == []
    assert shop.values() == found.values


@pytest.mark.parametrize("method", _KEYED)
@pytest.mark.parametrize("delta", [5, 7])
def test_a_key_of_a_deleted_counter_says_nothing_of_the_next_one(
    method: str, delta: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that knows the old counter repeats it: its token or marker is still there."""
    shop = Shop(monkeypatch, method, 0)
    key = shop.key()
    assert isinstance(_change(shop, key), Applied)
    shop.made_again()

    assert isinstance(shop.product.strict.change(HALL, delta, key=key), Applied)
    assert shop.values()[0] == delta


@pytest.mark.parametrize("method", _KEYED)
@pytest.mark.parametrize("before", [True, False], ids=["withdrawn before", "not withdrawn before"])
def test_a_key_is_not_withdrawn_in_a_counter_that_is_gone(
    method: str,
    before: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its marker in the new counter is reported, and not overwritten."""
    shop = Shop(monkeypatch, method, 0)
    key = shop.key()
    if before:
        assert isinstance(_withdraw(shop, key), Withdrawn)
    other = shop.made_again()
    assert isinstance(other.strict.change(HALL, 5, key=key), Applied)

    assert isinstance(_withdraw(shop, key), Duplicate)
    assert isinstance(other.strict.change(HALL, 5, key=key), Duplicate)


def test_claims_that_were_suspended_overwrite_nothing_that_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt without an answer is in; its token is forgotten when the next one would leave."""
    world = calm_world(watched=False)
    app = Product(world.process("home", "app"))
    posts, key = world.copies["home"][POSTS], ("p-1", "post")
    posts.store(key, {"counter": "p-1", "part": "post", "title": "first"})
    script(world, Fault.AFTER, Fault.FROZEN)
    change = ItemChange(POSTS, {"counter": "p-1", "part": "post"}, {"title": "second"})

    def freeze_ms(_operation: str) -> float:
        world.schedule.pass_time(2 * TOKEN_LIFE_MS)  # what is under way lands first
        posts.store(key, {"counter": "p-1", "part": "post", "title": "third"})
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    with pytest.raises(Unclear):
        app.claims.take(Claim("title", "second", owner="p-1"), own=[change])

    assert posts.items[key]["title"] == "third"


def test_a_producer_that_cannot_start_releases_its_spool(tmp_path: Path) -> None:
    """The disk was full as it opened what was left: the same process can open it later."""
    world = calm_world()

    def open_it() -> Any:  # noqa: ANN401 - a producer
        process = world.process("home", "app")
        threads.belongs(process)
        return open_producer(process, Buffering(spool=tmp_path / "spool"), None)

    def live() -> None:
        open_it().add("n:clicks", 1)
        threads.owner().die()
        world.faults.rates[Fault.DISK] = 1.0
        with pytest.raises(SpoolRefused, match="full"):
            open_it()
        world.faults.rates.clear()

        open_it().close()

        assert Product(world.process("home", "reader")).exact.read("n:clicks").value == 1
        world.schedule.stop()

    world.schedule.spawn("app", live)
    with threads.under(world, SimulatedSpool):
        world.schedule.run()


def _late_entry(world: World, age_ms: int) -> tuple[Product, LateResender, Entry]:
    """A person at the expired entries of a stack, and an entry of the ingest of that age."""
    product = Product(world.process("home", "person"))
    resender = LateResender(product.connection)
    at_ms = product.process.now_ms() - age_ms
    product.namespaces.create("n", horizon_ms=world.shape.horizon_ms)
    name = world.new_id(at_ms)
    made = Entry(counter="n:clicks", id=name, delta=1, at_ms=at_ms, origin="home")
    return product, resender, made


def test_an_expired_entry_is_not_sent_again_once_its_second_sending_may_be_merged() -> None:
    """A person sent it, died before its message was deleted, and comes back after a compaction."""
    world = calm_world()
    product, resender, entry = _late_entry(world, 10 * MINUTE_MS)
    assert resender.resolve(entry, send=True).resolved
    world.schedule.now_ms += HOUR_MS
    assert product.compactor().compact(entry.counter).merged == 1

    assert resender.resolve(entry, send=True).status is LateStatus.UNKNOWN
    assert product.exact.read(entry.counter).value == 1


def test_an_expired_entry_is_not_sent_again_while_its_first_sending_may_still_land() -> None:
    """By the clock of one ingest it had expired; an ingest with another clock still writes it."""
    world = calm_world()
    product, resender, entry = _late_entry(world, world.shape.horizon_ms + 1)

    assert resender.resolve(entry, send=True).status is LateStatus.UNKNOWN
    world.schedule.now_ms -= SECOND_MS
    product.recorder.resend(entry)

    assert product.exact.read(entry.counter).value == 1


def test_a_bare_key_is_not_sent_into_the_stream_again_after_a_suspension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as created when its record arrives: a second one, much later, could count again."""
    world = calm_world()
    way = IngestWay(world)
    producer = way.producer(way.connection(world.process("home", "app")))
    script(world, Fault.AFTER, Fault.FROZEN)

    def freeze_ms(_operation: str) -> float:
        world.schedule.now_ms += HOUR_MS
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    (outcome,) = producer.send_many([Event("n:clicks", 1, "job 1")])

    assert isinstance(outcome, Unacknowledged)
    assert sum(len(log.records) for log in way.stream.shards.values()) == 1
