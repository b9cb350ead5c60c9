"""The attempt driver, for values alone: every way through its loop, in a thread and in a loop."""

import doctest
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import attempts as driver
from countledger.ledger.attempts import (
    Again,
    Answer,
    Attempts,
    CallLimits,
    Done,
    DynamoPerformer,
    Exhausted,
    Pause,
    Recheck,
    Reply,
    RetryPeriodOver,
    Send,
    Step,
    Steps,
    Verdict,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    AccessDenied,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    Reason,
    RequestRejected,
    Throttled,
    TransactionCancelled,
    Unclear,
    Unreachable,
)
from countledger.ledger.operations import Get, Put, Transact, Update
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

WRITE = Put("table", {"counter": "a", "part": "b", "n": 1})
READ = Get("table", {"counter": "a", "part": "b"})
DEADLINE_MS = 1_000
CONFLICT = TransactionCancelled((Reason("TransactionConflict", None),))
INVALID = TransactionCancelled((Reason("ValidationError", None),))
# What one request may meet. Of each: whether another attempt follows, and whether it is in doubt.
ANSWERS: dict[str, tuple[Any, bool, bool]] = {
    "done": ("done", False, False),
    "throttled": (Throttled("busy"), True, False),
    "conflict": (CONFLICT, True, False),
    "unreachable": (Unreachable("nothing answers"), True, False),
    "unclear": (Unclear("no answer"), True, True),
    "denied": (AccessDenied("no policy"), False, False),
    "invalid": (INVALID, False, False),
    "condition": (ConditionFailed(None), False, False),
}
# The errors that cancelled transactions are reported by.
KINDS: dict[str, type] = {"conflict": Throttled, "invalid": RequestRejected}


@dataclass
class Service:
    """Answers the requests of one protocol, one by one, and notes what was asked of it.

    Attributes:
        answers: the coming answers; errors are raised.
        clock: moved by every request.
        takes_ms: how long each request takes.
        frozen_ms: for how long the process is suspended before its request leaves, at each.
        steps: all steps so far.
        sent: operations that left.
        left_ms: when they did.
    """

    answers: Sequence[Any]
    clock: ManualClock = field(default_factory=lambda: ManualClock(0))
    takes_ms: int = 0
    frozen_ms: Sequence[int] = ()
    steps: list[Step] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    left_ms: list[int] = field(default_factory=list)

    def __call__(self, step: Step) -> Answer:
        self.steps.append(step)
        if isinstance(step, Pause):
            self.clock.sleep_ms(step.wait_ms)
            return None
        number = len(self.sent)
        if number < len(self.frozen_ms):
            self.clock.at_ms += self.frozen_ms[number]
        step.before_send()
        self.sent.append(step.operation)
        self.left_ms.append(self.clock.now_ms())
        self.clock.at_ms += self.takes_ms
        answer = self.answers[number]
        if isinstance(answer, CountledgerError):
            raise answer
        return answer


@dataclass(frozen=True)
class Ended:
    """What the protocol of these tests ended with."""

    exhausted: Exhausted[int]


def protocol(attempts: Attempts, operation: Any = WRITE) -> Steps[Any]:  # noqa: ANN401
    """Sends one operation until it is done, by the rows that all tables share."""

    def interpret(reply: Reply[int]) -> Verdict[int, Any]:
        if not isinstance(reply.answer, CountledgerError):
            return Done((reply.answer, reply.maybe_applied))
        verdict = otherwise(reply)
        return Again(reply.state + 1, verdict.error) if isinstance(verdict, Again) else verdict

    return attempt(0, lambda _: Send(operation), interpret, Ended, attempts)


def attempts_of(service: Service, number: int, until_ms: int | None = None) -> Attempts:
    return Attempts(service.clock, Random(3), Backoff(number), until_ms)  # noqa: S311 - jitter


def ended(steps: Steps[Any], service: Service) -> Any:  # noqa: ANN401 - of any protocol
    """What steps come to, in short."""
    try:
        end: Any = run(steps, service)
    except CountledgerError as error:
        return type(error), str(error)
    if isinstance(end, Ended):
        out = end.exhausted
        return out.state, out.attempts, type(out.error), out.maybe_applied
    return end


def test_every_sequence_of_answers() -> None:
    """Attempts end with the first final answer; until then each waits, and doubts add up."""
    for names in product(ANSWERS, repeat=3):
        for attempts in (1, 2, 3):
            check_answers(names, attempts)


