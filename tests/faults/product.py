"""The recorder as the public API builds it, with a clock in the test's hand."""

from dataclasses import replace
from typing import Any

from countledger.producers.recorder import Recorder
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.unit.connections import through


def recorder_of(store: Store, clock: HandClock | None = None) -> Recorder:
    """The recorder of a new process: its own clients, no namespace known, and all the time."""
    own = store.app().connection
    writes = replace(own.unretried, limits=None)
    return Recorder(through(own, writes, own.retrying, clock or HandClock()))


def writer_of(recorder: Recorder) -> Any:  # noqa: ANN401 - a boto3 client
    """The client that its entries go through."""
    return recorder.sender.dynamo.client
