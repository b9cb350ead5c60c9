"""A change of an alert rule without a clear answer: what it says is so, and stays so."""

from collections.abc import Callable
from functools import partial

import pytest

from countledger.consumers.alerts.service import Alerts
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchRule, RuleExists, ServiceFailed, Throttled, Unclear
from countledger.testing import MemoryStack


@pytest.fixture
def stack() -> MemoryStack:
    """A stack with the rule `r`."""
    made = MemoryStack()
    _create(made)()
    return made


def _alerts(stack: MemoryStack) -> Alerts:
    return stack.ledger.alerts


def _create(stack: MemoryStack, threshold: int = 10) -> Callable[[], object]:
    create = _alerts(stack).create
    return partial(create, "r", prefix="likes:", threshold=threshold, direction="rising")


def _delete(stack: MemoryStack) -> Callable[[], bool]:
    return partial(_alerts(stack).delete, "r")


def _recreate(stack: MemoryStack) -> Callable[[], object]:
    def recreate() -> None:
        _delete(stack)()
        _create(stack, 20)()

    return recreate


def _between_attempts(stack: MemoryStack, call: Callable[[], object], *, lost: bool) -> None:
    """The next write gets no answer (`lost`: but is applied), and then another call runs."""
    if lost:
        stack.lose_next_answer()
    else:
        stack.delay_next()
    stack.before_next_request(call)


def test_one_of_two_deletions_says_that_it_deleted(stack: MemoryStack) -> None:
    told: list[bool] = []
    # The rule is read; then the other deletion runs.
    stack.before_next_request(lambda: told.append(_delete(stack)()), skip=1)

    assert (_delete(stack)(), told) == (False, [True])


def test_a_deletion_that_did_not_arrive_says_that_another_one_deleted(stack: MemoryStack) -> None:
    told: list[bool] = []
    _between_attempts(stack, lambda: told.append(_delete(stack)()), lost=False)

    assert (_delete(stack)(), told) == (False, [True])
    (refusal,) = stack.land()
    assert refusal is not None


@pytest.mark.parametrize("lost", [True, False], ids=["applied", "on its way"])
def test_a_deletion_without_an_answer_is_unclear_once_others_have_created_the_rule_again(
    stack: MemoryStack, *, lost: bool
) -> None:
    """It may have deleted the one before."""
    others = _create(stack, 20) if lost else _recreate(stack)
    _between_attempts(stack, others, lost=lost)

    with pytest.raises(Unclear):
        _delete(stack)()

    assert [answer is not None for answer in stack.land()] == ([] if lost else [True])
    assert _alerts(stack).get("r").threshold == 20


def test_a_creation_that_never_arrived_is_refused_for_good(stack: MemoryStack) -> None:
    _delete(stack)()
    _between_attempts(stack, _create(stack, 20), lost=False)

    with pytest.raises(RuleExists):
        _create(stack)()

    _delete(stack)()
    (refusal,) = stack.land()
    assert refusal is not None
    with pytest.raises(NoSuchRule):
        _alerts(stack).get("r")


def test_a_creation_without_an_answer_recognises_itself_as_the_last_change(
    stack: MemoryStack,
) -> None:
    _delete(stack)()
    stack.lose_next_answer()

    assert _create(stack, 30)() == _alerts(stack).get("r")


@pytest.mark.parametrize("others", [_delete, _recreate])
def test_a_first_creation_without_an_answer_recognises_itself_after_changes_of_others(
    others: Callable[[MemoryStack], Callable[[], object]],
) -> None:
    """A rule of that name keeps its incarnation, whatever is done to it."""
    stack = MemoryStack()
    _between_attempts(stack, others(stack), lost=True)

    _create(stack, 30)()

    assert [rule.threshold for rule in _alerts(stack).list()] == [20] * (others is _recreate)


@pytest.mark.parametrize("call", ["create", "set", "delete"])
def test_no_attempt_left_after_one_without_an_answer_is_unclear(
    stack: MemoryStack, call: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "create": _create(stack),
        "set": partial(_alerts(stack).set, "r", threshold=30),
        "delete": _delete(stack),
    }
    if call == "create":
        _delete(stack)()
    stack.delay_next()
    stack.throttle(200)

    with pytest.raises(Unclear, match="no clear answer in 8 attempts"):
        calls[call]()

    assert stack.land() == [None]


def test_no_attempt_left_without_an_unclear_one_is_a_throttle(stack: MemoryStack) -> None:
    stack.throttle(200)

    with pytest.raises(Throttled):
        _delete(stack)()


def test_throttled_reads_of_a_change_are_sent_again(stack: MemoryStack) -> None:
    stack.throttle(2)

    assert _delete(stack)()


def _corrupt(stack: MemoryStack) -> None:
    connection = stack.ledger.connection
    table, dynamo = connection.setting("counters_table"), connection.dynamo("none")
    item = dynamo.get(table, keys.rule_key("r"), consistent=True)
    assert item is not None
    dynamo.put_batch(table, [{**item, "revisions": [{**item["revisions"][0], "of": "sideways"}]}])


def test_the_deletion_of_a_corrupt_rule_recognises_itself(stack: MemoryStack) -> None:
    _corrupt(stack)
    stack.lose_next_answer()

    assert _delete(stack)()
    assert not _delete(stack)()


def test_a_corrupt_rule_that_others_created_again_is_not_deleted_by_a_late_request(
    stack: MemoryStack,
) -> None:
    _corrupt(stack)
    _between_attempts(stack, _recreate(stack), lost=False)

    with pytest.raises(Unclear):
        _delete(stack)()
    (refusal,) = stack.land()
    assert refusal is not None


@pytest.mark.parametrize("ended", ["deleted", "changed"])
def test_a_rule_that_others_end_alerts_for_no_total_that_was_beyond_before(
    stack: MemoryStack, ended: str
) -> None:
    """The scan of `now` waits until the rule is effective; the other call runs meanwhile."""
    _delete(stack)()
    stack.ledger.record("likes:a", 50)

    def end() -> None:
        if ended == "deleted":
            _delete(stack)()
        else:
            _alerts(stack).set("r", threshold=1_000)
        stack.advance(seconds=6)

    # The rules and the rule are read, and the rule is written; then its counters are read.
    stack.before_next_request(end, skip=3)
    with pytest.raises(ServiceFailed, match="changed or deleted by another call"):
        _alerts(stack).create("r", prefix="likes:", threshold=10, direction="rising", now=True)

    assert stack.notifications == []


def test_a_scan_that_fails_says_that_the_rule_is_written(stack: MemoryStack) -> None:
    _delete(stack)()
    stack.ledger.record("likes:a", 50)
    stack.before_next_request(lambda: stack.throttle(4), skip=3)

    with pytest.raises(ServiceFailed, match="is stored, but its initial scan ended early"):
        _alerts(stack).create("r", prefix="likes:", threshold=10, direction="rising", now=True)

    assert _alerts(stack).get("r").threshold == 10
