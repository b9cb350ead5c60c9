"""A stack in memory does what a stack does: totals, retries, deliveries, time, alerts."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Thread
from typing import Any

import pytest

import countledger
from countledger import CountLedger, Event, errors, outcomes
from countledger.consumers.verify import Judgement
from countledger.infra.memory.stack import MemoryConnection
from countledger.ledger.clock import SystemClock
from countledger.testing import MemoryStack
from tests.unit.memory.everything import use_everything

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
_COUNTER = "likes:post-1"


@pytest.fixture
def stack() -> MemoryStack:
    """A stack whose time passes by waits only."""
    return MemoryStack(at=_AT)


def _total(stack: MemoryStack, counter: str = _COUNTER) -> object:
    return stack.ledger.total(counter).value


def _lose_four_requests(stack: MemoryStack) -> None:
    """Four waits are never all below a millisecond, in which the clock shows its time."""
    for _ in range(4):
        stack.fail_next()


def test_everything_that_a_client_does_works_without_clock_and_network(
    stack: MemoryStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the machine's clock nor a socket is used: what waits, waits in the stack's time."""

    def refuse(*_: object, **__: object) -> Any:  # noqa: ANN401 - never anything
        raise AssertionError("the stack left its own time or this process")

    monkeypatch.setattr(SystemClock, "now_ms", refuse)
    monkeypatch.setattr(SystemClock, "sleep_ms", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    use_everything(stack)

    assert stack.failures == []


@pytest.mark.parametrize(
    ("strike", "waits"),
    [
        pytest.param(MemoryStack.lose_next_answer, False, id="lost answer"),
        pytest.param(_lose_four_requests, True, id="lost requests"),
        pytest.param(partial(MemoryStack.throttle, requests=2), False, id="throttled twice"),
    ],
)
def test_a_record_that_meets_a_fault_counts_once(
    stack: MemoryStack, strike: Callable[[MemoryStack], None], *, waits: bool
) -> None:
    """It is sent again; where it waits, that is in the time of the stack."""
    stack.ledger.record(_COUNTER, 1)
    before_ms = stack.clock.now_ms()
    strike(stack)

    stack.ledger.record(_COUNTER, 1)

    assert (stack.planned_faults, _total(stack)) == (0, 2)
    assert stack.clock.now_ms() > before_ms or not waits


def test_a_request_that_failed_was_not_applied(stack: MemoryStack) -> None:
    """A final error reaches the app, and nothing is counted."""
    stack.ledger.record(_COUNTER, 1)
    stack.fail_next(errors.AccessDenied("no permission"))

    with pytest.raises(errors.AccessDenied):
        stack.ledger.record(_COUNTER, 1)

    assert _total(stack) == 1


def test_a_read_meets_a_throttle_and_no_fault_of_a_write(stack: MemoryStack) -> None:
    stack.fail_next()
    assert _total(stack) == 0
    assert stack.planned_faults == 1

    other = MemoryStack(at=_AT)
    other.throttle(10)
    with pytest.raises(errors.Throttled):
        other.ledger.total(_COUNTER)
    assert other.planned_faults == 6


@pytest.mark.parametrize(("lost_after", "value"), [(True, 3), (False, 5)])
def test_a_lost_answer_was_applied_and_a_lost_request_was_not(
    stack: MemoryStack, value: int, *, lost_after: bool
) -> None:
    """Method `atomic` remembers no keys, so the app gets to know that the outcome is unknown."""
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=5, method="atomic")
    (stack.lose_next_answer if lost_after else stack.fail_next)()

    done = strict.change("stock:shoe", -2)

    assert isinstance(done, outcomes.Unknown)
    assert strict.show("stock:shoe").value == value


def test_a_held_stream_shows_a_total_that_lags(stack: MemoryStack) -> None:
    stack.hold_stream()
    stack.ledger.record(_COUNTER, 5)

    assert (_total(stack), stack.ledger.exact(_COUNTER).value) == (0, 5)
    stack.deliver()
    assert _total(stack) == 5
    stack.ledger.record(_COUNTER, 1)
    assert _total(stack) == 6


def test_a_redelivery_counts_nothing_twice(stack: MemoryStack) -> None:
    for delta in (1, 2, 3):
        stack.ledger.record(_COUNTER, delta)

    assert stack.redeliver(3) >= 3
    assert _total(stack) == 6
    assert stack.ledger.audit.verify(_COUNTER).verdict is Judgement.EXACT


def test_records_that_no_function_read_for_a_day_are_lost(stack: MemoryStack) -> None:
    """As the service trims a stream; a repair makes the total right."""
    stack.hold_stream()
    stack.ledger.record(_COUNTER, 5)
    stack.advance(hours=25)
    stack.deliver()

    assert (_total(stack), stack.ledger.exact(_COUNTER).value) == (0, 5)


