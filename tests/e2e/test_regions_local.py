"""A local stack in three regions: entries everywhere, a partition, and a compaction in it."""

import time
from collections.abc import Iterator
from threading import Event
from typing import Final

import pytest

from countledger import CountLedger, Settings
from countledger.compaction.deletion import DeletionStage
from countledger.compaction.report import RunOutcome
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import AccessDenied, BadSetting
from countledger.ledger.limits import DAY_MS
from tests.e2e.command import eventually
from tests.e2e.proxy import PassingRequest, ProxyAnswer, proxy_before
from tests.e2e.world import edit, record_aged, record_all

HOME: Final = "us-east-1"
REGIONS: Final = (HOME, "eu-west-1", "ap-northeast-1")
EU: Final = "eu-west-1"


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """The stack, replicating and counting in the background."""
    with LocalStack(name="regional", regions=REGIONS, auth=True) as running:
        yield running


@pytest.fixture
def clients(stack: LocalStack, name: str) -> Iterator[dict[str, CountLedger]]:
    """A client of each region, all ways open; the namespace of the test is known everywhere."""
    stack.replicator.heal()
    found = {region: client_in(stack, region) for region in stack.regions}
    found[HOME].namespaces.create(name)
    stack.drain()
    yield found
    stack.replicator.heal()


def client_in(stack: LocalStack, region: str, *policies: str, url: str = "") -> CountLedger:
    """A client of a region; under these policies of its stack, or of each of the stacks."""
    there, session = stack.stacks[region], stack.stacks[region].session()
    if policies:
        session = there.session(stack.credentials_for(*policies, region=region))
    settings = Settings(stack_name=stack.name)
    return CountLedger(settings, session=session, endpoint_url=url or stack.url)


def totals(clients: dict[str, CountLedger], counter: str) -> list[object]:
    """The total in each region."""
    return [client.total(counter).value for client in clients.values()]


def sums(clients: dict[str, CountLedger], counter: str) -> list[object]:
    """The exact sum in each region."""
    return [client.exact(counter).value for client in clients.values()]


