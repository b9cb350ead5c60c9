"""The recorder as the public API builds it, with a clock in the test's hand."""

from dataclasses import replace
from typing import Any

from countledger.producers.recorder import Recorder
from tests.engines.clock import HandClock
from tests.engines.store import Store


def recorder_of(store: Store, clock: HandClock | None = None) -> Recorder:
    """The recorder of a new process: its own clients, no namespace known, and all the time."""
    clock = clock or HandClock()
    built = store.app()._recorder
    dynamo = replace(built.sender.dynamo, limits=None)
    return replace(built, sender=replace(built.sender, clock=clock, dynamo=dynamo), clock=clock)


def writer_of(recorder: Recorder) -> Any:  # noqa: ANN401 - a boto3 client
    """The client that its entries go through."""
    return recorder.sender.dynamo.client
