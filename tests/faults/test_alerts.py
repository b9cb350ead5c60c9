"""P7: every crossing alerts once, whatever fails between the evaluator and the services."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any
from uuid import uuid4

import pytest

from countledger.consumers.alerts.delivery import Resender
from countledger.consumers.alerts.rule import Rule, Topic
from tests.engines.store import Store
from tests.faults.alerting import Telling, new_telling
from tests.faults.injection import Fault, Kind, faults
from tests.unit.alerts.evaluating import history, rule
from tests.unit.alerts.walk import expected

NO_TOPIC = Topic("arn:aws:sns:us-east-1:000000000000:nobody-made-it")


@pytest.fixture
def telling(store: Store) -> Iterator[Telling]:
    """An evaluator with a rule of each kind: to the bus, to a topic, and to one that fails."""
    with new_telling(store, []) as made:
        made.rules[:] = [
            rule(10, "both", name="bus", revision="r1", step=10),
            rule(10, name="topic", revision="r2", rearm=5, target=made.topic),
            rule(20, name="dead", revision="r3", target=NO_TOPIC),
        ]
        yield made


def _batch() -> list[dict[str, Any]]:
    """Two counters that nobody has used; one of them jumps, the other one swings."""
    name = uuid4().hex[:8]
    jumps = history([25, 5, 31], counter=f"{name}:jumps")
    swings = history([12, 7, 12, 3, 12], counter=f"{name}:swings")
    records = [*jumps[:1], *swings[:3], *jumps[1:], *swings[3:]]
    for number, one in enumerate(records):
        one["dynamodb"]["SequenceNumber"] = str(10**20 + number)
    return records


def test_p7_two_evaluators_at_once_make_the_same_alerts(telling: Telling) -> None:
    """Two processes with the same batch, many times: none is lost, none is made up."""
    evaluators = [telling.new_evaluator() for _ in range(2)]
    for _ in range(5):
        batch = _batch()
        start = threading.Barrier(2)

        def work(evaluator: Any, batch: Any = batch, start: Any = start) -> Any:  # noqa: ANN401
            start.wait()
            return evaluator.apply(batch, "stream")

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(work, evaluators))

        assert [one.retry_from for one in outcomes] == [None, None]
        telling.expect(expected(batch, telling.rules))


def test_a_failing_target_holds_up_no_other(telling: Telling) -> None:
    """Its alerts lie in the dead letters, with what it said; all others have arrived."""
    batch = _batch()

    outcome = telling.deliver(batch)

    assert outcome.retry_from is None
    wanted = expected(batch, telling.rules)
    dead = [one for one in wanted if "/dead@" in one]
    assert sorted({one["id"] for one in telling.arrived()}) == sorted(set(wanted) - set(dead))
    letters = telling.letters_left()
    assert sorted(one.alert.id for one in letters) == sorted(dead)
    assert {one.target for one in letters} == {NO_TOPIC}
    assert "nobody-made-it" in letters[0].reason


def test_dead_letters_are_sent_again_under_the_same_ids(telling: Telling) -> None:
    """What its target takes now is deleted; what it still refuses stays, and can be read again."""
    batch = _batch()
    telling.deliver(batch)
    telling.arrived()
    publisher: Any = telling.evaluator.publisher
    resender = Resender(telling.letters, publisher)

    first = list(resender.resend())
    assert first
    assert all(one.reason is not None and "nobody-made-it" in one.reason for one in first)

    publisher.topics.create_topic(Name="nobody-made-it")
    asked = telling.letters.queue.client.get_queue_attributes(
        QueueUrl=telling.queue_url, AttributeNames=["QueueArn"]
    )
    publisher.topics.subscribe(
        TopicArn=NO_TOPIC.arn, Protocol="sqs", Endpoint=asked["Attributes"]["QueueArn"]
    )
    second = list(resender.resend())

    assert [one.reason for one in second] == [None] * len(first)
    wanted = {one for one in expected(batch, telling.rules) if "/dead@" in one}
    assert {one["id"] for one in telling.arrived()} == wanted
    assert list(resender.resend()) == []
    publisher.topics.delete_topic(TopicArn=NO_TOPIC.arn)


def test_letters_that_were_not_sent_again_are_seen_by_the_next_reader(telling: Telling) -> None:
    """Somebody asked for one of them only; nothing stays hidden behind that."""
    telling.rules[:] = [rule(1, name="dead", step=1, target=NO_TOPIC)]
    telling.deliver(history([5], counter=f"{uuid4().hex[:8]}:c"))
    resender = Resender(telling.letters, telling.evaluator.publisher)

    assert len(list(resender.resend(1))) == 1

    assert len(list(resender.resend())) == 5


class Again:
    """Lets a queue show letters again while they are hidden, so many times."""

    def __init__(self, client: Any, times: int) -> None:  # noqa: ANN401 - a boto3 client
        self.times = times
        self.shown: list[Any] = []
        client.meta.events.register("after-call.sqs.ReceiveMessage", self.show)

    def show(self, parsed: dict[str, Any], **_: object) -> None:
        """What was shown before, where nothing else is."""
        self.shown += parsed.get("Messages", [])
        if not parsed.get("Messages") and self.times:
            self.times -= 1
            parsed["Messages"] = self.shown[:10]


def test_a_letter_that_shows_again_while_others_are_sent_is_sent_once(telling: Telling) -> None:
    """A long run meets what it put aside at its beginning; it ends, and all lies there again."""
    telling.rules[:] = [rule(1, name="dead", step=1, target=NO_TOPIC)]
    telling.deliver(history([5], counter=f"{uuid4().hex[:8]}:c"))
    Again(telling.letters.queue.client, times=3)

    resent = list(Resender(telling.letters, telling.evaluator.publisher).resend())

    assert len(resent) == 5
    assert len(telling.dead()) == 5


def test_what_is_no_letter_is_reported_and_left_alone(telling: Telling) -> None:
    client = telling.letters.queue.client
    client.send_message(QueueUrl=telling.letters.queue.url, MessageBody="hello")
    resender = Resender(telling.letters, telling.evaluator.publisher)

    (one,) = resender.resend()

    assert one.dead_letter is None
    assert "not a dead letter" in (one.reason or "")
    with telling.letters.queue.reader() as reader:
        assert [message.body for message in reader] == ["hello"]


@pytest.mark.parametrize("totals", [[3, 5], [100]], ids=["by two updates", "by one"])
def test_a_bus_that_says_nothing_is_asked_twice(telling: Telling, totals: list[int]) -> None:
    """Each silence takes ten seconds, and the function has two minutes: then the letters have it.

    Nor is it asked for what else the batch sets off; a hundred alerts are ten calls.
    """
    telling.rules[:] = [rule(1, name="one", step=1)]
    publisher: Any = telling.evaluator.publisher
    silence = repeat(Fault(Kind.TIMEOUT))

    with faults(
        publisher.events, plan=silence, then=lambda: publisher.clock.sleep_ms(10_000)
    ) as attempts:
        outcome = telling.deliver(history(totals, counter=f"{uuid4().hex[:8]}:c"))

    assert (outcome.dead, len(telling.dead())) == (totals[-1], totals[-1])
    assert len(attempts) == 2


@pytest.mark.parametrize("kind", [Kind.THROTTLE, Kind.SERVER_ERROR, Kind.UNREACHABLE])
def test_a_bus_that_says_no_is_asked_five_times_for_each(telling: Telling, kind: Kind) -> None:
    """A burst passes: what comes behind it may find the way free."""
    telling.rules[:] = [rule(1, name="one", step=1)]
    publisher: Any = telling.evaluator.publisher

    with faults(publisher.events, plan=[Fault(kind)] * 5) as attempts:
        outcome = telling.deliver(history([3, 5], counter=f"{uuid4().hex[:8]}:c"))

    assert (outcome.dead, len(telling.dead())) == (3, 3)
    assert len(attempts) == 6
    assert [one["threshold"] for one in telling.arrived()] == ["4", "5"]


def test_the_alerts_behind_a_burst_are_sent(telling: Telling) -> None:
    """Only the call that was throttled is given up: an answer is no silence."""
    telling.rules[:] = [rule(1, name="one", step=1)]
    publisher: Any = telling.evaluator.publisher

    with faults(publisher.events, plan=[Fault(Kind.THROTTLE)] * 5) as attempts:
        outcome = telling.deliver(history([25], counter=f"{uuid4().hex[:8]}:c"))

    assert (outcome.dead, len(telling.dead())) == (10, 10)
    assert len(attempts) == 5 + 2
    assert [int(one["threshold"]) for one in telling.arrived()] == list(range(11, 26))


@pytest.mark.parametrize(("after_ms", "calls"), [(1_999, 5), (2_000, 2)])
def test_a_target_that_took_two_seconds_gave_no_answer(
    telling: Telling, after_ms: int, calls: int
) -> None:
    telling.rules[:] = [rule(1, name="one", step=1)]
    publisher: Any = telling.evaluator.publisher
    silence = repeat(Fault(Kind.TIMEOUT))

    with faults(
        publisher.events, plan=silence, then=lambda: publisher.clock.sleep_ms(after_ms)
    ) as attempts:
        telling.deliver(history([3], counter=f"{uuid4().hex[:8]}:c"))

    assert (len(attempts), len(telling.dead())) == (calls, 3)


def test_a_topic_that_does_not_exist_is_asked_once(telling: Telling) -> None:
    """It does not come into being between two attempts."""
    telling.rules[:] = [rule(1, name="dead", step=1, target=NO_TOPIC)]
    publisher: Any = telling.evaluator.publisher

    with faults(publisher.topics) as attempts:
        outcome = telling.deliver(history([3], counter=f"{uuid4().hex[:8]}:c"))

    assert (outcome.dead, len(telling.dead()), len(attempts)) == (3, 3, 1)


_NO = {"ErrorCode": "InternalFailure", "ErrorMessage": "no"}


class Failing:
    """Lets a service fail alerts of a call that succeeds, so many in each call.

    Attributes:
        counts: how many, for each call; none of those behind.
        silently: whether the answer says nothing of them.
        result: what the bus answers for each of them.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - a boto3 client
        counts: list[int],
        *,
        silently: bool = False,
        result: dict[str, str] = _NO,
    ) -> None:
        self.counts = iter(counts)
        self.silently = silently
        self.result = result
        self.failed: list[dict[str, Any]] = []
        for call in ("events.PutEvents", "sns.PublishBatch"):
            client.meta.events.register(f"provide-client-params.{call}", self.take_out)
            client.meta.events.register(f"after-call.{call}", self.put_back)

    def take_out(self, params: dict[str, Any], **_: object) -> dict[str, Any]:
        """What fails does not reach the service."""
        (name,) = params.keys() & {"Entries", "PublishBatchRequestEntries"}
        count = min(next(self.counts, 0), len(params[name]) - 1)
        self.failed = params[name][:count]
        return {**params, name: params[name][count:]}

    def put_back(self, parsed: dict[str, Any], **_: object) -> None:
        """The answer tells, or does not."""
        if self.silently:
            return
        if "Entries" in parsed:
            parsed["Entries"] = [*[self.result] * len(self.failed), *parsed["Entries"]]
            parsed["FailedEntryCount"] = len(self.failed)
        else:
            why = {"Code": "InternalFailure", "Message": "no", "SenderFault": False}
            parsed["Failed"] = [{"Id": one["Id"], **why} for one in self.failed]


