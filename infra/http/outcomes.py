"""The outcomes of strict changes, holds and quotas as answers, or as problems."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from fastapi.responses import Response

from countledger.infra.http.calls import answered
from countledger.infra.http.problems import ProblemDetails, fields_of, title_of
from countledger.producers.quotas.outcome import Denied
from countledger.producers.strict import outcome as outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.infra.http.shapes import AnswerBody

# An outcome that is no success: its status, and when the same request may succeed.
REFUSALS: Final[Mapping[type, tuple[HTTPStatus, timedelta | None]]] = {
    outcomes.BoundReached: (HTTPStatus.CONFLICT, None),
    outcomes.SetFull: (HTTPStatus.CONFLICT, None),
    outcomes.Withdrawn: (HTTPStatus.CONFLICT, None),
    outcomes.HoldExpired: (HTTPStatus.CONFLICT, None),
    outcomes.HoldCancelled: (HTTPStatus.CONFLICT, None),
    outcomes.HoldConfirmed: (HTTPStatus.CONFLICT, None),
    outcomes.ExceedsHold: (HTTPStatus.CONFLICT, None),
    outcomes.Contended: (HTTPStatus.SERVICE_UNAVAILABLE, timedelta(seconds=1)),
    outcomes.Unknown: (HTTPStatus.GATEWAY_TIMEOUT, None),
    Denied: (HTTPStatus.TOO_MANY_REQUESTS, None),
}


def answer_of(outcome: object, models: Mapping[type, type[AnswerBody]]) -> Response:
    """The answer to a call with an outcome: by its model, else a problem with its fields.

    Args:
        outcome: of the library.
        models: of the outcomes that are successes.
    """
    if (model := models.get(type(outcome))) is not None:
        return answered(model.model_validate(outcome))
    return problem_of_outcome(outcome).response()


def problem_of_outcome(outcome: object) -> ProblemDetails:
    """The problem that a refusal is; its type is made of the name of the outcome."""
    kind = type(outcome)
    status, retry_after = REFUSALS[kind]
    title = title_of(kind)
    if isinstance(outcome, Denied):
        retry_after = outcome.retry_after
    fields = {name: one for name, one in fields_of(outcome).items() if name != "known"}
    return ProblemDetails(kind.__name__, title, status, title, fields, retry_after)
