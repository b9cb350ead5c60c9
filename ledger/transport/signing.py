"""Signed requests: Signature Version 4 with a key that is derived once a day, not once a call.

Every request of the fast transport is a POST to `/` without a query, so its canonical form is a few
lines. The signature is the one that botocore makes for the same headers (a test compares them).
"""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_TOO: Final = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of one day, region, service and set of credentials.

    Attributes:
        credentials: as they were when the key was derived.
        day: as in `20261122`.
        scope: what the key is good for.
        signing: signs with the key; a copy of it takes half the time of a new one.
        access_key: the name of the credentials, in one line.
        token: the session token, in one line, or nothing.
    """

    credentials: ReadOnlyCredentials = field(repr=False)
    day: str
    scope: str
    signing: hmac.HMAC = field(repr=False)
    access_key: str
    token: str = field(repr=False)


class Signer:
    """Makes whole requests to one host. Safe to share between threads."""

    __slots__ = ("_fixed", "_host", "_key", "_kind", "_moment", "_region", "_service")

    def __init__(self, host: str, region: str, service: str, kind: str, user_agent: str) -> None:
        """Requests to a host.

        Args:
            host: as the header `Host` has it: with its port, unless that is the scheme's own.
            region: that the signature is for.
            service: the name of the service in signatures.
            kind: the content type of every request.
            user_agent: the header of that name.
        """
        self._host, self._region, self._service, self._kind = host, region, service, kind
        self._fixed = (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: {_one_line(user_agent)}\r\nContent-Type: {kind}\r\n"
        )
        self._key: _Key | None = None
        self._moment = 0, ""

    def request(
        self,
        credentials: ReadOnlyCredentials,
        target: str,
        body: bytes,
        extra: str = "",
    ) -> bytes:
        """A request, signed as of now; the service accepts it for a quarter of an hour.

        Args:
            credentials: whose they are; of one moment, as `get_frozen_credentials` returns them.
            target: the operation, as in `DynamoDB_20120810.PutItem`.
            body: its JSON.
            extra: more header lines, which are not signed; each ends with a line break.
        """
        date = self._date()
        key = self._key_of(credentials, date[:8])
        if key.token:
            signed = _SIGNED_TOO
            token_canonical = f"x-amz-security-token:{key.token}\n"
            token_header = f"X-Amz-Security-Token: {key.token}\r\n"
        else:
            signed, token_canonical, token_header = _SIGNED, "", ""
        canonical = (
            f"POST\n/\n\ncontent-type:{self._kind}\nhost:{self._host}\nx-amz-date:{date}\n"
            f"{token_canonical}x-amz-target:{target}\n\n{signed}\n{sha256(body).hexdigest()}"
        )
        digest = sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{date}\n{key.scope}\n{digest}"
        signing = key.signing.copy()
        signing.update(text.encode())
        signature = signing.hexdigest()
        head = (
            f"{self._fixed}X-Amz-Target: {target}\r\nX-Amz-Date: {date}\r\n{token_header}{extra}"
            f"Authorization: {_ALGORITHM} Credential={key.access_key}/{key.scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _date(self) -> str:
        second = int(time.time())
        known, date = self._moment
        if known != second:
            date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._moment = second, date
        return date

    def _key_of(self, credentials: ReadOnlyCredentials, day: str) -> _Key:
        """The key for today, derived again where the day or the credentials are others."""
        key = self._key
        if key is None or key.day != day or key.credentials != credentials:
            derived = f"AWS4{credentials.secret_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                derived = hmac.digest(derived, part.encode(), "sha256")
            key = self._key = _Key(
                credentials,
                day,
                f"{day}/{self._region}/{self._service}/aws4_request",
                hmac.new(derived, digestmod="sha256"),
                _one_line(credentials.access_key or ""),
                _one_line(credentials.token or ""),
            )
        return key


def _one_line(text: str) -> str:
    """A value of a header, as a signature sees it; a line break cannot begin another header."""
    return " ".join(text.split())
