"""A process whose memory is copied, as a restored machine's is, and that goes on in both copies.

    python -m tests.transport.copying OPERATION ROUNDS

The environment names the stack. Both copies have one process id, one clock, and one memory: the
page that a fork empties is filled again. Neither can use the connections of before, as if each had
a network of its own; threads that waited go on in both. Each prints what it was told.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Final

import boto3

from countledger import Buffering, CountLedger, Event
from countledger.ledger import processes
from countledger.ledger.clock import SystemClock
from countledger.producers.buffer.producer import BufferedProducer

CALLS: Final = 3
COUNTER: Final = "copies:a"
SEQUENCE: Final = "copied:numbers"
_PATIENCE_S: Final = 30
_REST_S: Final = 0.05


def record(ledger: CountLedger) -> list[Any]:
    """Entries, one at a time."""
    return [ledger.record(COUNTER, 1).id for _ in range(CALLS)]


def record_many(ledger: CountLedger) -> list[Any]:
    """Entries, in one call."""
    told = ledger.record_many([Event(COUNTER, 1)] * CALLS)
    return [getattr(one, "id", repr(one)) for one in told]


def draw(ledger: CountLedger) -> list[Any]:
    """Numbers, one at a time."""
    return [ledger.sequences.draw(SEQUENCE) for _ in range(CALLS)]


def draw_block(ledger: CountLedger) -> list[Any]:
    """Numbers, in one call."""
    return [*ledger.sequences.draw_block(SEQUENCE, CALLS)]


def buffered(ledger: CountLedger) -> list[Any]:
    """Entries of a buffer that was used before the copy."""
    pendings = _producer(ledger).add_many([Event(COUNTER, 1)] * CALLS)
    return [one.result(_PATIENCE_S).id for one in pendings]


def sealed(ledger: CountLedger) -> list[Any]:
    """An entry that was made before the copy, which nobody has sent by then."""
    if not _SEALED:
        maker = _producer(ledger)._maker
        _SEALED.append(maker.of_event(Event(COUNTER, 1)))
        return []
    return [ledger.resend(_SEALED.pop()).id]


def joined(ledger: CountLedger) -> list[Any]:
    """The entry of an event that waits for others at the copy, and of one that joins it after."""
    pending = _producer(ledger, Buffering(coalesce=True, linger_ms=30_000)).add(COUNTER, 1)
    if pending.events == 1:
        return []
    _producer(ledger).flush(_PATIENCE_S)
    return [pending.result().id, int(pending.delta)]


_PRODUCERS: Final[list[BufferedProducer]] = []
_SEALED: Final[list[Any]] = []


def _producer(ledger: CountLedger, buffering: Buffering | None = None) -> BufferedProducer:
    if not _PRODUCERS:
        _PRODUCERS.append(ledger.buffered(buffering or Buffering(linger_ms=1)))
    return _PRODUCERS[0]


OPERATIONS: Final[dict[str, Callable[[CountLedger], list[Any]]]] = {
    one.__name__: one for one in (record, record_many, draw, draw_block, buffered, sealed, joined)
}


def say(name: str, answers: list[Any]) -> None:
    """One line, written at once."""
    os.write(1, (json.dumps({name: answers}) + "\n").encode())


def _stop_the_clock() -> None:
    """Neither copy is ever later than the other."""
    now_ms = SystemClock().now_ms()
    frozen: Any = SystemClock
    frozen.now_ms = lambda _self: now_ms


def _lose_connections() -> None:
    """Each leads to nobody, as those of another machine."""
    for number in connections():
        ours, theirs = socket.socketpair()
        theirs.close()
        os.dup2(ours.detach(), number)


def connections() -> list[int]:
    """The file descriptors of this process's connections."""
    found: list[int] = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(one.name))) as copy:
            if copy.family != socket.AF_UNIX and copy.getpeername():
                found.append(int(one.name))
    return found


def _continue_threads() -> None:
    """The threads of a buffer that waited go on in a copy; `fork` has left them behind."""
    for producer in _PRODUCERS:
        buffer = producer._mine[1]
        waited, buffer._senders = buffer._senders, 0
        buffer._idle = buffer._timers = buffer._notified = 0
        vars(buffer._work)["_waiters"].clear()
        for _ in range(waited):
            buffer._senders += 1
            Thread(target=buffer._run_sender, daemon=True).start()


def copied() -> bool:
    """Copy this process; whether this is the other copy."""
    number = os.getpid()
    sleep(_REST_S)  # no thread holds a lock of the interpreter, which the copy would have as held
    child = ctypes.PyDLL(None).fork()
    if child:
        _CHILDREN.append(child)
        return False
    signal.alarm(2 * _PATIENCE_S)
    os.getpid = lambda: number
    processes._KNOWN[0] = 1
    _lose_connections()
    _continue_threads()
    return True


_CHILDREN: Final[list[int]] = []


def main(operation: str, rounds: int) -> None:
    """Use the clients, copy the process, and use them in both copies; many times."""
    ledger = CountLedger(session=boto3.Session())
    use = OPERATIONS[operation]
    _stop_the_clock()
    for _ in range(rounds):
        say("before", use(ledger))
        if copied():
            say("copy", use(ledger))
            os._exit(0)
        say("original", use(ledger))
        os.waitpid(_CHILDREN.pop(), 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