def test_an_alert_is_published_when_a_total_crosses_its_threshold(stack: MemoryStack) -> None:
    topic = "arn:aws:sns:us-east-1:000000000000:alarms"
    alerts = stack.ledger.alerts
    alerts.create("many", counter=_COUNTER, threshold=10, direction="rising")
    alerts.create("mail", counter=_COUNTER, threshold=10, direction="rising", to=topic)
    stack.advance(seconds=10)

    stack.ledger.record(_COUNTER, 9)
    assert stack.alerts == []
    stack.ledger.record(_COUNTER, 1)

    assert {one["rule"] for one in stack.alerts} == {"many", "mail"}
    assert {one.target for one in stack.notifications} == {"bus", topic}
    assert {one.alert.rule for one in alerts.log(_COUNTER)} == {"many", "mail"}
    stack.redeliver(2)
    assert len(stack.alerts) == 2


def test_what_becomes_due_as_time_passes_is_delivered(stack: MemoryStack) -> None:
    """The end of a hold makes its amount available again, and a rule alerts."""
    stack.ledger.strict.create("stock:a", method="marker", lower=0, opening=10)
    stack.ledger.alerts.create(
        "back", counter="stock:a", of="available", threshold=5, direction="rising"
    )
    stack.advance(seconds=10)
    stack.ledger.strict.hold("stock:a", 8, key="k", expires_in=timedelta(minutes=5))
    assert stack.alerts == []

    stack.advance(hours=1)

    assert [one["rule"] for one in stack.alerts] == ["back"]


def test_items_of_the_app_are_written_with_a_claim(stack: MemoryStack) -> None:
    stack.create_table("users", "id")
    user = countledger.NewItem("users", {"id": "u-1", "name": "Ann"}, key=("id",))
    claim = countledger.Claim("user-email", "ann@example.com", owner="u-1")

    assert stack.ledger.claims.take(claim, own=[user])

    assert stack.items("users") == [{"id": "u-1", "name": "Ann"}]
    assert stack.ledger.claims.owner("user-email", "ann@example.com") == "u-1"
    with pytest.raises(errors.BadSetting, match="exists already"):
        stack.create_table("users", "id")
    with pytest.raises(errors.TableNotFound, match="create_table"):
        stack.items("orders")


def test_an_installed_stack_is_where_new_clients_lead() -> None:
    """Also in threads, which code under test may start; and only while the block runs."""
    stack, seen = MemoryStack(), list[object]()

    with stack.installed():
        countledger.record(_COUNTER, 1)
        thread = Thread(target=lambda: seen.append(CountLedger().record(_COUNTER, 1).status))
        thread.start()
        thread.join()
        assert countledger.total(_COUNTER).value == 2

    assert seen == ["recorded"]
    assert _total(stack) == 2
    assert not isinstance(CountLedger().connection, MemoryConnection)
    with MemoryStack().installed():
        assert countledger.total(_COUNTER).value == 0


def test_a_second_stack_is_not_installed_silently() -> None:
    with (
        MemoryStack().installed(),
        pytest.raises(errors.SetupError, match="installed already"),
        MemoryStack().installed(),
    ):
        raise AssertionError("it was installed")
    with MemoryStack().installed():
        pass


def test_two_stacks_share_nothing() -> None:
    one, other = MemoryStack(), MemoryStack()
    one.ledger.record(_COUNTER, 1)

    assert (_total(one), _total(other)) == (1, 0)


def test_many_threads_may_use_a_stack() -> None:
    stack = MemoryStack()

    outcomes_ = stack.ledger.record_many([Event(_COUNTER, 1)] * 200)
    with stack.ledger.buffered() as producer:
        threads = [
            Thread(target=lambda: [producer.add(_COUNTER, 1) for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(outcomes_) == 200
    assert (_total(stack), stack.ledger.exact(_COUNTER).value) == (400, 400)


def test_a_function_that_fails_is_named_and_its_records_are_delivered_again(
    stack: MemoryStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write itself has succeeded: its caller gets no error of a later delivery."""
    stack.ledger.record(_COUNTER, 1)
    materializer = type(stack._functions._materializer)
    real: Callable[..., Any] = materializer.apply

    def failing(*_: object, **__: object) -> Any:  # noqa: ANN401 - never anything
        raise errors.ServiceFailed("no answer")

    monkeypatch.setattr(materializer, "apply", failing)
    stack.ledger.record(_COUNTER, 1)
    assert [str(one) for one in stack.failures] == ["no answer"]
    with pytest.raises(errors.ServiceFailed):
        stack.deliver()

    monkeypatch.setattr(materializer, "apply", real)
    stack.deliver()
    assert _total(stack) == 2


@pytest.mark.parametrize(
    ("act", "wrong"),
    [
        (lambda stack: stack.throttle(0), "at least 1"),
        (lambda stack: stack.redeliver(0), "at least 1"),
        (lambda stack: stack.fail_next("no"), "countledger.errors"),
        (lambda stack: stack.advance(hours=-1), "cannot move back"),
        (lambda _stack: MemoryStack(at=datetime(2026, 3, 1)), "no offset"),  # noqa: DTZ001
    ],
)
def test_a_knob_refuses_what_it_cannot_do(
    stack: MemoryStack, act: Callable[[Any], object], wrong: str
) -> None:
    with pytest.raises((errors.BadSetting, errors.BadTime), match=wrong):
        act(stack)
