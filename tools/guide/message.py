"""The JSON schema of the alerts' message, as the product itself reads it."""

import json
from pathlib import Path
from typing import Final

from countledger.consumers.alerts.message import AlertMessage

_DOCS: Final = Path(__file__).parents[2] / "docs"
SCHEMA: Final = _DOCS / "alert-message.schema.json"
GUIDE: Final = _DOCS / "alerts.md"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_text() -> str:
    """The schema of what is sent: fields that say nothing are left out, not null."""
    schema = AlertMessage.model_json_schema(mode="serialization")
    for name, field in schema["properties"].items():
        if name not in schema["required"]:
            schema["properties"][name] = _present(field)
    return json.dumps({"$schema": _DIALECT, **schema}, indent=2) + "\n"


def _present(field: dict[str, object]) -> dict[str, object]:
    """An optional field where it is there."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]  # type: ignore[attr-defined]  # of JSON
    kept = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return {**kept, **(kinds[0] if kinds else {})}
