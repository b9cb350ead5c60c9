"""Each of the stack's policies allows its job, and nothing beside it, with IAM enforced."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError

from countledger import CountLedger, Settings
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import AccessDenied
from countledger.producers.strict.definition import SPREADABLE, Method

FunctionAnswer: TypeAlias = dict[str, Any]


class Actor:
    """Someone under exactly one of the stack's policies."""

    def __init__(self, stack: LocalStack, policy: str) -> None:
        self.stack = stack
        credentials = stack.credentials_for(policy)
        self.dynamodb = stack.client("dynamodb", credentials)
        self.streams = stack.client("dynamodbstreams", credentials)
        self.sqs = stack.client("sqs", credentials)
        self.cloudformation = stack.client("cloudformation", credentials)
        self.lambda_ = stack.client("lambda", credentials)
        self.ledger = stack.outputs["LedgerTableName"]
        self.counters = stack.outputs["CountersTableName"]

    # An item of a kind that the mapping's filter holds back: nothing is to come of it.
    def put(self, counter: str, entry: str = "x#1") -> None:
        item = {"counter": {"S": counter}, "entry": {"S": entry}, "delta": {"N": "1"}}
        self.dynamodb.put_item(TableName=self.ledger, Item=item)

    def get(self, counter: str, entry: str = "x#1") -> FunctionAnswer:
        key = {"counter": {"S": counter}, "entry": {"S": entry}}
        answer: FunctionAnswer = self.dynamodb.get_item(TableName=self.ledger, Key=key)
        return answer

    def total(self, counter: str) -> FunctionAnswer:
        key = {"counter": {"S": counter}, "part": {"S": "total"}}
        answer: FunctionAnswer = self.dynamodb.get_item(TableName=self.counters, Key=key)
        return answer

    def namespaces(self) -> FunctionAnswer:
        answer: FunctionAnswer = self.dynamodb.query(
            TableName=self.ledger,
            IndexName="namespaces",
            KeyConditionExpression="directory = :d",
            ExpressionAttributeValues={":d": {"S": "namespaces"}},
        )
        return answer

    def find_the_tables(self) -> FunctionAnswer:
        answer: FunctionAnswer = self.cloudformation.describe_stacks(StackName=self.stack.name)
        return answer

    def see_the_shards(self) -> FunctionAnswer:
        answer: FunctionAnswer = self.streams.describe_stream(
            StreamArn=self.stack.outputs["LedgerStreamArn"]
        )
        return answer

    def read_the_stream(self) -> FunctionAnswer:
        shard = self.see_the_shards()["StreamDescription"]["Shards"][0]["ShardId"]
        iterator = self.streams.get_shard_iterator(
            StreamArn=self.stack.outputs["LedgerStreamArn"],
            ShardId=shard,
            ShardIteratorType="TRIM_HORIZON",
        )["ShardIterator"]
        answer: FunctionAnswer = self.streams.get_records(ShardIterator=iterator)
        return answer


def refused(call: Callable[..., Any], *arguments: Any) -> bool:  # noqa: ANN401 - any call
    """Whether IAM refuses the call."""
    try:
        call(*arguments)
    except ClientError as error:
        return "AccessDenied" in error.response["Error"]["Code"]
    return False


@pytest.fixture
def emitter(auth_stack: LocalStack) -> Actor:
    return Actor(auth_stack, "EmitPolicyArn")


@pytest.fixture
def seller(auth_stack: LocalStack) -> CountLedger:
    """Someone under the policy for strict counters, with the product's own client."""
    credentials = auth_stack.credentials_for("StrictPolicyArn")
    settings = Settings(stack_name=auth_stack.name)
    session = auth_stack.session(credentials)
    return CountLedger(settings, session=session, endpoint_url=auth_stack.url)


@pytest.fixture
def reader(auth_stack: LocalStack) -> Actor:
    return Actor(auth_stack, "ReadPolicyArn")


@pytest.fixture
def operator(auth_stack: LocalStack) -> Actor:
    return Actor(auth_stack, "OperatePolicyArn")


