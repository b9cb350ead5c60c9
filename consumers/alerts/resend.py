"""Dead letters sent again, to the target that did not take them.

A dead letter is deleted after its target has taken it. A crash between the two sends it a second
time, with the same id.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from countledger.consumers.alerts.dead_letters import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.alerts.dead_letters import QueueDeadLetters, Received
    from countledger.consumers.alerts.delivery import Publisher


@dataclass(frozen=True, slots=True)
class Resent:
    """What became of a dead letter.

    Attributes:
        dead_letter: as it lay there, or None where it could not be read.
        reason: why it still lies there; None: its target took it.
    """

    dead_letter: DeadLetter | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resender:
    """Sends dead letters again.

    Attributes:
        letters: the queue.
        publisher: takes them to their targets.
    """

    letters: QueueDeadLetters
    publisher: Publisher

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send each dead letter once, as the outcomes are taken; what fails again stays.

        Args:
            limit: how many at the most; None for all.
        """
        kept: list[Received] = []
        try:
            with closing(self.letters.receive()) as letters:
                for received in islice(letters, limit):
                    outcome = self._send(received)
                    if outcome.reason is None:
                        self.letters.delete(received)
                    else:
                        kept.append(received)
                    yield outcome
        finally:
            for received in kept:
                self.letters.put_back(received)

    def _send(self, received: Received) -> Resent:
        dead_letter = received.dead_letter
        if not isinstance(dead_letter, DeadLetter):
            return Resent(None, str(dead_letter))
        refused = self.publisher.publish([dead_letter.alert], dead_letter.target)
        return Resent(dead_letter, refused[0].reason if refused else None)
