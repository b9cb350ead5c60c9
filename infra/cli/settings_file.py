"""A settings file, TOML or YAML by its name: what stands in it, before anybody judges it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml

from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from pathlib import Path

_FILE_MAX_BYTES: Final = 1_000_000
_COMMANDS: Final = {"schedules": "schedule", "alerts": "alert"}


def commands_for(path: Path) -> list[list[str]]:
    """The commands that apply the sections of a file, in order; the first one if it has neither.

    Raises:
        BadSetting: it cannot be read.
    """
    try:
        sections: object = parsed(path)
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
    named = sections if isinstance(sections, Mapping) else {}
    found = [command for section, command in _COMMANDS.items() if section in named]
    return [[command, "apply", str(path)] for command in found or ["schedule"]]


def parsed(path: Path) -> Mapping[str, Any]:
    """Its sections.

    Raises:
        BadSetting: it cannot be read, is too large, or is neither.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > _FILE_MAX_BYTES:
            raise BadSetting("it is larger than 1 MB, and no settings file")
        text = raw.decode()
        return yaml.safe_load(text) if _is_yaml(path) else tomllib.loads(text)
    except OSError as error:
        raise BadSetting(error.strerror or str(error)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        kind = "YAML" if _is_yaml(path) else "TOML"
        raise BadSetting(f"it is no {kind}: {' '.join(str(error).split())}") from error


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in {".yaml", ".yml"}
