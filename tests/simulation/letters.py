"""A queue that people work off: messages are held for a while by whoever reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.process import Process


@dataclass(slots=True)
class Letter:
    """A message, and from when on it shows."""

    body: str
    shows_ms: float = 0.0


@dataclass
class Letters:
    """Some queues, by their URLs."""

    now_ms: Callable[[], float]
    queues: dict[str, dict[str, Letter]] = field(default_factory=dict)
    made: int = 0

    def of(self, url: str) -> dict[str, Letter]:
        """The messages of one."""
        return self.queues.setdefault(url, {})


@dataclass
class LettersClient:
    """SQS, as one process reaches it; its SDK retries."""

    letters: Letters
    process: Process

    def send_message(self, QueueUrl: str, MessageBody: str) -> dict[str, Any]:  # noqa: N803 - theirs
        """Put one, at least once."""

        def request() -> dict[str, Any]:
            for _ in range(2 if self._strikes(Fault.DUPLICATE) else 1):
                self.letters.made += 1
                name = f"message {self.letters.made}"
                self.letters.of(QueueUrl)[name] = Letter(MessageBody)
            return {"MessageId": name}

        return self.process.write("SendMessage", request, attempts=4)

    def receive_message(
        self,
        QueueUrl: str,  # noqa: N803 - theirs
        MaxNumberOfMessages: int,  # noqa: N803 - theirs
        VisibilityTimeout: int,  # noqa: N803 - theirs
        **_: object,
    ) -> dict[str, Any]:
        """Some of those that show; now and then one goes on showing."""

        def request() -> dict[str, Any]:
            now_ms = self.letters.now_ms()
            showing = [
                (name, one)
                for name, one in self.letters.of(QueueUrl).items()
                if one.shows_ms <= now_ms
            ]
            for _, one in showing[:MaxNumberOfMessages]:
                if not self._strikes(Fault.DUPLICATE):
                    one.shows_ms = now_ms + VisibilityTimeout * 1_000
            given = showing[:MaxNumberOfMessages]
            return {
                "Messages": [
                    {"MessageId": n, "ReceiptHandle": n, "Body": one.body} for n, one in given
                ]
            }

        return self.process.write("ReceiveMessage", request, attempts=4)

    def delete_message(self, QueueUrl: str, ReceiptHandle: str) -> dict[str, Any]:  # noqa: N803 - theirs
        """It is done with."""

        def request() -> dict[str, Any]:
            self.letters.of(QueueUrl).pop(ReceiptHandle, None)
            return {}

        return self.process.write("DeleteMessage", request, attempts=4)

    def change_message_visibility(
        self,
        QueueUrl: str,  # noqa: N803 - theirs
        ReceiptHandle: str,  # noqa: N803 - theirs
        VisibilityTimeout: int,  # noqa: N803 - theirs
    ) -> dict[str, Any]:
        """It shows again then."""

        def request() -> dict[str, Any]:
            there = self.letters.of(QueueUrl).get(ReceiptHandle)
            if there is not None:
                there.shows_ms = self.letters.now_ms() + VisibilityTimeout * 1_000
            return {}

        return self.process.write("ChangeMessageVisibility", request, attempts=4)

    def _strikes(self, fault: Fault) -> bool:
        return self.process.world.faults.strikes(fault, self.process.acting)
