"""Routes of sequences: create them, draw numbers that are given out once, delete them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from countledger.infra.calls.shapes import CounterPath, CounterText, InputBody, ShownTime, View
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.ledger.errors import NoSuchCounter
from countledger.ledger.limits import BLOCK_MAX

# Up to here a number of JSON is exact for every parser.
_FIRST_MAX: Final = 2**53 - 1

routes = APIRouter(route_class=CountedRoute, tags=["sequences"])


class NewSequence(InputBody):
    """A sequence with its first number."""

    sequence: CounterText
    first: Annotated[int, Field(ge=0, le=_FIRST_MAX)] = 1


class DrawInput(InputBody):
    """How many numbers to draw."""

    size: Annotated[int, Field(ge=1, le=BLOCK_MAX)] = 1


class SequenceAnswer(View):
    """The state of a sequence."""

    sequence: str
    last: int
    version: int
    updated_at: ShownTime | None


class DrawnAnswer(View):
    """The numbers from `first` to `last`, which no other call gets."""

    sequence: str
    first: int
    last: int


@routes.post("/v1/sequences", status_code=201, response_model=SequenceAnswer)
def create_sequence(body: NewSequence, call: Called) -> Response:
    """Create a sequence. One write unit, one read unit."""
    client = call.administers(body.sequence)
    made = client.sequences.create(body.sequence, first=body.first)
    return answered(SequenceAnswer.model_validate(made), 201)


@routes.get("/v1/sequences/{sequence}", response_model=SequenceAnswer)
def show_sequence(sequence: CounterPath, call: Called) -> Response:
    """The state of a sequence. One read unit."""
    found = call.reads(sequence).sequences.show(sequence)
    if not found.version:
        raise NoSuchCounter(f"nothing was ever drawn from sequence {sequence!r}")
    return answered(SequenceAnswer.model_validate(found))


@routes.post("/v1/sequences/{sequence}/numbers", response_model=DrawnAnswer)
def draw(sequence: CounterPath, body: DrawInput, call: Called) -> Response:
    """The next numbers. One write unit for any size.

    After a lost answer a retry draws others: there may be a gap, and never a number twice.
    """
    block = call.writes(sequence).sequences.draw_block(sequence, body.size)
    return answered(DrawnAnswer(sequence=sequence, first=block[0], last=block[-1]))


@routes.delete("/v1/sequences/{sequence}", status_code=204)
def delete_sequence(sequence: CounterPath, call: Called) -> Response:
    """Delete a sequence: its numbers are given out again. A read unit and a write unit."""
    call.administers(sequence).sequences.delete(sequence)
    return Response(status_code=204)