def test_every_region_counts_what_any_region_records(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counter = f"{name}:a"
    for n, client in enumerate(clients.values()):
        for _ in range(5):
            client.record(counter, 10**n)

    eventually(lambda: totals(clients, counter) == [555] * 3)
    assert sums(clients, counter) == [555] * 3
    for region in stack.regions:
        described = (
            stack.stacks[region]
            .client("dynamodb")
            .describe_table(TableName=stack.outputs["LedgerTableName"])["Table"]
        )
        named = {one["RegionName"] for one in described["Replicas"]}
        assert named == set(REGIONS) - {region}


def test_in_a_partition_nothing_is_merged_and_afterwards_every_number_is_right(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counter = f"{name}:a"
    record_aged(clients[HOME], counter, [1] * 20, 2 * DAY_MS)
    stack.drain()
    stack.replicator.cut_off(EU)
    record_aged(clients[EU], counter, [100] * 3, 2 * DAY_MS)
    record_aged(clients[HOME], counter, [1000] * 3, 2 * DAY_MS)
    stack.drain()

    assert totals(clients, counter) == sums(clients, counter) == [3020, 320, 3020]
    over = clients[HOME].total(counter, regions=True)
    # Of regions with as many entries, the one whose total is the latest.
    assert over.region != EU
    assert (over.total.value, over.agree) == (3020, False)
    assert over.included == REGIONS[:1] + tuple(sorted(REGIONS[1:]))
    report = clients[HOME].compactor().compact(counter)
    assert report.outcome is RunOutcome.WAITING
    assert totals(clients, counter) == sums(clients, counter) == [3020, 320, 3020]

    stack.replicator.heal()
    stack.drain()
    assert totals(clients, counter) == sums(clients, counter) == [3320] * 3
    over = clients[EU].total(counter, regions=True)
    assert (over.total.value, over.agree, over.missing) == (3320, True, {})

    assert report.merged + _compact_all(stack, clients[HOME], counter) == 26
    assert totals(clients, counter) == sums(clients, counter) == [3320] * 3
    assert [one.exact(counter).entries_read for one in clients.values()] == [0] * 3


def _compact_all(stack: LocalStack, client: CountLedger, counter: str) -> int:
    merged = 0
    for _ in range(20):
        report = client.compactor().compact(counter)
        merged += report.merged
        stack.drain()
        if report.outcome is RunOutcome.NOTHING:
            break
    return merged


def test_everything_delivered_again_changes_no_total_in_any_region(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counters = [f"{name}:{letter}" for letter in "abc"]
    for client in clients.values():
        record_all(client, counters, 7)
    stack.drain()
    before = [client.totals(counters) for client in clients.values()]

    for there in stack.stacks.values():
        assert there.new_pump().drain()

    assert [client.totals(counters) for client in clients.values()] == before
    assert totals(clients, counters[0]) == [21] * 3


def test_the_number_over_regions_is_that_of_the_most_entries_and_never_a_sum(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counter, other = f"{name}:a", f"{name}:b"
    record_all(clients[HOME], [counter, other])
    stack.drain()
    stack.replicator.cut_off(EU, one_way=True)
    for _ in range(3):
        clients[EU].record(counter, -5)
    clients[HOME].record(counter, 100)
    stack.drain()

    found = clients[HOME].totals([counter, other], regions=True)

    # What is written in the home region still arrives there.
    assert {name: one.value for name, one in found[counter].by_region.items()} == {
        HOME: 101,
        EU: 86,
        "ap-northeast-1": 101,
    }
    assert (found[counter].region, found[counter].total.value) == (EU, 86)
    assert (found[other].total.value, found[other].agree) == (1, True)
    for answer in found[counter].regions:
        assert answer.freshness is not None
        assert answer.freshness.handled_through is not None


def test_a_region_that_does_not_answer_is_named_and_not_waited_for(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counter = f"{name}:a"
    clients[HOME].record(counter, 1)
    stack.drain()

    over = Event()

    def answer(request: PassingRequest) -> ProxyAnswer | None:
        if f"/{EU}/" not in request.headers.get("Authorization", ""):
            return request.forward()
        over.wait()
        return None

    with proxy_before(stack.url, answer) as url:
        client = client_in(stack, HOME, url=url)
        began_s = time.monotonic()
        found = client.total(counter, regions=True)

        assert time.monotonic() - began_s < 8
        assert found.total.value == 1
        assert found.included == (HOME, "ap-northeast-1")
        assert found.missing == {EU: "no answer within 5 s"}
        assert not found.agree
    over.set()


def test_a_reader_of_every_region_has_the_policy_of_each_stack(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    counter = f"{name}:a"
    clients[HOME].record(counter, 1)
    stack.drain()
    reader = client_in(stack, HOME, "ReadPolicyArn")

    only_home = reader.total(counter, regions=True)
    assert only_home.included == (HOME,)
    assert all("is not authorized" in why for why in only_home.missing.values()), only_home.missing

    iam = stack.client("iam")
    for region in REGIONS[1:]:
        arn = stack.stacks[region].outputs["ReadPolicyArn"]
        iam.attach_user_policy(UserName=f"only-Read-{HOME}", PolicyArn=arn)
    everywhere = client_in(stack, HOME, "ReadPolicyArn").total(counter, regions=True)
    assert everywhere.missing == {}
    assert everywhere.agree
    with pytest.raises(AccessDenied):
        client_in(stack, HOME, "ReadPolicyArn").record(counter, 1)


@pytest.mark.parametrize(
    "regions", [("mars",), (HOME, HOME), ("us-east-1", "us-east-2", *REGIONS, "us-west-2")]
)
def test_regions_that_no_stack_can_have_are_refused(regions: tuple[str, ...]) -> None:
    with pytest.raises(BadSetting):
        LocalStack(regions=regions)


_DELETES = ("OperatePolicyArn", "DeletePolicyArn")


def _days_pass(clients: dict[str, CountLedger], counter: str) -> None:
    """As if the mark and the last change of each total were three days old."""
    then_ms = SystemClock().now_ms() - 3 * DAY_MS
    mark, total = keys.deletion_key(counter), keys.total_key(counter)
    edit(clients[HOME], "ledger_table", mark, at=then_ms)
    for client in clients.values():
        edit(client, "counters_table", total, updated_at=then_ms)


def test_a_counter_is_deleted_in_every_region_under_the_policies_of_each(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    """Its name is used again afterwards, in another region than the home."""
    counter, other = f"{name}:gone", stack.regions[1]
    for client in clients.values():
        record_aged(client, counter, [5, 7], 4 * DAY_MS)
    eventually(lambda: totals(clients, counter) == [36] * 3)
    deletions = _deleter(stack).deletions
    assert deletions.delete(counter).stage is DeletionStage.MARKED
    stack.drain()
    _days_pass(clients, counter)
    stack.drain()

    eventually(lambda: deletions.delete(counter).stage is DeletionStage.DELETED)

    stack.drain()
    assert totals(clients, counter) == sums(clients, counter) == [0] * 3
    clients[other].record(counter, 3)
    eventually(lambda: totals(clients, counter) == sums(clients, counter) == [3] * 3)
    assert [one.audit.verify(counter).verdict for one in clients.values()] == ["exact"] * 3


def _deleter(stack: LocalStack) -> CountLedger:
    """Who has the policies for deletions of each region; at home also that of compaction."""
    credentials = stack.credentials_for(*_DELETES, "CompactPolicyArn")
    for region in stack.regions[1:]:
        for policy in _DELETES:
            arn = stack.stacks[region].outputs[policy]
            stack.client("iam").attach_user_policy(
                UserName="only-Operate-Delete-Compact", PolicyArn=arn
            )
    session = stack.stacks[HOME].session(credentials)
    settings = Settings(stack_name=stack.name, clock_skew_ms=1_000)
    return CountLedger(settings, session=session, endpoint_url=stack.url)
