"""Handlers that come while another thread looks which there are."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from countledger.ledger.transport.handlers import Handlers

LEAVING = "before-send.dynamodb.PutItem"
CHANGING = "before-call.dynamodb.PutItem"


class Meddling(Handlers):
    """Once it has looked, and before it notes what it found, another thread acts."""

    __slots__ = ("act", "at")
    act: Callable[[], object]
    at: str

    def _of(self, event: str, operation: str) -> Any:  # noqa: ANN401 - as the product's
        found = super()._of(event, operation)
        if self.at.startswith(event):
            act, self.act = self.act, lambda: None
            act()
        return found


@pytest.mark.parametrize("event", [LEAVING, CHANGING])
def test_a_handler_that_comes_during_a_look_is_not_missed(event: str) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1")
    handlers = Meddling(client)
    before = len(Handlers(client).before_send("PutItem"))

    def meanwhile() -> None:
        client.meta.events.register(event, lambda **_: None)
        look()

    def look() -> tuple[bool, int]:
        return handlers.allow("PutItem"), len(handlers.before_send("PutItem"))

    handlers.at, handlers.act = event, meanwhile
    look()

    assert look() == ((True, before + 1) if event == LEAVING else (False, before))
