"""Before the embedded engine: it answers only programs that know its secret.

The engine runs the code of every function that is created on it, and every user of the machine and
every web page in its browsers reach its port. So a request passes if it is addressed to loopback,
does not come from a browser, and is signed by keys that the engine gave out. The secret of the root
user is made by the process that starts the engine.

Imported by the engine's process alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
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

from countledger.ledger.errors import BadSetting, SetupError
from countledger.ledger.settings import LOCAL_STACK_ENDED

# Which local stack a command works on: what `up` wrote down, for shells that do not name one.
#
# The environment wins. It is only completed where it names no AWS at all, and corrected where it
# names a local stack that has ended since: another `up` may have taken another port. No command
# calls a program that listens on the port of a stack that has ended: an engine proves that it
# knows the secret in the environment. The proof names the port, so that no other program can have
# it made by an engine elsewhere.


PROOF_PATH: Final = "/_countledger/proof"
# A header for calls that no key of AWS signs, such as those of a client with a bearer token.
SECRET_HEADER: Final = "countledger-engine-secret"  # noqa: S105 - a name
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
# By this a secret of an embedded engine is known from one of AWS or of another engine.
_PREFIX: Final = "countledger-local-"
_SECRET_BYTES: Final = 32
_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 4_096

STATE_FILE: Final = "state.json"
_STACK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
# They say nothing about where AWS is.
_NEUTRAL: Final = frozenset(
    {"COUNTLEDGER_STACK_NAME", "COUNTLEDGER_DEBUG", "COUNTLEDGER_TRANSPORT"}
)


class LocalStackEnded(SetupError):
    """The environment names a local stack that has ended."""


def directory_of(stack_name: str) -> Path:
    """The private directory of a local stack in the background.

    Raises:
        BadSetting: no name for a stack.
    """
    if not _STACK_NAME.fullmatch(stack_name):
        raise BadSetting(
            f"stack name {stack_name!r}: letters, digits and hyphens, a letter first, up to 128"
        )
    # Resolved, as the processes see it in their environment.
    return Path(tempfile.gettempdir()).resolve() / f"countledger-{os.getuid()}-{stack_name}"


def followed(environment: Mapping[str, str], stack_name: str) -> dict[str, str]:
    """What a command needs in its environment to work on the local stack; empty: nothing.

    Args:
        environment: of the command.
        stack_name: which stack it is about.

    Raises:
        LocalStackEnded: the environment names a local stack that has ended, and none runs now.
    """
    printed = names_an_engine(environment)
    if not printed and ("AWS_ENDPOINT_URL" in environment or _names_aws(environment)):
        return {}
    if printed and proves(environment):
        return {}
    running = _written_down(stack_name)
    if proves(running):
        return running
    check_it_is_ours(environment)
    return {}


def check_it_is_ours(environment: Mapping[str, str]) -> None:
    """Refuse the endpoint of a local stack that has ended: another program may listen there.

    Raises:
        LocalStackEnded: the environment names such a stack.
    """
    printed = names_an_engine(environment)
    if printed and not proves(environment):
        raise LocalStackEnded(
            f"the local stack on {environment.get('AWS_ENDPOINT_URL')} has ended (a program that "
            f"answers there is another one): {LOCAL_STACK_ENDED}"
        )


def _names_aws(environment: Mapping[str, str]) -> bool:
    """Whether a variable, or a configuration file of the user, says where AWS is."""
    if any(
        name.startswith(("AWS_", "COUNTLEDGER_")) and name not in _NEUTRAL for name in environment
    ):
        return True
    home = Path(environment.get("HOME", "~")).expanduser()
    return any((home / ".aws" / name).exists() for name in ("config", "credentials"))


def _written_down(stack_name: str) -> dict[str, str]:
    """The environment of the local stack that runs, or did; empty: none did."""
    try:
        directory = directory_of(stack_name)
        found = directory.lstat()
        # Another user who can write there could name an endpoint of their own.
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.getuid():
            return {}
        state: Any = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in state.get("environment", {}).items()}


# ---- how an engine proves that it has the secret of this environment ----


def new_secret() -> str:
    """A secret of a new engine's root user: 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def names_an_engine(environment: Mapping[str, str]) -> bool:
    """Whether an environment was printed for an embedded engine, which may have ended since."""
    return _place(environment) is not None


def _place(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port of the embedded engine that it names, if any."""
    try:
        found = urlsplit(environment.get("AWS_ENDPOINT_URL", ""))
        host, port = found.hostname, found.port
    except ValueError:
        return None
    ours = environment.get("AWS_SECRET_ACCESS_KEY", "").startswith(_PREFIX)
    return (host, port) if ours and host in LOOPBACK_HOSTS and port is not None else None


def proof_of(secret: str, port: int, challenge: str) -> str:
    """What an engine answers to a challenge."""
    text = f"countledger engine on port {port}: {challenge}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def proves(environment: Mapping[str, str]) -> bool:
    """Whether the engine that an environment names answers, and knows the secret in it.

    One request over loopback; the secret is not sent.
    """
    place = _place(environment)
    if place is None:
        return False
    (host, port), secret = place, environment["AWS_SECRET_ACCESS_KEY"]
    challenge = secrets.token_hex(_SECRET_BYTES)
    request = (
        f"GET {PROOF_PATH}?{challenge} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    )
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _TIMEOUT_S) as asked:
        asked.sendall(f"{request}\r\n".encode())
        deadline_s = time.monotonic() + _TIMEOUT_S
        while len(answer) < _ANSWER_MAX and time.monotonic() < deadline_s:
            part = asked.recv(_ANSWER_MAX)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return b" 200 " in head[:16] and hmac.compare_digest(
        body.strip(), proof_of(secret, port, challenge).encode()
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
        """Guard an engine.

        Args:
            app: the engine.
            secret: of its root user.
            port: that it listens on.
            account: the id of its account, which is the access key of the root user.
        """
        self._app, self._secret, self._port, self._account = app, secret, port, account

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or let the engine answer it."""
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
