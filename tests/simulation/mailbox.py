"""A queue that functions fill and people read: of the quarantines, dead letters, late entries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from tests.simulation.faults import Fault
from tests.simulation.process import Process
from tests.simulation.queue import as_client_error

URL: Final = "mailbox"
_BATCH: Final = 10
_SECOND_MS: Final = 1_000


@dataclass(slots=True)
class Letter:
    """A message, and until when a reader hides it from others."""

    body: str
    hidden_until_ms: float = 0.0


@dataclass(eq=False)
class Mailbox:
    """The queue.

    Attributes:
        note: told of each message as it is taken.
        letters: by receipt, what lies there.
    """

    note: Callable[[str], None] = lambda _body: None
    letters: dict[str, Letter] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def bodies(self) -> list[str]:
        """What lies there, hidden or not."""
        return [letter.body for letter in self.letters.values()]

    def put(self, body: str) -> str:
        """One more message."""
        self.note(body)
        receipt = f"receipt {next(self._numbers)}"
        self.letters[receipt] = Letter(body)
        return receipt


@dataclass
class MailboxClient:
    """SQS, as one process reaches such a queue."""

    mailbox: Mailbox
    process: Process

    def send_message(self, MessageBody: str, **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Put a message; it may be there twice."""

        def request() -> dict[str, Any]:
            if self.process.world.faults.strikes(Fault.DUPLICATE, self.process.acting):
                self.mailbox.put(MessageBody)
            return {"MessageId": self.mailbox.put(MessageBody)}

        return self._write("SendMessage", request)

    def receive_message(self, VisibilityTimeout: int, **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Some of those that nobody hides, in no order."""

        def request() -> dict[str, Any]:
            now_ms = self.process.world.schedule.now_ms
            letters = self.mailbox.letters
            found = [one for one in letters if letters[one].hidden_until_ms <= now_ms]
            self.process.world.random.shuffle(found)
            for one in found[:_BATCH]:
                # Now and then one goes on showing.
                if not self.process.world.faults.strikes(Fault.DUPLICATE, self.process.acting):
                    letters[one].hidden_until_ms = now_ms + VisibilityTimeout * _SECOND_MS
            shown = [
                {"MessageId": one, "ReceiptHandle": one, "Body": letters[one].body}
                for one in found[:_BATCH]
            ]
            return {"Messages": shown} if shown else {}

        return self._write("ReceiveMessage", request)

    def delete_message(self, ReceiptHandle: str, **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Take a message out; one that is gone is no error."""

        def request() -> dict[str, Any]:
            self.mailbox.letters.pop(ReceiptHandle, None)
            return {}

        return self._write("DeleteMessage", request)

    def change_message_visibility(
        self,
        ReceiptHandle: str,  # noqa: N803 - theirs
        VisibilityTimeout: int,  # noqa: N803 - theirs
        **_: object,
    ) -> dict[str, Any]:
        """Show a message to others again, then."""

        def request() -> dict[str, Any]:
            if ReceiptHandle in self.mailbox.letters:
                now_ms = self.process.world.schedule.now_ms
                shows_ms = now_ms + VisibilityTimeout * _SECOND_MS
                self.mailbox.letters[ReceiptHandle].hidden_until_ms = shows_ms
            return {}

        return self._write("ChangeMessageVisibility", request)

    def _write(self, what: str, request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        answer: dict[str, Any] = as_client_error(
            lambda: self.process.write(what, request, attempts=4)
        )
        return answer
