"""Plays the event source mapping between a stream and a deployed Lambda function.

The local engine's own mapping loses the records of a partial failure and knows no windows. So this
reads the stream, invokes the function, and follows the decisions of `shards.py`, with the
settings that the template gives the real mapping. One difference is wanted: it does not wait for
the batching window, so that a person sees totals at once.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from countledger.infra.local.mappings import Checkpoints
from countledger.infra.local.shards import (
    FunctionAnswer,
    Invocation,
    Invoke,
    OnFailure,
    ReadAhead,
    ShardDelivery,
    ShardSource,
    readable,
)
from countledger.infra.template import MappingSettings, TemplateUnsupported
from countledger.ledger.errors import ServiceFailed

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_LOG: Final = logging.getLogger(__name__)

# A stream that is still is asked ever less often, down to four times a second as Lambda does it:
# a stack that was left running should cost no processor time to speak of.
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.25
FIRST_BACK_OFF_S: Final = 0.05
LONGEST_BACK_OFF_S: Final = 5.0
LISTING_AGE_S: Final = 1.0
_READERS: Final = 4


class PumpStalled(ServiceFailed):
    """The function went on failing for as long as `drain` may take; the message has the reason."""


def next_pause_s(pause_s: float, *, idle: bool) -> float:
    """Seconds to wait after the next round that finds nothing."""
    return min(2 * pause_s, LONGEST_PAUSE_S) if idle else FIRST_PAUSE_S


def lambda_invoker(client: "LambdaClient", function_name: str) -> Invoke:
    """Invokes a deployed function and waits for its answer.

    The client must not retry by itself (a second delivery would be none of the mapping's) and must
    wait longer than the function may run.
    """

    def invoke(event: bytes) -> FunctionAnswer:
        answer = client.invoke(FunctionName=function_name, Payload=event)
        text = answer["Payload"].read()
        payload = json.loads(text) if text else None
        return FunctionAnswer(payload, str(payload) if answer.get("FunctionError") else None)

    return invoke


@dataclass(frozen=True, slots=True)
class PumpRound:
    """Records read from the stream, invocations made."""

    read: int
    deliveries: tuple[Invocation, ...]

    @property
    def idle(self) -> bool:
        return self.read == 0 and not self.deliveries

    @property
    def failed(self) -> bool:
        return any(one.failed for one in self.deliveries)


class Pump:
    """Delivers a stream to a function. Drive it with `step` and `drain`, or let it run: `start`.

    A new pump begins where the settings say (with TRIM_HORIZON: everything is delivered again).
    """

    def __init__(
        self,
        *,
        source: ShardSource,
        invoke: Invoke,
        settings: MappingSettings,
        on_failure: OnFailure | None = None,
        now_s: Callable[[], float] = time.time,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """Describe a pump; nothing is read yet.

        `on_failure` gets the note of a batch that is abandoned after the last retry; `now_s` closes
        windows; without `checkpoints` it begins as the settings say. Settings that need what it
        does not simulate are refused.
        """
        if settings.record_age_s != -1:
            raise TemplateUnsupported("the pump knows no MaximumRecordAgeInSeconds but -1")
        if settings.starting_position not in {"TRIM_HORIZON", "LATEST"}:
            raise TemplateUnsupported(f"unknown StartingPosition {settings.starting_position!r}")
        self._source = source
        self._invoke = invoke
        self._settings = settings
        self._on_failure = on_failure
        self._now_s = now_s
        self._checkpoints = checkpoints
        self._open: dict[str, ShardDelivery] = {}
        self._finished: set[str] = set()
        self._listed_at_s = float("-inf")
        self._one_at_a_time = threading.Lock()
        self._readers = ThreadPoolExecutor(_READERS, "pump-reader")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- driven ----

    def step(self) -> PumpRound:
        """One round: per shard, read until a batch is full, and make at most one invocation."""
        with self._one_at_a_time:
            self._open_shards()
            read, made = 0, []
            for shard_id, lane in list(self._open.items()):
                read += lane.fill()
                one = lane.deliver(self._now_s())
                if one is not None:
                    made.append(one)
                    self._note(shard_id, lane.handled_through)
                if lane.finished:
                    self._finished.add(shard_id)
                    del self._open[shard_id]
                    self._listed_at_s = float("-inf")
            return PumpRound(read, tuple(made))

    def drain(self, timeout_s: float = 60.0) -> list[Invocation]:
        """Go on until the stream shows nothing more and everything read has been handled."""
        deadline_s = time.monotonic() + timeout_s
        made: list[Invocation] = []
        back_off_s = FIRST_BACK_OFF_S
        while True:
            self._listed_at_s = float("-inf")
            step = self.step()
            made += step.deliveries
            if step.idle:
                return made
            if time.monotonic() > deadline_s:
                last = made[-1].verdict if made else "nothing was delivered"
                raise PumpStalled(f"the stream is not drained after {timeout_s} s: {last}")
            if step.failed:
                self._stopping.wait(back_off_s)
                back_off_s = min(2 * back_off_s, 1.0)

    # ---- running ----

    def start(self) -> None:
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the background delivery, after the invocation that is under way."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping.set()
            thread.join()
            self._stopping.clear()

    def _run(self) -> None:
        back_off_s, pause_s = FIRST_BACK_OFF_S, FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                step = self.step()
            except (BotoCoreError, ClientError):
                # The engine may be on its way down, or out of breath: what is not handled stays.
                _LOG.warning("the pump could not read or invoke", exc_info=True)
                step = None
            if step is None or step.failed:
                self._stopping.wait(back_off_s)
                back_off_s = min(2 * back_off_s, LONGEST_BACK_OFF_S)
                continue
            back_off_s = FIRST_BACK_OFF_S
            if step.idle:
                self._stopping.wait(pause_s)
            pause_s = next_pause_s(pause_s, idle=step.idle)

    # ---- shards ----

    def _open_shards(self) -> None:
        if time.monotonic() - self._listed_at_s < LISTING_AGE_S:
            return
        first_look = not self._open and not self._finished
        # A shard that appears later is a child: nothing of it may be skipped.
        latest = first_look and self._settings.starting_position == "LATEST"
        for shard in readable(self._source.shards(), self._finished):
            if shard.shard_id not in self._open:
                self._open[shard.shard_id] = self._delivery_of(shard.shard_id, latest=latest)
        self._listed_at_s = time.monotonic()

    def _delivery_of(self, shard_id: str, *, latest: bool) -> ShardDelivery:
        after = None if self._checkpoints is None else self._checkpoints.read(shard_id)
        reader = self._source.reader(shard_id, "LATEST" if latest else "TRIM_HORIZON", after)
        return ShardDelivery(
            shard_id,
            ReadAhead(reader, self._readers),
            self._settings,
            stream_arn=self._source.arn,
            invoke=self._invoke,
            on_failure=self._on_failure,
        )

    def _note(self, shard_id: str, sequence: str | None) -> None:
        if self._checkpoints is not None and sequence is not None:
            self._checkpoints.note(shard_id, sequence)
