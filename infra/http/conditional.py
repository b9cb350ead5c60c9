"""Conditional requests: an answer has a tag, and a client that has it already gets no body."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Header
from fastapi.responses import Response

from countledger.infra.http.calls import answered

if TYPE_CHECKING:
    from countledger.infra.http.shapes import AnswerBody

_DIGEST_BYTES: Final = 12

IfNoneMatch = Annotated[
    str | None,
    Header(description="tags of answers that the client has", max_length=4_096),
]
UNCHANGED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "the answer is the one that the client has"}
}


def answered_if_changed(body: AnswerBody, if_none_match: str | None) -> Response:
    """The answer with its tag; without its body, if the client has it."""
    response: Response = answered(body)
    tag = f'"{blake2b(response.body, digest_size=_DIGEST_BYTES).hexdigest()}"'
    # Compared as RFC 9110 says: a tag that a proxy has made weak is the same answer.
    known = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    if tag in known or known == ["*"]:
        response = Response(status_code=304)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response
