"""The header `Idempotency-Key`: the `key=` of the library, with or without its time.

    Idempotency-Key: click-1
    Idempotency-Key: "click 1"
    Idempotency-Key: "click-1"; at="2026-01-31T12:00:00.000Z"
    Idempotency-Key: %"caf%c3%a9"; at="2026-01-31T12:00:00.000Z"

The value is a string of RFC 9651, or a display string for other characters than those of ASCII; a
key without quotes, spaces, commas and semicolons may be written as it is. With `at`, the identity
is the pair of the key and the time, as of an `IdempotencyKey`.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Request

from countledger import IdempotencyKey
from countledger.infra.http.problems import HEADER, HOW
from countledger.infra.http.shapes import Text, parse_time
from countledger.ledger.errors import BadKey, BadTime
from countledger.ledger.ids import check_key
from countledger.ledger.values import TIME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATTERN: Final = (
    r"^(?:"
    r'(?P<string>"(?:[ !#-\[\]-~]|\\["\\])+")'
    r'|(?P<display>%"(?:[ !#-$&-~]|%[0-9a-f]{2})+")'
    r"|(?P<plain>[!#-+\--:<-\[\]-~]+)"
    r")"
    rf'(?: *; *at="(?P<at>{TIME_PATTERN})")?$'
)
_MARK_BYTES: Final = 12
_match: Final = re.compile(_PATTERN).match


def parse_key(text: str) -> str | IdempotencyKey:
    """The key in a value of the header.

    Raises:
        BadKey, BadTime: it is none, or breaks the rule of keys or of their times.
    """
    found = _match(text)
    if found is None:
        raise BadKey(f"{HEADER} {text[:60]!r} cannot be read: write {HOW}")
    key = check_key(_unquoted(found))
    if found["at"] is None:
        return key
    try:
        return IdempotencyKey(key, parse_time(found["at"]))
    except BadTime:
        raise
    except ValueError as error:
        raise BadTime(f"{error}: it is the time of the key in {HEADER}") from None


# A pattern of JSON schema has no names in it.
_KeyHeader = Annotated[
    str | IdempotencyKey,
    Text(
        parse_key,
        re.sub(r"\?P<\w+>", "?:", _PATTERN),
        maxLength=4_096,
        description="what a retry repeats; see docs/http.md",
        examples=["click-1", '"click-1"; at="2026-01-31T12:00:00Z"'],
    ),
]


def key_of_part(key: str | IdempotencyKey, position: int) -> str | IdempotencyKey:
    """The key of a part of a request, made of the request's own.

    Raises:
        BadKey: with its position it is too long.
    """
    if isinstance(key, IdempotencyKey):
        return IdempotencyKey(f"{key.key}#{position}", key.at)
    return check_key(f"{key}#{position}")


def key_of_namespaces(key: str | IdempotencyKey, namespaces: Iterable[str]) -> str | IdempotencyKey:
    """The key of a request that changes counters of these namespaces.

    The key of several counters is one of the whole stack. Here it belongs to the namespaces, which
    the caller may write: a caller with other scopes neither meets nor occupies it.

    Raises:
        BadKey: with the mark of the namespaces it is too long.
    """
    mark = blake2b(" ".join(sorted(set(namespaces))).encode(), digest_size=_MARK_BYTES).hexdigest()
    if isinstance(key, IdempotencyKey):
        return IdempotencyKey(f"{mark}#{key.key}", key.at)
    return check_key(f"{mark}#{key}")


def _unquoted(found: re.Match[str]) -> str:
    if found["string"]:
        return re.sub(r"\\(.)", r"\1", found["string"][1:-1])
    if found["display"]:
        try:
            return unquote_to_bytes(found["display"][2:-1]).decode()
        except UnicodeDecodeError:
            raise BadKey(f"{HEADER} {found['display'][:60]!r} is no UTF-8") from None
    return found["plain"]


async def _one(request: Request) -> None:
    """Refuse two headers: hosts differ in which of them they take."""
    if len(request.headers.getlist(HEADER)) > 1:
        raise BadKey(f"the request has {HEADER} more than once: send one")


async def _given(
    key: Annotated[_KeyHeader, Header(alias=HEADER)], _: Annotated[None, Depends(_one)]
) -> str | IdempotencyKey:
    return key


async def _perhaps(
    _: Annotated[None, Depends(_one)],
    key: Annotated[_KeyHeader | None, Header(alias=HEADER)] = None,
) -> str | IdempotencyKey | None:
    return key


RequiredKey = Annotated[str | IdempotencyKey, Depends(_given)]
OptionalKey = Annotated[str | IdempotencyKey | None, Depends(_perhaps)]
