"""Which transport a process uses."""

from __future__ import annotations

from importlib.util import find_spec

from countledger.ledger.errors import SetupError


def is_fast(transport: str | None) -> bool:
    """Whether the calls on items take the fast transport: if its extra is installed, unless set.

    Args:
        transport: the setting: `boto3`, `fast`, or None.

    Raises:
        SetupError: the setting is `fast`, and the extra is not installed.
    """
    if transport == "boto3":
        return False
    if find_spec("orjson") is not None:
        return True
    if transport == "fast":
        raise SetupError(
            "the fast transport needs orjson: pip install 'countledger[fast]', or set "
            "COUNTLEDGER_TRANSPORT=boto3"
        )
    return False
