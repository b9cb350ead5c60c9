"""The identity of an entry: it decides whether two writes are the same change.

- made here: a UUIDv7, which begins with the time, made once before the first attempt;
- of a key with its time (`IdempotencyKey`): the pair is the identity and begins with the time as
  well, so that its age is known and the change log stays in order;
- of a bare key: `k` and a hash of the key alone. It carries no time;
- of a range of another system's records (`RangeKey`): a key that is made of the range;
- of a message through Kinesis that carries an id: that id and the whole content are the identity,
  which begins with the time (`bound_id`). Another content under the same id is another entry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b, sha256
from os import urandom
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadCounterName, BadKey, BadSetting, BadTime, shown
from countledger.ledger.keys import check_namespace
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, KEY_MAX_BYTES, TIME_LIMIT_MS
from countledger.ledger.texts import (
    CONTROL,
    INVISIBLE,
    check_text,
    has_blank_ends,
    is_in_nfc,
    plain_int,
    plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


# Counter names of names from outside: paths, authors, URLs, the names of other systems.


# What a counter name may not hold, and what begins an encoded byte.
_ENCODED: Final = re.compile(f"[#%]|{CONTROL.pattern}|{INVISIBLE.pattern}")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
# No encoded byte begins with these: the empty name, and the mark of a digest.
_EMPTY: Final = "%"
_DIGEST_MARK: Final = "%~"
_DIGEST_BYTES: Final = len(_DIGEST_MARK) + 2 * sha256().digest_size
_NAMESPACE_MAX_BYTES: Final = COUNTER_NAME_MAX_BYTES - len(":") - _DIGEST_BYTES


def counter_name(namespace: str, name: str | bytes) -> str:
    """The name of the counter of something that is named outside: a path, an author, a URL.

    Every name has a valid counter name, and always the same one. Each byte of a character that a
    counter name may not hold is written as `%XX`, and so is `%` itself, a blank at an end, and a
    byte that is no UTF-8; of a name that is not in Unicode NFC, each byte that is not ASCII. All
    else is unchanged. The empty name is `%`. A name that is too long is cut, and `%~`
    and the SHA-256 of its bytes follow. So different names have different counters.

    Costs no request and no unit.

    Args:
        namespace: the namespace of the counter, at most 445 bytes of UTF-8.
        name: bytes, or text, which has the counter of its UTF-8 bytes; of any size. A surrogate of
            `os.fsdecode` is the byte that it stands for.

    Raises:
        BadSetting: the namespace is invalid or too long.
        BadCounterName: the name is not text or bytes, or has a surrogate that is no byte.
    """
    namespace = check_namespace(namespace)
    size = len(namespace.encode())
    if size > _NAMESPACE_MAX_BYTES:
        raise BadSetting(
            f"namespace {shown(namespace)} is {size} bytes long; before a name from outside at "
            f"most {_NAMESPACE_MAX_BYTES} fit"
        )
    content = _bytes_of(name)
    # Each byte of a name takes at least one in the counter's: no more of them can be needed.
    start = content[: COUNTER_NAME_MAX_BYTES + 1].decode("utf-8", "surrogateescape")
    rest = _ENCODED.sub(lambda found: _encoded(found[0]), start) or _EMPTY
    if not is_in_nfc(rest):
        rest = _NOT_ASCII.sub(lambda found: _encoded(found[0]), rest)
    if has_blank_ends(rest[0]):
        rest = _encoded(rest[0]) + rest[1:]
    if has_blank_ends(rest[-1]):
        rest = rest[:-1] + _encoded(rest[-1])
    limit = COUNTER_NAME_MAX_BYTES - size - len(":")
    if len(rest.encode()) > limit:
        kept = rest.encode()[: limit - _DIGEST_BYTES].decode(errors="ignore")
        # No encoded byte is cut in half.
        kept = re.sub("%[0-9A-F]?$", "", kept)
        rest = f"{kept}{_DIGEST_MARK}{sha256(content).hexdigest()}"
    return f"{namespace}:{rest}"


def _bytes_of(name: str | bytes) -> bytes:
    if isinstance(name, bytes):
        return name
    if not isinstance(name, str):
        raise BadCounterName(
            f"name {shown(name)} is a {type(name).__name__}: give text or bytes for a counter name"
        )
    name = plain_text(name)
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadCounterName(
            f"name {shown(name)} has the surrogate {name[error.start]!r}, which is no byte: give "
            "the bytes of the name"
        ) from None


def _encoded(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))


BARE_KEY_PREFIX: Final = "k"
_HASH_HEAD_BITS: Final = 12
_HASH_TAIL_BITS: Final = 62
# With two positions of 128 digits (of Kinesis they have 56) a key is within its 1,024 bytes.
_SOURCE_MAX_BYTES: Final = 766
_POSITION_LIMIT: Final = 10**128
# 74 of their bits are used.
_RANDOM_BYTES: Final = 10
_VARIANTS: Final = "89ab"
_LAST_DIGITS: Final = tuple(f"{number:02x}" for number in range(256))


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key together with the time when the caller made it: identity is the pair.

    Attributes:
        key: 1 to 1,024 bytes of UTF-8 in NFC, without blanks at its ends, control characters and
            others that cannot be seen.
        at: the moment the key was made, aware; a retry gives the same one. It is kept in UTC, and
            what is finer than a millisecond is cut off.

    Raises:
        BadKey: the key breaks its grammar.
        BadTime: the time is naive or before 1970.
    """

    key: str
    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", check_key(self.key))
        at_ms = to_ms(self.at)
        if not 0 <= at_ms < TIME_LIMIT_MS:
            raise BadTime(f"time {shown(self.at)} of key {shown(self.key)} is before 1970")
        object.__setattr__(self, "at", to_datetime(at_ms))

    @property
    def at_ms(self) -> int:
        """The time in milliseconds since the epoch."""
        return to_ms(self.at)


