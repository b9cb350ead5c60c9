"""One processor for the client and another for the server, where there are two."""

from __future__ import annotations

import os
from typing import Final

CLIENT: Final = 0
SERVER: Final = 1


def stay_on(number: int) -> None:
    """Keep this process on one processor, where the system can tell it to."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[number % len(allowed)]})
