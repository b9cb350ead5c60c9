"""Parent and child at once, after the parent has used its clients: each hears its own answers."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pytest

from countledger import CountLedger
from countledger.ledger.errors import CounterExists
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.settings import TRANSPORTS
from countledger.producers.kinesis import decode, unpack_record
from tests.engines.running import REGION
from tests.engines.store import Store
from tests.transport.server import HostileServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
NAMES: Final = ("parent", "child")
STREAM: Final = "countledger-forks"


def told_by(
    store: Store, server: HostileServer, *arguments: str, **environment: str
) -> dict[str, list[Any]]:
    """What the processes of a module of this folder were told, by the name of each."""
    settings = store.connection.settings
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={
            **os.environ,
            "AWS_ACCESS_KEY_ID": "000000000000",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": server.url,
            "COUNTLEDGER_LEDGER_TABLE": str(settings.ledger_table),
            "COUNTLEDGER_COUNTERS_TABLE": str(settings.counters_table),
            "COUNTLEDGER_HOME_REGION": REGION,
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        for name, told in json.loads(line).items():
            answers.setdefault(name, []).extend(told)
    return answers


# Runs an operation (how the process forks, how often); what each process was told.
Forked: TypeAlias = Callable[..., dict[str, list[str]]]


@pytest.fixture(params=TRANSPORTS)
def forked(request: pytest.FixtureRequest, store: Store, server: HostileServer) -> Forked:
    """Runs an operation in processes that fork; what each was told."""
    server.delay_s = 0.002

    def run(operation: str, fork: str = "by_os_fork", rounds: int = 10) -> dict[str, list[str]]:
        answers = told_by(
            store,
            server,
            "tests.transport.forking",
            operation,
            fork,
            str(rounds),
            COUNTLEDGER_TRANSPORT=request.param,
            COUNTLEDGER_INGEST_STREAM_ARN=STREAM,
        )
        assert set(answers) == set(NAMES)
        return answers

    return run


@pytest.mark.parametrize(
    ("operation", "fork", "rounds"),
    [
        ("record", "by_os_fork", 20),
        ("record", "by_multiprocessing", 8),
        ("record", "without_hooks", 8),
        ("buffered", "by_os_fork", 4),
        ("buffered", "without_hooks", 4),
        ("awaited", "by_os_fork", 1),
        ("awaited", "without_hooks", 1),
        ("looped", "by_os_fork", 1),
        ("looped", "without_hooks", 1),
    ],
)
def test_every_entry_that_is_acknowledged_is_stored(
    store: Store,
    forked: Forked,
    operation: str,
    fork: str,
    rounds: int,
) -> None:
    """Once, under the id that its own process was told."""
    before = {name: stored_ids(store, name) for name in NAMES}
    answers = forked(operation, fork, rounds)
    new = {name: sorted(stored_ids(store, name) - before[name]) for name in NAMES}

    assert new == {name: sorted(answers[name]) for name in NAMES}


def stored_ids(store: Store, counter: str) -> set[str]:
    """The ids of a counter's entries."""
    return {str(item["entry"]).removeprefix("e#") for item in entries_of(store, counter)}


def entries_of(store: Store, counter: str) -> list[dict[str, Any]]:
    """A counter's entries."""
    condition = AllOf(Compare("counter", "=", counter), BeginsWith("entry", "e#"))
    return list(store._own_dynamo.page(Query(store.ledger, condition, consistent=True)).items)


def ledger_of(store: Store) -> CountLedger:
    """A client of the test's own."""
    url = store.engine.endpoint_url
    return CountLedger(store.connection.settings, session=store.engine.session, endpoint_url=url)


def test_every_change_that_is_applied_is_in_the_value(store: Store, forked: Forked) -> None:
    """A strict counter of each process."""
    ledger = ledger_of(store)
    for name in NAMES:
        with suppress(CounterExists):
            ledger.strict.create(f"strict:{name}", method="history")
    before = {name: ledger.total(f"strict:{name}").value for name in NAMES}
    answers = forked("strict")
    applied = {name: before[name] + Counter(answers[name])["Applied"] for name in NAMES}

    assert applied != before
    assert {name: ledger.total(f"strict:{name}").value for name in NAMES} == applied


def test_every_read_is_of_the_counter_that_was_asked_for(store: Store, forked: Forked) -> None:
    """A total of each process's own, with a value of its own."""
    ledger = ledger_of(store)
    for value, name in enumerate(NAMES):
        with suppress(CounterExists):
            ledger.strict.create(f"strict-totals:{name}", method="occ", opening=value)
    answers = forked("total")

    assert {name: set(answers[name]) for name in NAMES} == {
        name: {f"strict-totals:{name}={value}"} for value, name in enumerate(NAMES)
    }


@pytest.mark.parametrize("forked", ["boto3"], indirect=True)
def test_every_record_that_is_acknowledged_is_in_the_stream(store: Store, forked: Forked) -> None:
    """With the entry that its own process made."""
    client = store.engine.session.client("kinesis", endpoint_url=store.engine.endpoint_url)
    client.create_stream(StreamName=STREAM, ShardCount=1)
    answers = forked("kinesis")
    shard = client.list_shards(StreamName=STREAM)["Shards"][0]["ShardId"]
    start = client.get_shard_iterator(
        StreamName=STREAM, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )
    records = client.get_records(ShardIterator=start["ShardIterator"], Limit=1_000)["Records"]
    payloads = [one for record in records for one in unpack_record(record["Data"]).messages]
    entries = [decode(one, arrived_ms=1, origin=REGION) for one in payloads]

    assert sorted(one.id for one in entries) == sorted(answers["parent"] + answers["child"])