def test_who_emits_may_record_entries_and_read_namespaces(emitter: Actor) -> None:
    """An emitter needs no more than this to record, at the first use of a namespace too."""
    emitter.put("actors:a")
    emitter.put("namespace#a", "settings")
    request = {"PutRequest": {"Item": {"counter": {"S": "actors:a"}, "entry": {"S": "x#2"}}}}
    emitter.dynamodb.batch_write_item(RequestItems={emitter.ledger: [request]})

    assert "Item" in emitter.get("namespace#a", "settings")
    assert emitter.find_the_tables()["Stacks"]


def test_who_emits_may_not_read_counters(emitter: Actor) -> None:
    """Entries, totals, other tables' items and the stream are not the emitter's."""
    emitter.put("actors:a")

    assert refused(emitter.get, "actors:a")
    assert refused(emitter.total, "actors:a")
    assert refused(emitter.see_the_shards)
    assert refused(emitter.namespaces)


def test_who_reads_may_read_totals_entries_and_shards(reader: Actor, emitter: Actor) -> None:
    """A reader sees items of both tables, the index, and which shards there are."""
    emitter.put("actors:b")

    assert "Item" in reader.get("actors:b")
    assert reader.total("actors:b")
    assert reader.namespaces()["Items"] == []
    assert reader.see_the_shards()
    assert reader.find_the_tables()["Stacks"]


def test_who_reads_may_not_write(reader: Actor) -> None:
    """A reader changes nothing, walks no table and reads no stream."""
    assert refused(reader.put, "actors:b")
    assert refused(reader.put, "namespace#b", "settings")
    assert refused(lambda: reader.dynamodb.scan(TableName=reader.ledger))
    assert refused(reader.read_the_stream)


def test_who_operates_may_verify_and_set_up_namespaces(operator: Actor, emitter: Actor) -> None:
    """An operator walks all counters, reads the stream and the quarantine, and sets namespaces."""
    emitter.put("actors:c")
    operator.put("namespace#c", "settings")
    queue = operator.stack.outputs["QuarantineQueueUrl"]
    function = operator.stack.outputs["MaterializerFunctionName"]
    mapping = operator.stack.outputs["MaterializerMappingId"]

    assert operator.dynamodb.scan(TableName=operator.ledger)["Items"]
    assert operator.dynamodb.scan(TableName=operator.counters)
    assert operator.read_the_stream()["Records"]
    assert operator.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert operator.lambda_.get_function_configuration(FunctionName=function)
    assert operator.lambda_.get_event_source_mapping(UUID=mapping)["State"] == "Disabled"


def test_who_operates_may_not_write_entries(operator: Actor) -> None:
    """An operator's writes reach namespaces only, and no function is the operator's to change."""
    function = operator.stack.outputs["MaterializerFunctionName"]

    assert refused(operator.put, "actors:c")
    assert refused(lambda: operator.lambda_.delete_function(FunctionName=function))


@pytest.mark.parametrize("method", list(Method))
def test_who_changes_strict_counters_may_do_so_by_every_method(
    seller: CountLedger, method: Method
) -> None:
    """Making, changing, bounding, giving up, listing and deleting need no more than this."""
    counter = f"tickets:{method}"
    bins = 3 if method in SPREADABLE else 1
    context = seller.strict.context
    assert context.reads.describe(context.table)["TableName"] == context.table
    seller.strict.create(counter, method=method, lower=0, upper=5, opening=2, bins=bins)
    seller.strict.change(counter, -1)
    # With bins this one is split, and the next one refused after all bins were read.
    if method is not Method.SET:
        seller.strict.change(counter, 3)
        seller.strict.change(counter, 5)
    if method in {Method.CRT, Method.MARKER, Method.SET}:
        seller.strict.withdraw(counter, "order-1")
    seller.strict.set_bounds(counter, upper=9)

    assert seller.strict.show(counter).value == (1 if method is Method.SET else 4)
    assert counter in [one.counter for one in seller.strict.list("tickets")]
    assert seller.total(counter).total == (1 if method is Method.SET else 4)

    seller.strict.delete(counter)

    assert counter not in [one.counter for one in seller.strict.list("tickets")]


def test_who_changes_strict_counters_may_not_touch_entries(seller: CountLedger) -> None:
    """The ledger is not the seller's: no entry, and no other item than namespaces."""
    seller.namespaces.create("actors-entries")

    with pytest.raises(AccessDenied):
        seller.record("actors-entries:a", 1)
    with pytest.raises(AccessDenied):
        seller.exact("actors-entries:a")
