"""Alerts on the deployed stack: real updates, the deployed evaluator, real messages in a queue."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from countledger import CountLedger
from countledger.consumers.alerts.delivery import DETAIL_TYPE, SOURCE
from countledger.consumers.alerts.rule import Direction, Rule, Topic
from countledger.infra.local.mappings import EVALUATOR
from countledger.infra.local.stack import LocalStack
from countledger.ledger.limits import ALERT_RULES_AGE_MS, DAY_MS
from tests.e2e.command import eventually
from tests.e2e.world import client_of, record_aged, total_item
from tests.faults.queue import listening, taken_out


@dataclass
class Audience:
    """A queue that hears of the counters of one namespace, by the bus and by a topic.

    Attributes:
        stack: where.
        namespace: whose counters.
        client: of SQS.
        url: of the queue.
        topic: whose messages arrive there, too.
    """

    stack: LocalStack
    namespace: str
    client: Any
    url: str
    topic: Topic

    def ledger(self) -> CountLedger:
        """The product, on this stack."""
        return client_of(self.stack)

    def make(self, *rules: Rule) -> None:
        """Make rules, and wait until the evaluator goes by them."""
        store = replace(self.ledger().alerts.rules, delay_ms=ALERT_RULES_AGE_MS)
        made = [store.create(rule) for rule in rules]
        in_force_ms = max(rule.effective_from_ms for rule in made)
        eventually(lambda: time.time_ns() // 1_000_000 >= in_force_ms)

    def handle(self) -> None:
        """Let all that was recorded become totals, and these be judged."""
        self.stack.pump.drain()
        self.stack.pumps[EVALUATOR].drain()

    def heard(self) -> list[dict[str, Any]]:
        """What has arrived, taken out: the envelope of the bus, or of the topic."""
        return taken_out(self.client, self.url)


def _audience(stack: LocalStack) -> Iterator[Audience]:
    name = f"n{uuid.uuid4().hex[:8]}"
    sqs, events, topics = stack.client("sqs"), stack.client("events"), stack.client("sns")
    with listening(sqs, events, topics, counter=[{"prefix": name}]) as (url, topic):
        yield Audience(stack, name, sqs, url, Topic(topic))


@pytest.fixture
def audience(stack: LocalStack) -> Iterator[Audience]:
    """On the stack that all share."""
    yield from _audience(stack)


@pytest.fixture
def auth_audience(auth_stack: LocalStack) -> Iterator[Audience]:
    """On the one that enforces IAM."""
    yield from _audience(auth_stack)


def _rule(of: Audience, name: str, **more: Any) -> Rule:  # noqa: ANN401 - handed on
    words: dict[str, Any] = {
        "name": f"{of.namespace}-{name}",
        "prefix": of.namespace,
        "threshold": 10,
        "direction": Direction.RISING,
        "evaluate_in": of.ledger().connection.region,
    }
    return Rule(**{**words, **more})


def test_alerts_arrive_through_the_bus_and_through_a_topic(audience: Audience) -> None:
    strict = f"{audience.namespace}-stock:a"
    product = audience.ledger()
    product.strict.create(strict, method="occ", lower=0, opening=50)
    audience.make(
        _rule(audience, "steps", step=10, prefix=f"{audience.namespace}:"),
        _rule(
            audience,
            "stock",
            prefix=None,
            counter=strict,
            direction=Direction.FALLING,
            target=audience.topic,
        ),
    )

    product.record(f"{audience.namespace}:files", 25)
    product.strict.change(strict, -45)
    audience.handle()

    heard = audience.heard()
    by_bus = [one for one in heard if "detail" in one]
    (by_topic,) = [json.loads(one["Message"]) for one in heard if "Message" in one]
    assert {one["detail-type"] for one in by_bus} == {DETAIL_TYPE}
    assert {one["source"] for one in by_bus} == {SOURCE}
    told = [one["detail"] for one in by_bus]
    assert [(one["threshold"], one["old"], one["new"]) for one in told] == [
        ("10", "0", "25"),
        ("20", "0", "25"),
    ]
    assert (by_topic["counter"], by_topic["direction"]) == (strict, "falling")
    assert (by_topic["old"], by_topic["new"]) == ("50", "5")
    logged = list(product.alerts.log(f"{audience.namespace}:files"))
    assert {one.alert.id for one in logged} == {one["id"] for one in told}

    audience.stack.new_pump(mapping=EVALUATOR).drain()
    assert audience.heard() == []


def test_the_evaluator_may_do_what_it_has_to_do_and_its_dead_letters_too(
    auth_audience: Audience,
) -> None:
    gone = Topic(f"{auth_audience.topic.arn}-gone")
    auth_audience.make(
        _rule(auth_audience, "bus"),
        _rule(auth_audience, "topic", target=auth_audience.topic, rearm=5),
        _rule(auth_audience, "gone", target=gone),
    )
    counter = f"{auth_audience.namespace}:c"
    product = auth_audience.ledger()

    product.record(counter, 12)
    auth_audience.handle()

    assert len(auth_audience.heard()) == 2
    dead = [one for one in product.alerts.log(counter) if one.reason is not None]
    assert [one.alert.rule for one in dead] == [f"{auth_audience.namespace}-gone"]
    (resent,) = [
        one
        for one in product.alerts.resend()
        if one.dead_letter is not None and one.dead_letter.alert.counter == counter
    ]
    assert resent.reason is not None
    assert gone.arn in resent.reason


def test_compaction_raises_no_alert(audience: Audience) -> None:
    """It writes into the item of the total, and moves no total."""
    counter = f"{audience.namespace}:old"
    product = audience.ledger()
    product.namespaces.create(audience.namespace)
    product.schedules.create(audience.namespace, every_ms=DAY_MS, min_entries=3)
    record_aged(product, counter, [5] * 10, 2 * DAY_MS)
    audience.handle()
    audience.make(_rule(audience, "each", step=1, direction=Direction.BOTH))
    before = product.total(counter)

    report = product.compactor().compact(counter)
    audience.handle()

    assert report.merged == 10
    assert total_item(product, counter)["compacted"] == 10
    assert product.total(counter) == before
    assert audience.heard() == []
    product.record(counter, 1)
    audience.handle()
    assert [one["detail"]["threshold"] for one in audience.heard()] == ["51"]
