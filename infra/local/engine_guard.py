"""Before the embedded engine: it answers only programs that know its secret.

The engine runs the code of every function that is created on it, and every user of the machine and
every web page in its browsers reach its port. So a request passes if it is addressed to loopback,
does not come from a browser, and is signed by keys that the engine gave out. The secret of the root
user is made by the process that starts the engine.

Imported by the engine's process alone.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from ministack.core.iam_evaluator import (
    AmbiguousAccessKeyError,
    ResolvedCredential,
    find_iam_access_key_account,
    is_root_access_key,
    resolve_credential,
)
from ministack.core.responses import set_request_account_id
from ministack.core.sigv4 import (
    HeaderSignature,
    decode_header_value,
    header_signature_failure,
    parse_header_signature,
    request_time_failure,
)

from countledger.infra.local.following import (
    LOOPBACK_HOSTS,
    PROOF_PATH,
    SECRET_HEADER,
    proof_of,
)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_BODY_MAX: Final = 256 << 20
_CHALLENGE_MAX: Final = 128
_HELP: Final = (
    'a program needs the environment that `countledger up` prints: eval "$(countledger up)"'
)


class EngineGuard:
    """An ASGI application before the engine's own."""

    def __init__(self, app: App, *, secret: str, port: int, account: str) -> None:
        """Guard an engine; the id of its account is the access key of its root user."""
        self._app, self._secret, self._port, self._account = app, secret, port, account

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        refusal = _elsewhere(headers)
        if refusal is None and self._knows_secret(headers):
            # Also with an Origin: no page knows the secret.
            await self._app(_without_secret(scope), receive, send)
            return
        refusal = refusal or _from_browser(headers)
        if refusal is None and scope["path"] == PROOF_PATH:
            challenge = scope["query_string"][:_CHALLENGE_MAX].decode("latin-1")
            proof = proof_of(self._secret, self._port, challenge)
            await _answer(send, HTTPStatus.OK, "text/plain", proof)
        elif refusal is None and _is_public(scope):
            await self._app(scope, receive, send)
        else:
            await self._answer_signed(scope, headers, refusal, receive, send)

    async def _answer_signed(
        self,
        scope: Message,
        headers: dict[str, str],
        refusal: str | None,
        receive: Receive,
        send: Send,
    ) -> None:
        """Let the engine answer a request if it is signed, unless there is a reason against it."""
        signature = parse_header_signature(headers)
        secret = None if refusal else self._secret_of(signature, headers)
        if refusal is None and secret is not None and isinstance(signature, HeaderSignature):
            body = await _whole(receive)
            if body is None:
                return
            query = parse_qs(scope.get("query_string", b"").decode(), keep_blank_values=True)
            path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
            failure = header_signature_failure(
                signature, secret, scope["method"], path, query, headers, body
            )
            if failure is None:
                await self._app(scope, _again(body, receive), send)
                return
        await _refuse(send, headers, refusal)

    def _knows_secret(self, headers: dict[str, str]) -> bool:
        """Whether it carries the secret itself: for calls that no key of AWS signs."""
        given = headers.get(SECRET_HEADER, "")
        return hmac.compare_digest(given.encode(), self._secret.encode())

    def _secret_of(
        self, signature: HeaderSignature | tuple[str, str], headers: dict[str, str]
    ) -> str | None:
        """The secret that must have signed it; None: it names no keys that are valid now."""
        if not isinstance(signature, HeaderSignature) or signature.region_set is not None:
            return None
        if request_time_failure(signature) is not None:
            return None
        key = signature.access_key_id
        if is_root_access_key(key):
            return self._secret if key == self._account else None
        set_request_account_id(self._account)
        token = headers.get("x-amz-security-token", "")
        try:
            account = find_iam_access_key_account(key) or self._account
            found = resolve_credential(key, account, token)
        except AmbiguousAccessKeyError:
            return None
        return found.secret_access_key if isinstance(found, ResolvedCredential) else None


def _headers(scope: Message) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in scope.get("headers", ()):
        name, text = raw.decode("latin-1").lower(), decode_header_value(value)
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _without_secret(scope: Message) -> Message:
    """A request as its receiver may see it: functions get the headers of calls of an API."""
    kept = [one for one in scope["headers"] if one[0].lower() != SECRET_HEADER.encode()]
    return {**scope, "headers": kept}


def _elsewhere(headers: dict[str, str]) -> str | None:
    """Why a request is not addressed to loopback; None: it is."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        host = None
    if host not in LOOPBACK_HOSTS:
        return f"the header Host is {headers.get('host', '')!r}, and not an address of loopback"
    return None


def _from_browser(headers: dict[str, str]) -> str | None:
    """Why a request comes from a page in a browser; None: it does not."""
    sent = [name for name in headers if name in {"origin", "referer"} or name.startswith("sec-")]
    return f"a browser sent it (header {sent[0]})" if sent else None


async def _whole(receive: Receive) -> bytes | None:
    """The body; None: the client left, or it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _BODY_MAX:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What receives a body that was read already."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


def _is_public(scope: Message) -> bool:
    """Whether it reads the keys that tokens are checked with, as the engine's own gateway does."""
    public = scope["path"].rpartition("/.well-known/")[2] in {
        "jwks.json",
        "openid-configuration",
    }
    return scope["method"] == "GET" and "/.well-known/" in scope["path"] and public


async def _refuse(send: Send, headers: dict[str, str], reason: str | None) -> None:
    """Refuse in the form that an SDK of the called service reads; no reason: the signature."""
    in_json = "x-amz-target" in headers or "json" in headers.get("content-type", "")
    if reason is not None:
        code = "AccessDeniedException"
    else:
        code = "InvalidSignatureException" if in_json else "SignatureDoesNotMatch"
        reason = f"it is not signed by keys of this engine; {_HELP}"
    text = f"this engine of countledger refuses the request: {reason}"
    if in_json:
        kind, body = "application/x-amz-json-1.0", json.dumps({"__type": code, "message": text})
    else:
        kind = "text/xml"
        error = f"<Error><Code>{code}</Code><Message>{escape(text)}</Message></Error>"
        body = f"<ErrorResponse>{error}</ErrorResponse>"
    await _answer(send, HTTPStatus.FORBIDDEN, kind, body, (b"x-amzn-errortype", code.encode()))


async def _answer(
    send: Send, status: HTTPStatus, kind: str, text: str, *more: tuple[bytes, bytes]
) -> None:
    body = text.encode()
    fields = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"date", formatdate(usegmt=True).encode()),  # a caller with a wrong clock sees it
        *more,
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": fields})
    await send({"type": "http.response.body", "body": body})


def guarded(app: App) -> EngineGuard:
    """The engine of this process, guarded by what its environment says."""
    return EngineGuard(
        app,
        secret=os.environ["AWS_SECRET_ACCESS_KEY"],
        port=int(os.environ["GATEWAY_PORT"]),
        account=os.environ["AWS_ACCESS_KEY_ID"],
    )
