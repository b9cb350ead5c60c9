"""Who may make rules, read them and send alerts, with IAM enforced."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from countledger import CountLedger, Settings
from countledger.ledger.errors import AccessDenied

if TYPE_CHECKING:
    from countledger.infra.local.stack import LocalStack


@pytest.fixture
def name() -> str:
    """Of a rule, and of a namespace, of this test alone."""
    return f"a{uuid.uuid4().hex[:8]}"


def _actor(stack: LocalStack, policy: str) -> CountLedger:
    """Someone under exactly one of the stack's policies."""
    session = stack.session(stack.credentials_for(policy))
    return CountLedger(Settings(stack_name=stack.name), session=session, endpoint_url=stack.url)


def _root(stack: LocalStack) -> CountLedger:
    settings = Settings(stack_name=stack.name)
    return CountLedger(settings, session=stack.session(), endpoint_url=stack.url)


def test_who_operates_does_all_there_is_to_do(auth_stack: LocalStack, name: str) -> None:
    """Make, change and delete rules, alert at once, try targets, read the log, send again."""
    counter = f"{name}:1"
    _root(auth_stack).record(counter, 150)
    auth_stack.pump.drain()
    topic = auth_stack.client("sns").create_topic(Name=name)["TopicArn"]
    alerts = _actor(auth_stack, "OperatePolicyArn").alerts

    alerts.create(name, prefix=f"{name}:", threshold=100, direction="rising", to=topic)
    alerts.test(name, counter)
    changed = alerts.set(name, to="bus", threshold=120)
    alerts.test(name, counter)
    assert alerts.initial_scan(changed) == 1
    assert [logged.alert.threshold for logged in alerts.log(counter)] == [120]
    assert all(resent.dead_letter for resent in alerts.resend())  # of other tests, if any
    assert changed in alerts.list()
    assert alerts.delete(name)


def test_who_reads_changes_and_sends_nothing(auth_stack: LocalStack, name: str) -> None:
    """Rules and the log can be read; to scan the table for names takes who operates."""
    root = _root(auth_stack)
    made = root.alerts.create(name, prefix=f"{name}:", threshold=100, direction="rising")
    reader = _actor(auth_stack, "ReadPolicyArn")

    assert made in reader.alerts.list()
    assert list(reader.alerts.log(f"{name}:1")) == []
    with pytest.raises(AccessDenied):
        list(reader.names(f"{name}:"))
    with pytest.raises(AccessDenied):
        reader.alerts.rules.set(name, lambda rule: replace(rule, threshold=200))
    with pytest.raises(AccessDenied):
        reader.alerts.rules.delete(name)
    assert root.alerts.get(name) == made
    root.alerts.delete(name)


def test_who_emits_has_no_say_in_alerts(auth_stack: LocalStack) -> None:
    """Not even a look."""
    emitter = _actor(auth_stack, "EmitPolicyArn")

    with pytest.raises(AccessDenied):
        emitter.alerts.list()
