"""What uses several threads works in the calling one once Python gives no other."""

import threading
from typing import Final

import pytest

from countledger.ledger.suspension import WorkerThreads
from tests.unit.ledger.processes import printed

_PROGRAM: Final = """
import atexit, sys, threading
from countledger import Event
from countledger.testing import MemoryStack

stack = MemoryStack()
ledger = stack.ledger
if sys.argv[2] == "used before":
    ledger.record_many([Event("warm", 1)] * 60)

def work():
    events = [Event("likes:a", 1, str(n)) for n in range(300)] + [Event("likes:b", 2)] * 60
    assert {str(one.status) for one in ledger.record_many(events)} == {"recorded"}
    stack.deliver()
    names = ["likes:a", "likes:b", *(f"likes:{n}" for n in range(200))]
    totals = ledger.totals(names)
    some = names[:2]
    ledger.groups.add("both", some)
    print(*(totals[name].value for name in some))
    print(*(one.verdict for one in ledger.audit.verify_many(some)))
    print(*sorted(one.counter for one in ledger.audit.verify_all() if one.counter in some))
    print(*ledger.groups.of("likes:a"))

def late():
    threading.main_thread().join()
    work()

if sys.argv[1] == "atexit":
    atexit.register(work)
else:
    threading.Thread(target=late).start()
"""


@pytest.mark.parametrize("before", ["used before", "not used before"])
@pytest.mark.parametrize("where", ["atexit", "thread"])
def test_calls_work_after_the_end_of_the_main_thread(where: str, before: str) -> None:
    words = printed(_PROGRAM, where, before)
    assert words == ["300", "120", "exact", "exact", "likes:a", "likes:b", "both"]


def test_what_is_not_run_by_a_thread_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with WorkerThreads(4, "test") as pool:
        with monkeypatch.context() as none:
            none.setattr(threading.Thread, "start", refuse)
            assert list(pool.map(abs, [-1, -2])) == [1, 2]
            failed = pool.submit(divmod, 1, 0)
            pool.submit(done.append, 1)
            with pytest.raises(ZeroDivisionError):
                failed.result()
        pool.submit(done.append, 2)
    assert done == [1, 2]


def test_workers_are_not_used_after_their_block() -> None:
    with WorkerThreads(1, "test") as pool:
        pass
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, -1)
