"""A process is killed with twenty thousand entries in hand: none is lost, none counts twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger import Buffering
from tests.engines.store import Store, fresh_store
from tests.faults.play import ON_THE_ENGINE

pytestmark = ON_THE_ENGINE

EVENTS = 20_000
COUNTERS = 50
# It spools everything, says so, and says again and again how much of it is acknowledged.
CODE = """
import sys
from countledger import Buffering, CountLedger, Event, Settings

url, table, region, namespace, spool = sys.argv[1:6]
coalesce, events, counters = sys.argv[6] == "True", int(sys.argv[7]), int(sys.argv[8])
settings = Settings(ledger_table=table, counters_table=table, home_region=region)
ledger = CountLedger(settings, endpoint_url=url)
ledger.namespaces.create(namespace)
linger_ms = 20_000 if coalesce else 10
buffering = Buffering(
    spool=spool,
    coalesce=coalesce,
    linger_ms=linger_ms,
    window_events=9_000,
    max_entries=events,
)
producer = ledger.buffered(buffering)
producer.add_many(Event(f"{namespace}:{n % counters}", 1) for n in range(events))
print("all", flush=True)
while True:
    print(producer.statistics.recorded, flush=True)
"""


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    """Tables of its own: others would read all of its entries in the stream."""
    with fresh_store(store.engine) as made:
        yield made


def kill_after(store: Store, namespace: str, spool: Path, *, coalesce: bool, recorded: int) -> int:
    """Start the process, and kill it as soon as so many entries are acknowledged.

    Returns:
        How many were, when it last said so.
    """
    engine = store.engine
    arguments = (engine.endpoint_url or "", store.ledger, store.region, namespace, str(spool))
    credentials = engine.session.get_credentials()
    assert credentials is not None
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_REGION": store.region,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments, str(coalesce), str(EVENTS), str(COUNTERS)],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    with process:
        assert process.stdout is not None
        said = [0]
        everything = False
        for line in process.stdout:
            everything = everything or line == "all\n"
            said.append(0 if line == "all\n" else int(line))
            if everything and said[-1] >= recorded:
                break
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return said[-1]


@pytest.mark.parametrize(
    ("coalesce", "recorded"), [(False, 2_000), (True, 1)], ids=["plain", "coalescing"]
)
def test_p1_a_kill_loses_nothing_and_doubles_nothing(
    store: Store,
    counter: str,
    tmp_path: Path,
    coalesce: bool,  # noqa: FBT001 - a case
    recorded: int,
) -> None:
    """What `add` took is in the ledger once, after the next start; the last window never closed."""
    namespace, spool = counter.split(":", maxsplit=1)[0], tmp_path / "spool"
    known = kill_after(store, namespace, spool, coalesce=coalesce, recorded=recorded)

    with store.app().buffered(Buffering(spool=spool, coalesce=coalesce)) as producer:
        left = producer.statistics.waiting
        producer.flush(120)
    sums = [store.exact().read(f"{namespace}:{n}") for n in range(COUNTERS)]

    assert recorded <= known < EVENTS
    assert left > 0
    assert {exact.value for exact in sums} == {EVENTS // COUNTERS}
    assert {exact.events for exact in sums} == {EVENTS // COUNTERS}
