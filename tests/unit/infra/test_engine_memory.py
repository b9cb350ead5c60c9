"""The memory of the local engine: what is taken is put back, and numbers never go back.

Importing the engine reads the environment, so the tests run in a process of their own.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

_PROCESS = """
import collections, decimal, json, pickle, sys, time, traceback
from ministack.services import dynamodb, kinesis, scheduler, sqs
from countledger.infra.local import engine_memory as memory
for line in sys.stdin:
    for store in (dynamodb._tables, dynamodb._stream_records, sqs._queues):
        store._data.clear()
    try:
        exec(json.loads(line), dict(globals()))
        print("null", flush=True)
    except BaseException:
        print(json.dumps(traceback.format_exc()), flush=True)
"""
Run: TypeAlias = "Callable[[str], None]"


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs code where the engine's modules are; it fails as the code does."""
    command = [sys.executable, "-c", _PROCESS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout

        def ran(code: str) -> None:
            to.write(json.dumps(code) + "\n")
            failure = json.loads(answers.readline())
            assert failure is None, failure

        yield ran
        to.close()


def test_sequence_numbers_never_go_back_with_the_clock_and_after_a_start(run: Run) -> None:
    """A number below the watermark would be dropped as delivered again."""
    run("""
now = [1_000.0]
dynamodb.time = type("Clock", (), {"time": staticmethod(lambda: now[0])})
memory.patch_sequence_numbers_never_go_back()
numbers = [dynamodb._next_stream_seq()]
now[0] = 900.0
numbers.append(dynamodb._next_stream_seq())
copy = memory.taken()
dynamodb._stream_seq_counter, memory._newest_ms = 0, 0  # as a new process begins
memory.put_back(copy)
numbers.append(dynamodb._next_stream_seq())
now[0] = 1_001.0
numbers.append(dynamodb._next_stream_seq())
assert numbers == sorted(set(numbers)), numbers
assert {len(one) for one in numbers} == {30}
assert numbers[-1] == f"{1_001_000:020d}{4:010d}"
""")


def test_a_copy_is_put_back_as_it_was_in_the_place_of_what_is_there(run: Run) -> None:
    run("""
items = collections.defaultdict(dict, {"a": {"s": {"n": {"N": "1"}}}})
dynamodb._tables["t"] = {"items": items, "newest": {("a", "s"): [1, "us-east-1", 2]}}
dynamodb._stream_records["t"] = [{"dynamodb": {"SequenceNumber": "1"}}]
copy = memory.taken()
dynamodb._tables["t"]["items"]["a"]["s"] = {}
dynamodb._tables["other"] = {}
del dynamodb._stream_records["t"]

memory.put_back(copy)

assert list(dynamodb._tables) == ["t"]
found = dynamodb._tables["t"]
assert found["items"] == {"a": {"s": {"n": {"N": "1"}}}}
assert found["items"]["new"] == {}
assert found["newest"] == {("a", "s"): [1, "us-east-1", 2]}
assert dynamodb._stream_records["t"][0]["dynamodb"]["SequenceNumber"] == "1"
""")


def test_an_engine_on_another_port_has_its_address_in_queues_and_never_in_data(run: Run) -> None:
    run("""
old = "http://127.0.0.1:4599/000000000000/q"
sqs._queues[old] = collections.defaultdict(list, {"attributes": {"url": [old, (old,)]}})
dynamodb._tables["t"] = {"items": {"note": old}}

memory.put_back(memory.taken(), moved=(4599, 4600))

new = old.replace("4599", "4600")
assert list(sqs._queues) == [new]
assert sqs._queues[new] == {"attributes": {"url": [new, (new,)]}}
assert sqs._queues[new]["messages"] == []
assert dynamodb._tables["t"]["items"] == {"note": old}
""")


def test_a_file_never_names_code_that_is_run(run: Run) -> None:
    run("""
class Harmful:
    def __reduce__(self):
        return print, ("harmful",)

for strange in (Harmful(), decimal.Decimal(1), time.sleep):
    try:
        memory.put_back(pickle.dumps({"stores": {("dynamodb", "_tables"): strange}}))
    except pickle.UnpicklingError as error:
        assert "a saved memory has no" in str(error)
    else:
        raise AssertionError
""")


def test_what_could_not_be_put_back_is_not_saved(run: Run) -> None:
    run("""
dynamodb._tables["t"] = {"items": decimal.Decimal(1)}
try:
    memory.taken()
except pickle.PicklingError as error:
    assert "decimal.Decimal cannot be saved" in str(error)
else:
    raise AssertionError
""")


def test_the_streams_iterators_are_left_out_and_the_times_of_schedules_are_not(run: Run) -> None:
    run("""
kinesis._shard_iterators["one"] = {}
scheduler._schedule_last_fired["a", "us-east-1", "g/s"] = 17.0
copy = memory.taken()
scheduler._schedule_last_fired.clear()

memory.put_back(copy)

assert ("kinesis", "_shard_iterators") not in pickle.loads(copy)["stores"]
assert scheduler._schedule_last_fired == {("a", "us-east-1", "g/s"): 17.0}
""")


def test_a_stack_that_runs_again_is_not_complete_until_it_ends(run: Run, tmp_path: Path) -> None:
    """What is written before it is saved again would be lost in silence."""
    run(f"""
import asyncio, pathlib
from countledger.infra.local.saved_stack import read_header
directory = pathlib.Path({str(tmp_path)!r})
facts = json.dumps({{"stack_name": "kept", "regions": ["us-east-1"], "port": 4599}})

def complete():
    found = read_header(directory)
    return found and found.complete

saver = memory.Saver(directory, facts)
saver.save_at_the_end()
assert complete() is None  # half of a deployment is not saved
saver.begin()
saver.save_at_the_end()
assert complete() is True
memory.Saver(directory, facts)
assert complete() is False
""")
