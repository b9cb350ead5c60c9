r"""How a name out of a git repository becomes a counter name: a pure, injective mapping.

Git's names are bytes; a counter name is UTF-8 of at most 512 bytes without `#` and control
characters. So the bytes that a counter name may not hold are written as `%XX`, and `%` itself as
`%25`; every other character stands for itself, so ordinary names read as they are:

    src/app.py          lines:src/app.py
    my notes.txt        lines:my notes.txt
    100%.md             lines:100%25.md
    a<TAB>b             lines:a%09b
    caf\xe9 (Latin-1)    lines:caf%E9
    (nothing)           commits:%
    (over 512 bytes)    lines:<as much as fits>%~<SHA-256 of the name's bytes, in hex>

No plain spelling holds a `%` that is not followed by two hex digits, so the last two forms
collide with no other name; two long names collide only if their SHA-256 does.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from countledger.ledger.keys import has_control_characters
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES

_NOTHING: Final = "%"
_SHORTENED: Final = "%~"


def counter_name(namespace: str, name: bytes) -> str:
    """The counter of a git name (a path, an author) in a namespace.

    Args:
        namespace: a namespace of this demo, a few ASCII letters.
        name: the bytes that git has.
    """
    pieces = [_spelled(char) for char in name.decode("utf-8", "surrogateescape")]
    rest = "".join(pieces) or _NOTHING
    room = COUNTER_NAME_MAX_BYTES - len(f"{namespace}:".encode())
    if len(rest.encode()) > room:
        digest = _SHORTENED + sha256(name).hexdigest()
        rest = _fitting(pieces, room - len(digest)) + digest
    return f"{namespace}:{rest}"


def _spelled(char: str) -> str:
    """One character as itself, or its bytes as `%XX` where a counter name may not hold it."""
    if char not in "%#" and not has_control_characters(char):
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))


def _fitting(pieces: list[str], room: int) -> str:
    """As many whole pieces from the front as fit into so many bytes."""
    kept: list[str] = []
    for piece in pieces:
        room -= len(piece.encode())
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept)
