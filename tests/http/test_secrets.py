"""Nothing of what a caller sends is in the log of the local server: no token, key or body."""

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.http.samples import OPEN, SAMPLES, Sample
from tests.http.world import Api, memory_api
from tests.unit.local_server.server import TOKEN, Server, running

_KEY: Final = "a-key-of-a-caller"
_NOTE: Final = "a note of a caller"
_REFUSED: Final = (
    Sample("", "POST /v1/counters/likes:a/entries", "", {"delta": _NOTE}, _KEY),
    Sample("", "POST /v1/counters/likes:a/entries", "", {"delta": "1", "note": _NOTE}, _KEY),
    Sample("", "POST /v1/commits", "", {"ticket": _NOTE}, _KEY),
    Sample("", "GET /v1/counters/likes:a?cursor=x", ""),
    Sample("", "GET /v1/nothing", ""),
)


@pytest.fixture
def api() -> Iterator[Api]:
    with memory_api() as made:
        yield made


def _texts(value: object) -> Iterator[str]:
    """The texts in a body, but those that a log may have as words of its own."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str) and len(value) > len("marker"):
        yield value


def _send_all(server: Server) -> list[str]:
    """Send each sample with a key of ours: everything that the log must not have."""
    kept: dict[str, str] = {}
    secrets = [TOKEN, _KEY, _NOTE]
    for sample in (*SAMPLES, *OPEN, *_REFUSED):
        if sample.operation == "status":
            continue
        method, path, headers, body = sample.request_with(kept)
        given: Any = {"Content_Type": "application/json"}
        if headers:
            given["Idempotency_Key"] = f"{_KEY}-{headers['Idempotency-Key']}"
        content = None if body is None else json.dumps(body).encode()
        answer = server.ask(path, method, content, **given)
        if sample.keeps is not None:
            kept[sample.keeps[0]] = answer.document[sample.keeps[1]]
        secrets += _texts(body)
        # The address that signs a browser in has the token in its query.
        server.ask(f"/?token={TOKEN}", Authorization="")
    return [*secrets, *kept.values()]


def test_no_token_key_or_body_is_logged(
    api: Api, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    with running(api=api.app, allow_writes=True) as server:
        secrets = _send_all(server)
        server.ask("/v1/counters/a", Authorization=f"Bearer wrong-{TOKEN}")
    logged = "\n".join([*map(logging.Formatter().format, caplog.records), *capfd.readouterr()])

    assert len(secrets) > 15
    assert [one for one in secrets if one in logged] == []


def test_an_error_of_the_server_logs_where_and_not_what(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines of a traceback are code; its last one is the error, which names no request."""

    def broken(_names: object) -> Any:  # noqa: ANN401 - it returns nothing
        raise RuntimeError("broken")

    with running(api=api.app, allow_writes=True) as server:
        server.ask("/v1/totals?counter=likes:hidden")
        (client,) = api.clients
        client.totals = broken  # type: ignore[method-assign,assignment]  # a defect of ours
        failed = server.ask("/v1/totals?counter=likes:hidden")
    logged = "\n".join(map(logging.Formatter().format, caplog.records))

    assert failed.status == 500
    assert "RuntimeError: broken" in logged
    assert [one for one in (TOKEN, _KEY, "likes:hidden") if one in logged] == []
