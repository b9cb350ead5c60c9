"""Which local stack a command works on: what `up` wrote down, for shells that do not name one.

The environment wins. It is only completed where it names no AWS at all, and corrected where it
names a local stack that has ended since: another `up` may have taken another port.
"""

import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from countledger.ledger.errors import BadSetting

STATE_FILE: Final = "state.json"
_STACK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
# They say nothing about where AWS is.
_NEUTRAL: Final = frozenset(
    {"COUNTLEDGER_STACK_NAME", "COUNTLEDGER_DEBUG", "COUNTLEDGER_TRANSPORT"}
)
_LOOPBACK: Final = "127.0.0.1"
_CONNECT_TIMEOUT_S: Final = 1.0


def directory_of(stack_name: str) -> Path:
    """The private directory of a local stack in the background.

    Raises:
        BadSetting: no name for a stack.
    """
    if not _STACK_NAME.fullmatch(stack_name):
        raise BadSetting(
            f"stack name {stack_name!r}: letters, digits and hyphens, a letter first, up to 128"
        )
    # Resolved, as the processes see it in their environment.
    return Path(tempfile.gettempdir()).resolve() / f"countledger-{os.getuid()}-{stack_name}"


def followed(environment: Mapping[str, str], stack_name: str) -> dict[str, str]:
    """What a command needs in its environment to work on the local stack; empty: nothing.

    Args:
        environment: of the command.
        stack_name: which stack it is about.
    """
    named = environment.get("AWS_ENDPOINT_URL", "")
    if named:
        # One that was printed by `up`, and has ended.
        if urlsplit(named).hostname != _LOOPBACK or _answers(named):
            return {}
    elif _names_aws(environment):
        return {}
    running = _written_down(stack_name)
    if named and any(environment.get(name) != running.get(name) for name in _KEYS):
        return {}
    return running if running and _answers(running["AWS_ENDPOINT_URL"]) else {}


_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def _names_aws(environment: Mapping[str, str]) -> bool:
    """Whether a variable, or a configuration file of the user, says where AWS is."""
    if any(
        name.startswith(("AWS_", "COUNTLEDGER_")) and name not in _NEUTRAL for name in environment
    ):
        return True
    home = Path(environment.get("HOME", "~")).expanduser()
    return any((home / ".aws" / name).exists() for name in ("config", "credentials"))


def _answers(url: str) -> bool:
    try:
        port = urlsplit(url).port or 80
        socket.create_connection((_LOOPBACK, port), _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def _written_down(stack_name: str) -> dict[str, str]:
    """The environment of the local stack that runs, or did; empty: none did."""
    try:
        directory = directory_of(stack_name)
        found = directory.lstat()
        # Another user who can write there could name an endpoint of their own.
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.getuid():
            return {}
        state: Any = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in state.get("environment", {}).items()}
