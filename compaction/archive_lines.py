"""The content of an archived generation: how entries become lines, and lines entries again. Pure.

The checksum is of the lines and not of the compressed bytes, for these differ from one release of
zlib to the next, and a run may be resumed on another machine. How a line is written can never
change, for the same reason.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from countledger.ledger.attributes import decode, encode
from countledger.ledger.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attributes import Item


def lines_of(items: Iterable[Item]) -> bytes:
    """The lines of these items, the same in whatever order they are given."""
    ordered = sorted(items, key=lambda item: str(item["entry"]))
    return b"".join(_line(item) for item in ordered)


def checksum(lines: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(lines).hexdigest()


def items_in(lines: bytes, name: str) -> list[Item]:
    """The items in an object's lines.

    Raises:
        CorruptArchive: a line holds no item.
    """
    try:
        return [decode(_binaries(json.loads(line)["Item"])) for line in lines.splitlines()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptArchive(f"{name} holds a line that is no item: {error}") from error


def _line(item: Item) -> bytes:
    text = json.dumps(
        {"Item": _sorted(encode(item))}, sort_keys=True, separators=(",", ":"), default=_base64
    )
    return text.encode("ascii") + b"\n"


def _base64(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{value!r} is no value of an item")


def _sorted(value: Any) -> Any:  # noqa: ANN401 - of any depth
    """The same with the members of sets in one order; a list keeps its own."""
    if isinstance(value, dict):
        return {
            name: sorted(inner)
            if name in ("SS", "NS", "BS") and isinstance(inner, list)
            else _sorted(inner)
            for name, inner in value.items()
        }
    return [_sorted(inner) for inner in value] if isinstance(value, list) else value


def _binaries(value: Any) -> Any:  # noqa: ANN401 - of any depth
    """The same with binaries as bytes."""
    if isinstance(value, list):
        return [_binaries(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("B"), str) and len(value) == 1:
        return {"B": base64.b64decode(value["B"], validate=True)}
    if isinstance(value.get("BS"), list) and len(value) == 1:
        return {"BS": [base64.b64decode(one, validate=True) for one in value["BS"]]}
    return {name: _binaries(inner) for name, inner in value.items()}