@dataclass(frozen=True, slots=True)
class RangeKey:
    """The key of an entry that sums a range of another system's records.

    A stream engine that restarts from its checkpoint reads records again. If it sums the same
    ranges again, it emits the same keys, and the entries are duplicates: they do not count twice.
    So `first` and `last` must follow from the records alone (blocks of 1,000 offsets), never from a
    clock or from when a batch happened to end. One range may have an entry in many counters.

    Attributes:
        source: which sequence of records, for example topic and partition; 1 to 766 bytes of
            UTF-8 without control characters.
        first: the position of the first record, 0 or more.
        last: the position of the last record, `first` or more.
        at: a time that follows from the records as well, for example that of the first one; aware.
            With it, a replay after the horizon is refused (`KeyExpired`) and cannot count twice.
            Without it, the key is a bare key, which is remembered for at least the horizon.

    Raises:
        BadKey: a part breaks its rule.
        BadTime: the time is naive or before 1970.
    """

    source: str
    first: int
    last: int
    at: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", check_key(self.source))
        size = len(self.source.encode())
        if size > _SOURCE_MAX_BYTES:
            raise BadKey(
                f"source {shown(self.source)} of a range is {size} bytes long; at most "
                f"{_SOURCE_MAX_BYTES} fit"
            )
        for name, position in (("first", self.first), ("last", self.last)):
            whole = plain_int(position)
            if whole is None or not 0 <= whole < _POSITION_LIMIT:
                raise BadKey(
                    f"{name} {shown(position)} of a range is not an int from 0 to 128 digits"
                )
            object.__setattr__(self, name, whole)
        if self.last < self.first:
            raise BadKey(f"range {self.first} to {self.last} is empty: last is before first")
        if self.at is not None:
            object.__setattr__(self, "at", to_datetime(to_ms(self.at)))
        self.idempotency_key()

    def idempotency_key(self) -> str | IdempotencyKey:
        """The key that the entry gets; the same range always gives the same one."""
        key = f"{self.source}#{self.first}-{self.last}"
        return key if self.at is None else IdempotencyKey(key, self.at)


def check_key(key: object) -> str:
    """The idempotency key; BadKey if it breaks a rule."""
    if key == "":
        raise BadKey("idempotency key is empty: leave it out, or give one that a retry repeats")
    return check_text("idempotency key", key, KEY_MAX_BYTES, BadKey)


def new_id(at_ms: int) -> str:
    """A new UUIDv7 of that millisecond; no two processes make the same one.

    Its random part is the kernel's, and not of a generator in this process's memory: that would go
    on alike in a fork, and in each copy of a memory image (Lambda SnapStart, a restored machine).
    """
    time, tail = f"{at_ms:012x}", urandom(_RANDOM_BYTES).hex()
    variant = _VARIANTS[int(tail[3], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{tail[:3]}-{variant}{tail[4:7]}-{tail[7:19]}"


def new_ids(at_ms: int, count: int) -> list[str]:
    """So many new UUIDv7s of that millisecond, in their order.

    Up to 256 of them count on from one random id, in its last two digits: this takes a fifth of the
    time. Ids of two calls differ by the other 66 random bits.
    """
    ids: list[str] = []
    for first in range(0, count, len(_LAST_DIGITS)):
        head = new_id(at_ms)[:-2]
        ids += map(head.__add__, _LAST_DIGITS[: count - first])
    return ids


def unique_id() -> str:
    """32 random digits that nobody else makes; they say nothing of the time."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Ids:
    """Where new ids come from."""

    new_id: Callable[[int], str] = new_id
    new_ids: Callable[[int, int], list[str]] = new_ids
    unique_id: Callable[[], str] = unique_id


def id_of_key(key: str | IdempotencyKey) -> str:
    """The id of a key, always the same one."""
    if isinstance(key, IdempotencyKey):
        return _timed_id(key.key, key.at_ms)
    return BARE_KEY_PREFIX + blake2b(key.encode(), digest_size=16, person=b"bare key").hexdigest()


def bound_id(content: bytes, at_ms: int) -> str:
    """The id of a content of that millisecond; another content with this id cannot be found.

    The content holds an id that was made once, so that two equal changes are two entries.
    """
    return _hashed_id(content, at_ms, b"bound id")


def first_id_of(at_ms: int) -> str:
    """What is before every id of that millisecond, and after every id of an earlier one."""
    text = f"{min(max(at_ms, 0), TIME_LIMIT_MS - 1):012x}"
    return f"{text[:8]}-{text[8:]}"


def _timed_id(key: str, at_ms: int) -> str:
    return _hashed_id(at_ms.to_bytes(6) + key.encode(), at_ms, b"timed key")


def _hashed_id(message: bytes, at_ms: int, person: bytes) -> str:
    """A UUIDv8: 48 bits of time, 74 bits of a hash."""
    digest = int.from_bytes(blake2b(message, digest_size=16, person=person).digest())
    head = digest & ((1 << _HASH_HEAD_BITS) - 1)
    tail = (digest >> _HASH_HEAD_BITS) & ((1 << _HASH_TAIL_BITS) - 1)
    text = f"{at_ms << 80 | 8 << 76 | head << 64 | 0b10 << 62 | tail:032x}"
    # As `str` of a UUID, in a fifth of the time.
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