def check_answers(names: tuple[str, ...], attempts: int) -> None:
    service = Service([ANSWERS[name][0] for name in names])
    end = ended(protocol(attempts_of(service, attempts)), service)

    passing = [ANSWERS[name][1] for name in names]
    last = next((n for n, again in enumerate(passing) if not again), len(names))
    sent = min(last + 1, attempts)
    assert len(service.sent) == sent
    assert len(service.clock.slept_ms) == sent - 1
    doubt = any(ANSWERS[name][2] for name in names[:sent])
    answer, again, _ = ANSWERS[names[sent - 1]]
    kind: type = KINDS.get(names[sent - 1], type(answer))
    if answer == "done":
        assert end == ("done", doubt)
    elif again or doubt:
        assert end == (sent - (not again), sent - (not again), kind, doubt)
    else:
        assert end[0] is kind


@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("frozen_at", [0, 1, 2])
def test_a_process_that_was_suspended_sends_nothing_more(frozen_at: int, *, doubt: bool) -> None:
    error = Unclear("no answer") if doubt else Throttled("busy")

    leaving = Service([error] * 3, frozen_ms=[0] * frozen_at + [DEADLINE_MS + 1_000])
    answering = Service([error] * 3)
    answering.clock = ManualClock(0 if frozen_at else DEADLINE_MS + 1)
    answering.takes_ms = DEADLINE_MS + 1 if frozen_at == 1 else DEADLINE_MS // 2
    for service in (leaving, answering):
        end = ended(protocol(attempts_of(service, 5, DEADLINE_MS)), service)

        assert len(service.sent) <= frozen_at
        assert end[2:] == (RetryPeriodOver, doubt and bool(service.sent))
        assert end[1] == len(service.sent)


def test_a_request_may_leave_at_its_deadline() -> None:
    for now_ms, sent in ((DEADLINE_MS, 1), (DEADLINE_MS + 1, 0)):
        service = Service(["done"], ManualClock(now_ms))
        run(protocol(attempts_of(service, 1, DEADLINE_MS)), service)

        assert len(service.sent) == sent


def test_a_check_of_the_request_itself_is_an_answer() -> None:
    """The table says what it means; it is checked before the attempt and as the request leaves."""
    for frozen_ms in ((), (10,)):
        service = Service(["done"], frozen_ms=frozen_ms)
        heard: list[object] = []
        late_ms = 5 if frozen_ms else 0

        def refuse(service: Service = service, late_ms: int = late_ms) -> None:
            if service.clock.now_ms() >= late_ms:
                raise CorruptItem("not this one")

        def interpret(reply: Reply[None], heard: list[object] = heard) -> Verdict[None, str]:
            heard.append(reply.answer)
            return Done("refused")

        def request(_: None, refuse: Any = refuse) -> Send:  # noqa: ANN401
            return Send(WRITE, refuse)

        steps = attempt(None, request, interpret, str, attempts_of(service, 3))
        assert run(steps, service) == "refused"
        assert service.sent == []
        assert isinstance(heard[0], CorruptItem)


def test_a_follow_up_neither_waits_nor_counts() -> None:
    service = Service([Unclear("no answer"), "not applied", Throttled("busy"), "done"])
    seen: list[tuple[str, bool]] = []

    def request(state: str) -> Send:
        return Send(READ if state == "reading" else WRITE)

    def interpret(reply: Reply[str]) -> Verdict[str, str]:
        seen.append((reply.state, reply.maybe_applied))
        match reply:
            case Reply(Unclear()):
                return Recheck("reading")
            case Reply(_, "reading"):
                return Recheck("writing", resolved=True)
            case Reply(Throttled()):
                return Again("writing")
        return Done(reply.answer)

    attempts = attempts_of(service, 2)
    assert run(attempt("writing", request, interpret, str, attempts), service) == "done"
    assert seen == [("writing", True), ("reading", True), ("writing", False), ("writing", False)]
    assert attempts.made == 1
    assert sum(isinstance(step, Pause) for step in service.steps) == 1


def test_attempts_are_shared_by_the_requests_of_a_call() -> None:
    service = Service([Unclear("no answer"), "done", Throttled("busy"), Throttled("busy")])
    attempts = attempts_of(service, 3)

    assert run(protocol(attempts), service) == ("done", True)
    end = run(protocol(attempts), service)
    assert (end.exhausted.attempts, end.exhausted.maybe_applied) == (3, True)


def test_an_answer_without_a_row_is_a_bug_of_the_table() -> None:
    """It must not pass for a refusal."""
    with pytest.raises(TypeError, match="no row of the answer table for 'odd'"):
        otherwise(Reply("odd", None, maybe_applied=False))


