"""Which local stack a command works on: what `up` wrote down, for shells that do not name one.

The environment wins. It is only completed where it names no AWS at all, and corrected where it
names a local stack that has ended since: another `up` may have taken another port. No command calls
a program that listens on the port of a stack that has ended: an engine proves that it knows the
secret in the environment. The proof names the port, so that no other program can have it made by an
engine elsewhere.
"""

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from countledger.ledger.errors import BadSetting, SetupError
from countledger.ledger.settings import LOCAL_STACK_ENDED

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
    """The private directory of a local stack in the background."""
    if not _STACK_NAME.fullmatch(stack_name):
        raise BadSetting(
            f"stack name {stack_name!r}: letters, digits and hyphens, a letter first, up to 128"
        )
    # Resolved, as the processes see it in their environment.
    return Path(tempfile.gettempdir()).resolve() / f"countledger-{os.getuid()}-{stack_name}"


def followed(environment: Mapping[str, str], stack_name: str) -> dict[str, str]:
    """What a command needs in its environment to work on the local stack; empty: nothing."""
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
    """Refuse the endpoint of a local stack that has ended: another program may listen there."""
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
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def names_an_engine(environment: Mapping[str, str]) -> bool:
    """Whether an environment was printed for an embedded engine, which may have ended since."""
    return _place(environment) is not None


def _place(environment: Mapping[str, str]) -> tuple[str, int] | None:
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
    """Whether an engine answers there and knows the secret, which is not sent: one request."""
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
