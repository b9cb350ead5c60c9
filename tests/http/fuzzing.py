"""Requests derived from the OpenAPI document, valid ones and others, by schemathesis."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat, takewhile
from typing import Any, Final
from urllib.parse import unquote

import schemathesis
from fastapi import Request
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from countledger.infra.calls.access import EVERYTHING, NotAuthenticated, Scopes
from tests.http.world import Api

_TOKEN: Final = "Bearer right"  # noqa: S105 - of a test
# What a stack in memory does not have, such as strict counters over regions.
_NOT_THERE: Final = b":not-in-memory"
# Its calls of other services need a whole stack.
LEFT_OUT: Final = "status"
_CONFIG: Final[dict[str, Any]] = {
    "headers": {"Authorization": _TOKEN},
    "checks": {
        # What no schema can say (bounds that cross, a key whose time is over) is a problem of a
        # type of its own: the check below holds that.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "304", "404", "409", "422", "429", "5xx"]
        },
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "404", "405", "409", "413", "414", "422", "5xx"]
        },
    },
}


_ALL: Final[Mapping[str, object]] = {}


@dataclass
class Found:
    """What a run has found.

    Attributes:
        cases: how many requests were sent.
        operations: those that were sent.
        failures: each with its check and its request.
    """

    cases: int = 0
    operations: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def fuzz(api: Api, examples: int, seed: int = 1, coverage: Mapping[str, object] = _ALL) -> Found:
    """Send requests of every kind, alone and one after another.

    Args:
        api: where; its callers need a token from now on.
        examples: how many for each operation and each way to derive them, about.
        seed: of what is drawn.
        coverage: settings of the phase that tries each boundary of the document once.
    """
    api.app.state.authorize = _authorize
    settings = {
        "seed": seed,
        "generation": {"max-examples": examples},
        "phases": {"coverage": dict(coverage)},
    }
    config = SchemathesisConfig.from_dict({**_CONFIG, **settings})
    whole = schemathesis.openapi.from_asgi("/v1/openapi.json", api.app, config=config)
    schema = whole.exclude(operation_id=LEFT_OUT)
    found = Found()
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                _read(event, found)
            case events.NonFatalError():
                found.failures.append(f"{event.label}: {event.info}")
            case events.FatalError():
                found.failures.append(str(event.exception))
    return found


def _read(event: events.ScenarioFinished, found: Found) -> None:
    recorder = event.recorder
    found.cases += len(recorder.interactions)
    for case in recorder.cases.values():
        found.operations.add(str(case.value.operation.definition.raw["operationId"]))
    for case_id, checks in recorder.checks.items():
        response = recorder.interactions[case_id].response
        if response is not None and _NOT_THERE in response.content:
            continue
        for check in checks:
            if (failed := check.failure_info) is None:
                continue
            if check.name != "use_after_free" or not _was_made_again(recorder, case_id):
                found.failures.append(f"{check.name}: {failed.failure}\n{failed.code_sample}")


def _was_made_again(recorder: ScenarioRecorder, case_id: str) -> bool:
    """Whether another request has made what was deleted: names are the callers' choice."""
    path = unquote(str(recorder.interactions[case_id].request.uri))
    for earlier in reversed([*takewhile(case_id.__ne__, recorder.interactions)]):
        interaction = recorder.interactions[earlier]
        request, response = interaction.request, interaction.response
        found = unquote(str(request.uri))
        if request.method == "DELETE" and found == path:
            return False
        made = request.method == "POST" and response is not None and response.status_code < 300
        if made and (found.startswith(path + "/") or _names(request.body, path)):
            return True
    return False


def _names(body: bytes | None, path: str) -> bool:
    """Whether a body has the name at the end of a path."""
    try:
        given = json.loads(body or b"{}")
    except ValueError:
        return False
    return isinstance(given, dict) and path.rpartition("/")[2] in given.values()


def _authorize(request: Request) -> Scopes:
    if request.headers.get("authorization") != _TOKEN:
        raise NotAuthenticated("the token is not right")
    return EVERYTHING


@schemathesis.check
def a_valid_request_is_refused_by_a_rule_with_a_name(
    _context: schemathesis.CheckContext,
    response: schemathesis.Response,
    case: schemathesis.Case[Any],
) -> None:
    """A request that fits the document is never called malformed.

    But 1.0 is an integer of JSON schema, and none of this API. And what does not match the pattern
    of the document does not fit, whatever the API says of it: the generator has erred.
    """
    mode = case.meta.generation.mode if case.meta else None
    if mode is not schemathesis.GenerationMode.POSITIVE or response.status_code != 422:
        return
    problem = response.json()
    unnamed = [one for one in problem.get("errors", ()) if one["type"].endswith(":bad-request")]
    if not all(map(_fits, case.operation.definition.raw.get("parameters", ()), repeat(case))):
        return
    for one in unnamed:
        assert any(word in one["says"] for word in ("valid integer", "does not match ")), problem


def _fits(parameter: Mapping[str, Any], case: schemathesis.Case[Any]) -> bool:
    """Whether a name in the path has the form that the document asks for."""
    if parameter["in"] != "path":
        return True
    name = unquote(str(case.path_parameters[parameter["name"]]))
    return bool(re.search(parameter["schema"].get("pattern", ""), name))
