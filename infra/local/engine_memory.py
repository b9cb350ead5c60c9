"""The memory of MiniStack 1.5.33, saved at intervals and at its end, and put back at its start.

Imported by the engine's process alone. MiniStack's own persistence saves at an orderly end alone,
reports no failure, and leaves out the records of streams, bodies of objects, and the times at which
schedules fired last.
"""

import asyncio
import hashlib
import importlib
import io
import json
import logging
import pickle
import sys
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ministack.core.responses import AccountRegionScopedDict, AccountScopedDict
from ministack.services import dynamodb, lambda_svc

from countledger.infra.local.saved_stack import SavedStack, installed_engine, read, write

SAVE_EVERY_S: Final = 5.0
# No request is answered while the memory is copied: at most this part of the time.
_COPYING_MAX: Final = 0.05
_TRIES: Final = 5
_SERVICES: Final = "ministack.services."
# Besides the stores of its services: numbers that count on, and when schedules fired last.
_COUNTS: Final = (("dynamodb", "_stream_seq_counter"), ("kinesis", "_sequence_counter"))
_TIMES: Final = (("scheduler", "_schedule_last_fired"), ("eventbridge", "_rule_last_fired"))
# A reader of a stream takes a new iterator; these change with every request.
_FLEETING: Final = frozenset({("kinesis", "_shard_iterators")})
# Where the address of the engine may be part of a value.
_ADDRESSED: Final = frozenset({"cloudformation", "lambda_svc", "sqs"})
# What a store has besides texts, numbers, lists and plain dicts: no code of a file is ever run.
_KINDS: Final = (
    dict,
    int,
    list,
    set,
    defaultdict,
    deque,
    OrderedDict,
    datetime,
    timedelta,
    timezone,
)
_LOG: Final = logging.getLogger(__name__)

_Place = tuple[str, str]
_newest_ms = 0


def patch_sequence_numbers_never_go_back() -> None:
    """A later record has a higher number, also after the clock was set back.

    MiniStack's numbers begin with the time. A number that is lower than one before it would be
    dropped as delivered again.
    """
    plain = dynamodb._next_stream_seq  # noqa: SLF001 - it has no seam
    digits = len(f"{0:010d}")
    one_at_a_time = threading.Lock()

    def following() -> str:
        global _newest_ms  # noqa: PLW0603 - the engine's own numbers are global
        with one_at_a_time:
            number = plain()
            _newest_ms = max(_newest_ms, int(number[:-digits]))
            return f"{_newest_ms:020d}{number[-digits:]}"

    dynamodb._next_stream_seq = following  # noqa: SLF001 - as above


def taken() -> bytes:
    """A copy of the memory, of one moment: call it on the thread that answers requests.

    What other threads of the engine change meanwhile (logs, metrics) may be older or newer; a
    container that changes while it is copied is noticed, and all is copied again.
    """
    memory = {
        "stores": {place: store._data for place, store in _stores()},  # noqa: SLF001 - as above
        "counts": {place: getattr(_module(place[0]), place[1]) for place in _COUNTS},
        "times": {place: getattr(_module(place[0]), place[1]) for place in _TIMES},
        "newest_ms": _newest_ms,
    }
    for left in reversed(range(_TRIES)):
        try:
            copy = io.BytesIO()
            _Pickler(copy, protocol=5).dump(memory)
            return copy.getvalue()
        except RuntimeError:  # a container changed during its iteration
            if not left:
                raise
    raise AssertionError


def put_back(memory: bytes, *, moved: tuple[int, int] | None = None) -> None:
    """Put a copy in the place of the memory; `moved`: the ports of the engine then and now."""
    global _newest_ms  # noqa: PLW0603 - as above
    found = _Unpickler(io.BytesIO(memory)).load()
    for place, data in found["stores"].items():
        store = getattr(_module(place[0]), place[1])
        if moved is not None and place[0] in _ADDRESSED:
            then, now = (f"//127.0.0.1:{port}/" for port in moved)
            data = _moved(data, then, now)  # noqa: PLW2901 - the same data, at another port
        store._data.clear()  # noqa: SLF001 - as above
        store._data.update(data)  # noqa: SLF001 - as above
    for (module, name), count in found["counts"].items():
        setattr(_module(module), name, count)
    for (module, name), times in found["times"].items():
        getattr(_module(module), name).update(times)
    _newest_ms = found["newest_ms"]
    if lambda_svc._esms.has_any():  # noqa: SLF001 - as above
        lambda_svc._ensure_poller()  # noqa: SLF001 - as above