@given(
    st.lists(st.sampled_from(list(ANSWERS)), min_size=12, max_size=12),
    st.integers(1, 6),
    st.lists(st.integers(0, 400), max_size=12),
    st.integers(0, 200),
    st.none() | st.integers(0, 1_500),
)
def test_nothing_leaves_too_late_or_too_often(
    names: list[str], attempts: int, frozen_ms: list[int], takes_ms: int, until_ms: int | None
) -> None:
    """Whatever the answers, and where the process is suspended."""
    answers = [ANSWERS[name][0] for name in names]
    service = Service(answers, takes_ms=takes_ms, frozen_ms=frozen_ms)
    ended(protocol(attempts_of(service, attempts, until_ms)), service)
    assert len(service.sent) <= attempts
    assert until_ms is None or all(left_ms <= until_ms for left_ms in service.left_ms)


@pytest.mark.parametrize(
    ("limits", "sent"),
    [(CallLimits(60_000, 1), 1), (CallLimits(60_000, 3), 3), (CallLimits(450, 9), 2), (None, 4)],
)
def test_the_limits_of_a_call_end_it_before_its_attempts_do(
    limits: CallLimits | None, sent: int
) -> None:
    """It ends as if no attempt were left; the protocol's own bound is the least of them."""
    service = Service([Unclear("no answer")] * 9, takes_ms=300)
    perform = DynamoPerformer(MemoryClient(limits=limits), MemoryClient(), service.clock)

    def both(step: Step) -> Answer:
        return perform(step) if isinstance(step, Pause) else service(step)

    ended = run(protocol(attempts_of(service, 4)), both)

    assert len(service.sent) == sent
    assert ended.exhausted.attempts == sent
    assert ended.exhausted.maybe_applied


def test_the_performer_asks_the_client_of_each_kind() -> None:
    tables: dict[str, Any] = {}
    writes, reads = MemoryClient(tables=tables), MemoryClient(tables=tables)
    clock = ManualClock()
    perform = DynamoPerformer(writes, reads, clock)

    assert perform(Send(WRITE)) is None
    assert perform(Send(Update("table", READ.key, (), returning="ALL_NEW"))) == WRITE.item
    assert perform(Send(READ)) == WRITE.item
    assert perform(Pause(5)) is None

    assert (writes.calls, reads.calls) == (["put", "update"], ["get"])
    assert clock.slept_ms == [5]


def test_the_example_of_the_page_holds() -> None:
    """The page teaches by it, so it must be right."""
    examples: dict[str, Any] = {}
    names = vars(driver) | {"Put": Put, "ConditionFailed": ConditionFailed}
    found = doctest.DocTestFinder(recurse=False).find(driver, globs=names)
    for one in found:
        runner = doctest.DocTestRunner()
        runner.run(one, clear_globs=False)
        assert runner.failures == 0
        examples |= one.globs
    put_once = examples["put_once"]

    for answers, end in (
        (["done"], "written"),
        ([ConditionFailed({"of": "another"})], "existed"),
        ([Unclear("no answer"), ConditionFailed(WRITE.item)], "written"),
        ([Throttled("busy")] * 2, "not written"),
        ([Unclear("no answer")] * 2, "unknown"),
    ):
        service = Service(answers)
        assert run(put_once(WRITE, attempts_of(service, 2)), service) == end


@pytest.mark.parametrize("late_ms", [0, 1])
@pytest.mark.parametrize(
    "told", ["applied", TransactionCancelled((Reason("ConditionalCheckFailed"),))]
)
def test_an_answer_to_a_transaction_decides_as_long_as_its_token_is_remembered(
    told: object, late_ms: int
) -> None:
    """A process that was suspended after it had sent the request may have sent it much later."""
    clock, answers = ManualClock(0), []

    def interpret(reply: Reply[None]) -> Verdict[None, str]:
        answers.append(reply.answer)
        return Done("unknown" if reply.maybe_applied else "known")

    def perform(_: Step) -> object:
        clock.at_ms = DEADLINE_MS + late_ms
        if isinstance(told, CountledgerError):
            raise told
        return told

    attempts = Attempts(clock, Random(1), until_ms=DEADLINE_MS)  # noqa: S311 - jitter
    steps = attempt(None, lambda _: Send(Transact((), "t")), interpret, lambda _: "", attempts)

    assert run(steps, perform) == ("unknown" if late_ms else "known")
    assert isinstance(answers[0], Unclear) is bool(late_ms)
