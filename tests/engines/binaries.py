"""Engines that are a program of their own, where they are installed."""

import os
from pathlib import Path
from typing import Final

DYNOXIDE_VARIABLE: Final = "COUNTLEDGER_DYNOXIDE"
_DYNOXIDE: Final = (
    Path(__file__).resolve().parents[2]
    / ".cache/dynoxide/node_modules/@dynoxide/linux-x64/dynoxide"
)


def dynoxide_binary() -> Path:
    """Where dynoxide is, if it is installed."""
    return Path(os.environ.get(DYNOXIDE_VARIABLE) or _DYNOXIDE)