def _stores() -> Iterator[tuple[_Place, Any]]:
    """The stores of all services that were used so far, by module and name."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith(_SERVICES):
            for attribute, value in vars(module).items():
                place = name.removeprefix(_SERVICES), attribute
                scoped = isinstance(value, AccountRegionScopedDict | AccountScopedDict)
                if scoped and place not in _FLEETING:
                    yield place, value


def _module(name: str) -> Any:  # noqa: ANN401 - any service
    return importlib.import_module(_SERVICES + name)


class _Pickler(pickle.Pickler):
    """Writes a memory of known kinds of objects."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as the library has it
        kind = value if isinstance(value, type) else type(value)
        if kind not in _KINDS:
            raise pickle.PicklingError(f"{kind.__module__}.{kind.__name__} cannot be saved")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as the library has it
        for kind in _KINDS:
            if (module, name) == (kind.__module__, kind.__name__):
                return kind
        raise pickle.UnpicklingError(f"a saved memory has no {module}.{name}")


def _moved(value: Any, then: str, now: str) -> Any:  # noqa: ANN401 - whatever a store has
    """A value of a store with the new address of the engine in its texts."""
    if isinstance(value, str):
        return value.replace(then, now)
    if isinstance(value, dict):
        new = {_moved(key, then, now): _moved(one, then, now) for key, one in value.items()}
        value.clear()  # what is a dict with defaults stays one
        value.update(new)
        return value
    if isinstance(value, list | tuple | set):
        return type(value)(_moved(one, then, now) for one in value)
    return value


class Saver:
    """Keeps the memory of this engine in a directory."""

    def __init__(self, directory: Path, facts: str) -> None:
        """Put back what is saved in a locked directory; nothing is saved yet."""
        given = json.loads(facts)
        self._directory = directory
        self._saved = SavedStack(
            stack_name=given["stack_name"],
            regions=tuple(given["regions"]),
            port=given["port"],
            saved_at_ms=0,
            complete=False,
            engine=installed_engine(),
            release=version("countledger"),
        )
        self._digest = b""
        self._begun = asyncio.Event()
        found = read(directory)
        if found is None:
            return
        before, memory = found
        moved = None if before.port == given["port"] else (before.port, given["port"])
        put_back(memory, moved=moved)
        # From here on more may be written than it has.
        write(directory, replace(before, complete=False), memory)

    def begin(self) -> None:
        """Save from now on: the stack is complete. Half of a deployment is never saved."""
        self._begun.set()

    async def save_regularly(self, stop: asyncio.Event) -> None:
        """Save what changed, until the engine ends."""
        await _either(self._begun, stop)
        while not stop.is_set():
            began_s = time.perf_counter()
            try:
                memory, at_ms = taken(), _now_ms()
                took_s = time.perf_counter() - began_s
                await asyncio.to_thread(self._write_changed, memory, at_ms)
            except (OSError, RuntimeError, pickle.PicklingError):
                _LOG.exception("the stack could not be saved in %s", self._directory)
                took_s = time.perf_counter() - began_s
            await _either(stop, timeout_s=max(SAVE_EVERY_S, took_s / _COPYING_MAX))

    def save_at_the_end(self) -> None:
        """Save what no request can change any more."""
        if self._begun.is_set():
            self._write(taken(), _now_ms(), complete=True)

    def _write_changed(self, memory: bytes, at_ms: int) -> None:
        digest = hashlib.sha256(memory).digest()
        if digest != self._digest:
            self._write(memory, at_ms, complete=False)
            self._digest = digest

    def _write(self, memory: bytes, at_ms: int, *, complete: bool) -> None:
        write(self._directory, replace(self._saved, saved_at_ms=at_ms, complete=complete), memory)


def _now_ms() -> int:
    return int(time.time() * 1_000)


async def _either(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait until one of them is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