@pytest.mark.parametrize("silently", [False, True], ids=["it says so", "it says nothing"])
@pytest.mark.parametrize("service", ["bus", "topic"])
def test_what_fails_of_a_call_that_succeeds_is_sent_again(
    telling: Telling, service: str, *, silently: bool
) -> None:
    """It is a failure, though the call is none; and so is an answer that leaves some out."""
    to: dict[str, Any] = {} if service == "bus" else {"target": telling.topic}
    telling.rules[:] = [rule(1, name="many", step=1, **to)]
    publisher: Any = telling.evaluator.publisher
    client = publisher.events if service == "bus" else publisher.topics
    Failing(client, [4, 2], silently=silently)
    batch = history([10], counter=f"{uuid4().hex[:8]}:c")

    assert telling.deliver(batch).dead == 0

    arrived = [int(one["threshold"]) for one in telling.arrived()]
    assert set(arrived) == set(range(1, 11))
    assert silently or len(arrived) == 10


@pytest.mark.parametrize("result", [{}, {"EventId": "1", **_NO}], ids=["no id", "id and error"])
def test_a_result_of_the_bus_is_a_success_if_it_has_an_id_and_no_error(
    telling: Telling, result: dict[str, str]
) -> None:
    telling.rules[:] = [rule(1, name="many", step=1)]
    publisher: Any = telling.evaluator.publisher
    Failing(publisher.events, [4], result=result)

    assert telling.deliver(history([10], counter=f"{uuid4().hex[:8]}:c")).dead == 0

    assert sorted(int(one["threshold"]) for one in telling.arrived()) == list(range(1, 11))


def test_the_message_comes_with_what_filters_ask_for(telling: Telling) -> None:
    """On a topic the id, rule, counter and direction are attributes."""
    batch = history([12], counter="filters:c")
    telling.rules[:] = [_to(telling.rules[1], uuid4().hex[:8])]
    client: Any = telling.letters.queue.client
    telling.deliver(batch)

    (message,) = client.receive_message(QueueUrl=telling.queue_url)["Messages"]

    assert '"counter": {"Type": "String", "Value": "filters:c"}' in message["Body"]
    assert '"dedup": {"Type": "String"' in message["Body"]


def _to(one: Rule, name: str) -> Rule:
    return replace(one, name=name)
