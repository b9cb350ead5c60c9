"""Items and keys of an app's own tables as people type them: JSON, and NAME=VALUE."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NoReturn

from countledger.ledger.errors import BadItem, shown


def parse_item(what: str, text: str) -> dict[str, Any]:
    """An object of JSON; its numbers stay exact.

    Args:
        what: the option, for messages.
        text: as typed.

    Raises:
        BadItem: it is no JSON object.
    """
    try:
        item = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadItem(f"{what} {shown(text)} is no JSON object: {error}") from None
    if not isinstance(item, dict):
        raise BadItem(f"{what} {shown(text)} is no JSON object: give it as {{...}}")
    return item


def parse_key_part(what: str, text: str) -> tuple[str, str | int]:
    """Name and value of a key attribute: `post=p-1` is text, `post:=17` an integer.

    Raises:
        BadItem: it has neither form.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise BadItem(f"{what} {shown(text)} is not NAME=TEXT or NAME:=INTEGER")
    if not name.endswith(":"):
        return name, value
    try:
        return name.removesuffix(":"), int(value)
    except ValueError:
        raise BadItem(f"{what} {shown(text)}: {shown(value)} is no integer") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
