"""Who draws numbers, and who claims, may do that and nothing beside it, with IAM enforced."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from countledger import Claim, Collection, CountLedger, ItemChange, ItemDeletion, NewItem, Settings
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import AccessDenied, AlreadyClaimed

# As the guides say: what an app needs at its own table, beside a policy of the stack.
APPEND = ["dynamodb:Query", "dynamodb:GetItem", "dynamodb:PutItem"]
CLAIM = ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"]


def actor(stack: LocalStack, policy: str) -> CountLedger:
    """Someone under exactly one of the stack's policies, with the product's own client."""
    session = stack.session(stack.credentials_for(policy))
    settings = Settings(stack_name=stack.name)
    return CountLedger(settings, session=session, endpoint_url=stack.url)


@contextmanager
def own_table(stack: LocalStack, policy: str, actions: list[str]) -> Iterator[str]:
    """A table of an app's own, which an actor may use by these actions."""
    name = f"own-{uuid4().hex[:8]}"
    client: Any = stack.client("dynamodb")
    made = client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "id", "AttributeType": "S"},
            {"AttributeName": "n", "AttributeType": "N"},
        ],
        KeySchema=[
            {"AttributeName": "id", "KeyType": "HASH"},
            {"AttributeName": "n", "KeyType": "RANGE"},
        ],
    )
    stack.credentials_for(policy)
    arn = made["TableDescription"]["TableArn"]
    statement = {"Effect": "Allow", "Action": actions, "Resource": arn}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    iam: Any = stack.client("iam")
    user = f"only-{policy.removesuffix('PolicyArn')}"
    iam.put_user_policy(UserName=user, PolicyName=name, PolicyDocument=json.dumps(document))
    try:
        yield name
    finally:
        iam.delete_user_policy(UserName=user, PolicyName=name)
        client.delete_table(TableName=name)


def test_who_draws_may_do_so_by_every_way(auth_stack: LocalStack) -> None:
    """At the first use of a namespace too; and number items of an own table."""
    sequences = actor(auth_stack, "SequencePolicyArn").sequences
    assert sequences.draw("actor-numbers:a") == 1
    sequences.create("actor-numbers:b", first=7)
    assert sequences.draw_expected("actor-numbers:b") == 7
    assert sequences.lease("actor-numbers:b", 5).draw() == 8
    assert sequences.show("actor-numbers:b").last == 12

    with own_table(auth_stack, "SequencePolicyArn", APPEND) as table:
        collection = Collection(table, ("id", "p"), "n")
        assert [sequences.append(collection, {"a": n}).number for n in (1, 2)] == [1, 2]


def test_who_draws_may_not_touch_entries(auth_stack: LocalStack) -> None:
    """Nor own tables that nobody has given."""
    drawer = actor(auth_stack, "SequencePolicyArn")
    drawer.sequences.draw("actor-numbers:c")

    with pytest.raises(AccessDenied):
        drawer.record("actor-likes:a", 1)
    with pytest.raises(AccessDenied):
        drawer.sequences.append(Collection("not-mine", ("id", "p"), "n"), {"a": 1})


def test_who_claims_may_take_change_and_release(auth_stack: LocalStack) -> None:
    """Together with items of an own table."""
    claims = actor(auth_stack, "ClaimPolicyArn").claims
    ann = Claim("actor-mail", "a", "u-1")

    with own_table(auth_stack, "ClaimPolicyArn", CLAIM) as table:
        key = {"id": "u-1", "n": 0}
        assert claims.take(ann, own=[NewItem(table, {**key, "mail": "a"}, ("id", "n"))])
        with pytest.raises(AlreadyClaimed, match="u-1"):
            claims.take(Claim("actor-mail", "a", "u-2"))
        assert claims.change(ann, "b", own=[ItemChange(table, key, {"mail": "b"})])
        assert claims.owner("actor-mail", "b") == "u-1"
        assert claims.release(Claim("actor-mail", "b", "u-1"), own=[ItemDeletion(table, key)])


def test_who_claims_may_not_touch_counters(auth_stack: LocalStack) -> None:
    """Claims lie beside them in one table; the policy ends at their keys."""
    claimer = actor(auth_stack, "ClaimPolicyArn")
    drawer = actor(auth_stack, "SequencePolicyArn")
    drawer.sequences.draw("actor-numbers:d")

    with pytest.raises(AccessDenied):
        claimer.total("actor-numbers:d")
    with pytest.raises(AccessDenied):
        claimer.sequences.draw("actor-numbers:d")
    with pytest.raises(AccessDenied):
        claimer.record("actor-likes:a", 1)
