"""The policies that the documentation gives are the ones that are needed, with IAM enforced."""

import json
import re
from pathlib import Path

import pytest

from countledger import CountLedger, Event, Settings
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import load_template
from countledger.ledger.errors import AccessDenied
from countledger.ledger.operations import Compare, Query
from tests.e2e.command import Command
from tests.e2e.world import bundle_of, client_of, keys_of, user_with

PAGE = (Path(__file__).parents[2] / "docs/permissions.md").read_text()
POLICIES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
OUTPUTS = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)


def actor(stack: LocalStack, number: int) -> CountLedger:
    """A client under the one policy of the page with that number."""
    dynamodb = stack.client("dynamodb")
    text = json.dumps(POLICIES[number])
    for place, output in (("TABLE_ARN", "LedgerTableName"), ("COUNTERS_ARN", "CountersTableName")):
        table = dynamodb.describe_table(TableName=stack.outputs[output])["Table"]
        text = text.replace(place, table["TableArn"])
    user = user_with(stack, f"documented-{number}", *json.loads(text)["Statement"])
    settings = Settings(
        ledger_table=stack.outputs["LedgerTableName"],
        counters_table=stack.outputs["CountersTableName"],
        home_region=stack.outputs["HomeRegion"] if number else None,  # as the page says
    )
    return CountLedger(settings, session=stack.session(user), endpoint_url=stack.url)


@pytest.fixture
def everything(auth_stack: LocalStack) -> CountLedger:
    """Someone who may do all, and has made the namespaces."""
    client = client_of(auth_stack)
    for namespace in ("likes", "other"):
        client.namespaces.create(namespace)
    return client


def test_an_emitter_of_one_namespace(auth_stack: LocalStack, everything: CountLedger) -> None:
    emitter = actor(auth_stack, 0)
    before = everything.exact("likes:documented").value

    emitter.record("likes:documented", 1, key="k")
    sent = list(emitter.record_many([Event("likes:documented", 2)] * 3))

    assert all(getattr(one, "status", None) == "recorded" for one in sent)
    assert everything.exact("likes:documented").value - before == 7
    with pytest.raises(AccessDenied):
        emitter.record("other:documented", 1)
    with pytest.raises(AccessDenied):
        list(emitter.record_many([Event("other:documented", 1)]))
    with pytest.raises(AccessDenied):
        _batch_elsewhere(emitter)
    with pytest.raises(AccessDenied):
        emitter.total("likes:documented")
    with pytest.raises(AccessDenied):
        emitter.exact("likes:documented")


def _batch_elsewhere(emitter: CountLedger) -> None:
    """The product asks for the namespace first; this does not."""
    table = emitter.connection.setting("ledger_table")
    items = [{"counter": f"{name}:documented", "entry": "x#1"} for name in ("likes", "other")]
    emitter.connection.dynamo("none").put_batch(table, items)


def test_a_reader_of_one_namespace(auth_stack: LocalStack, everything: CountLedger) -> None:
    everything.record("likes:read", 5)
    everything.record("other:read", 5)
    auth_stack.pump.drain()
    reader = actor(auth_stack, 1)

    assert reader.total("likes:read").value == 5
    assert reader.exact("likes:read").value == 5
    assert [one.delta for one in reader.entries("likes:read")] == [5]
    with pytest.raises(AccessDenied):
        reader.total("other:read")
    with pytest.raises(AccessDenied):
        list(reader.connection.dynamo("none").pages(everything_of("other:read", reader)))
    with pytest.raises(AccessDenied):
        reader.record("likes:read", 1)


def everything_of(counter: str, reader: CountLedger) -> Query:
    return Query(reader.connection.setting("ledger_table"), Compare("counter", "=", counter))


def test_the_page_names_every_policy_of_the_stack() -> None:
    assert sorted(OUTPUTS) == sorted(
        name for name in load_template()["Outputs"] if name.endswith("PolicyArn")
    )


def test_the_policy_of_a_key_names_the_account_and_who_deploys(
    auth_stack: LocalStack, name: str
) -> None:
    """It is a policy that the engine's KMS takes for a new key."""
    who = "arn:aws:iam::000000000000:role/deployer"

    printed = Command(auth_stack.environment())(
        "policy", "key", "--stack-name", name, "--principal-arn", who
    )

    kms = auth_stack.client("kms")
    made = kms.create_key(Policy=printed.out)["KeyMetadata"]
    kept = json.loads(kms.get_key_policy(KeyId=made["KeyId"])["Policy"])
    assert [one["Principal"] for one in kept["Statement"]] == [
        {"AWS": "arn:aws:iam::000000000000:root"},
        {"AWS": who},
        {"Service": f"logs.{kms.meta.region_name}.amazonaws.com"},
    ]


def test_the_deployers_policy_is_what_deploy_and_destroy_call(
    auth_stack: LocalStack, name: str, tmp_path: Path
) -> None:
    """Nothing but the calls themselves: the engine's CloudFormation works as if it were root."""
    root = Command(auth_stack.environment())
    role = "arn:aws:iam::000000000000:role/cloudformation"
    document = root("policy", "deployer", "--stack-name", name, "--role-arn", role).json
    assert {one["Sid"] for one in document["Statement"]} >= {"ChangeTheStack", "GiveTheRole"}
    for one in document["Statement"]:
        # The engine does not know the condition key iam:PolicyARN.
        if one["Sid"] == "DetachThePolicies":
            assert one.pop("Condition")["ArnLike"]["iam:PolicyARN"].endswith(f":policy/{name}-*")
    iam = auth_stack.client("iam")
    iam.create_user(UserName=name)
    made = iam.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))
    iam.attach_user_policy(UserName=name, PolicyArn=made["Policy"]["Arn"])
    deployer = Command(auth_stack.environment(keys_of(auth_stack, name)))
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(bundle_of())
    deploy = ("deploy", "--stack-name", name, "--bundle", str(bundle), "--tag", "team=web")

    new = deployer(*deploy, "--plan")
    first = deployer(*deploy, "--yes", "--termination-protection", "--json")
    second = deployer(*deploy, "--yes", "--no-termination-protection")
    assert first.code == 0, first.err
    iam.attach_user_policy(UserName=name, PolicyArn=first.json["outputs"]["ReadPolicyArn"])
    away = ("destroy", "--yes", name, "--detach", "--delete-data")
    other = deployer(*away[:2], "countledger-auth", "--stack-name", "countledger-auth")
    gone = deployer(*away, "--stack-name", name)

    assert [new.code, first.code, second.code, gone.code] == [1, 0, 0, 0], (
        new.err + first.err + second.err + gone.err
    )
    assert "not authorized" in other.err, other.err
