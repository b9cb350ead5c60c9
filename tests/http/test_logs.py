"""The log of the function has no token, no key and nothing that a body holds."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from countledger import CountLedger
from countledger.infra.http.api import http_app
from countledger.infra.http.functions import adapter_of, authorize
from tests.http.events import IAM, JWT, event_of
from tests.http.world import Api

_SECRETS = {
    "token": "TOKEN-OF-THE-CALLER",
    "key": "KEY-OF-THE-CHANGE",
    "amount": "4242424242",
    "note": "WORDS-OF-THE-NOTE",
}
_BODY = {"delta": _SECRETS["amount"], "note": {"who": _SECRETS["note"]}}
_HEADERS = {
    "authorization": f"Bearer {_SECRETS['token']}",
    "idempotency-key": _SECRETS["key"],
    "content-type": "application/json",
}
_PATH = "/v1/counters/likes:logged/entries"


@pytest.fixture
def written(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Callable[[], str]:
    """All that was logged, also where levels are lower than by default, or printed."""
    caplog.set_level(logging.DEBUG)

    def text() -> str:
        streams = capfd.readouterr()
        return f"{caplog.text}{streams.out}{streams.err}"

    return text


def _holds_no_secret(text: str) -> None:
    for secret in _SECRETS.values():
        assert secret not in text


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("authorizer", [JWT, IAM, None])
def test_the_function_logs_no_secret(
    api: Api, written: Callable[[], str], authorizer: object
) -> None:
    """Whether the request is answered or refused."""
    before, api.app.state.authorize = api.app.state.authorize, authorize
    bodies: list[dict[str, Any]] = [_BODY, {**_BODY, "delta": 4242424242}, {**_BODY, "more": 1}]
    for body in bodies:
        event = event_of("POST", _PATH, body, authorizer, **_HEADERS)
        adapter_of(api.app)(event, object())  # type: ignore[arg-type]  # not read
    api.app.state.authorize = before

    text = written()
    assert _PATH in text  # what the adapter logs is seen here
    _holds_no_secret(text)


@pytest.mark.usefixtures("loop")
def test_an_unexpected_error_is_logged_without_the_request(written: Callable[[], str]) -> None:
    def broken() -> CountLedger:
        raise RuntimeError("of the test")

    app = http_app(broken, authorize)
    event = event_of("POST", _PATH, _BODY, IAM, **_HEADERS)
    failed = adapter_of(app)(event, object())  # type: ignore[arg-type]  # not read

    assert failed["statusCode"] == 500
    text = written()
    assert "RuntimeError: of the test" in text
    _holds_no_secret(text)
