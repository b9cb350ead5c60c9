"""The parameters and tags of a request that changes a stack: what is not given stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.ledger.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse parameters that a template has not.

    Raises:
        BadInput: naming the first of them, and those that there are.
    """
    names = set(known)
    strange = sorted(set(given) - names)
    if strange:
        raise BadInput(
            f"the template has no parameter {strange[0]!r}; it has {', '.join(sorted(names))}"
        )


def parameters_for(
    given: Mapping[str, str], existing: Mapping[str, Any] | None, known: Iterable[str]
) -> list[Any]:
    """What is given, and the kept value of every other one that both templates know.

    Args:
        given: values by name.
        existing: the described stack, if there is one.
        known: the names that the new template has.

    Raises:
        BadInput: the template has no such parameter.
    """
    known = set(known)
    refuse_unknown(given, known)
    before = (existing or {}).get("Parameters", [])
    kept = known & {one["ParameterKey"] for one in before} - given.keys()
    return [
        *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
        *({"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)),
    ]


def tags_for(given: Mapping[str, str], existing: Mapping[str, Any] | None) -> list[Any]:
    """What a request carries replaces all that were there: so it carries those, too."""
    before = {one["Key"]: one["Value"] for one in (existing or {}).get("Tags", [])}
    return [{"Key": key, "Value": value} for key, value in {**before, **given}.items()]
