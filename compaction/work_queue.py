"""The queue between the dispatcher and the workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

from countledger.compaction.work import encode_work
from countledger.ledger.attempts import Backoff
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.limits import CALL_MESSAGES
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_sqs import SQSClient

    from countledger.compaction.work import Work


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """An SQS queue of work.

    Attributes:
        client: of SQS.
        url: of the queue.
        clock: waits between tries.
        random: what the jitter is drawn from.
        backoff: how often a message that the queue did not take is sent again.
    """

    client: SQSClient
    url: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=lambda: Backoff(attempts=5))

    def send(self, batch: Sequence[Work]) -> int:
        """Send up to ten at once: one call, and more for what the queue does not take.

        Returns:
            How many it took in the end.

        Raises:
            ServiceFailed: the call itself failed.
        """
        left: list[Any] = [
            {"Id": str(number), "MessageBody": encode_work(work)}
            for number, work in enumerate(batch)
        ]
        for _ in self.backoff.tries(self.clock, self.random):
            with translated("SendMessageBatch to the compaction queue"):
                answer = self.client.send_message_batch(QueueUrl=self.url, Entries=left)
            refused = {one["Id"] for one in answer.get("Failed", [])}
            left = [one for one in left if one["Id"] in refused]
            if not left:
                break
        return len(batch) - len(left)

    def backlog(self) -> int:
        """About how many messages wait to be worked off. One call."""
        name: Final = "ApproximateNumberOfMessages"
        with translated("GetQueueAttributes of the compaction queue"):
            answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])
        return int(answer["Attributes"][name])


def batches(work: Iterable[Work]) -> Iterator[list[Work]]:
    """The work in portions that one call takes."""
    feed = iter(work)
    while batch := list(islice(feed, CALL_MESSAGES)):
        yield batch
