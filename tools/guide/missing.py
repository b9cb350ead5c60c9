"""What a stack in memory does not have, for docs/testing-your-app.md."""

from pathlib import Path
from typing import Final

from countledger.infra.memory.faults import GUIDE, Missing
from tools.guide.marked import table_of

TESTING_YOUR_APP: Final = Path(__file__).resolve().parents[2] / GUIDE


def missing_tables() -> dict[str, str]:
    """The table of the guide."""
    rows = [(f"`{one.name}`", *_parts(one.value)) for one in Missing]
    return {"missing": table_of(("name", "not there", "use instead"), rows)}


def _parts(text: str) -> tuple[str, str]:
    what, _, instead = text.partition(": ")
    return what, instead or "AWS, or the local stack of `countledger up`"
