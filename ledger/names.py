"""Counter names of names from outside: paths, authors, URLs, the names of other systems."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from countledger.ledger.errors import BadCounterName, BadSetting, shown
from countledger.ledger.keys import check_namespace
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES
from countledger.ledger.texts import CONTROL, INVISIBLE, has_blank_ends, is_in_nfc, plain_text

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
