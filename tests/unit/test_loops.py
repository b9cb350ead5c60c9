"""Requests are repeated in one place: every other loop around a service call is listed here.

A loop repeats requests if it is a `while` loop, or a `for` loop whose variable its body does not
use (`for _ in range(3)`), and its body calls a service: itself, or in a function of this project
that it calls, however deep. A function that calls itself, and a service, is a loop as well. A `for`
loop that sends one request for each of several things repeats nothing.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_PACKAGES: Final = ("ledger", "producers", "consumers", "compaction", "infra", "countledger")
_DRIVER: Final = "ledger/attempts.py"
# The names under which clients of services are kept.
_CLIENTS: Final = {
    "dynamo",
    "retrying",
    "unretried",
    "reads",
    "writes",
    "client",
    "events",
    "topics",
    "_async_dynamo",
    "_dynamo",
    "cloudformation",
}
# What sends requests by itself: steps of the driver, and what carries them out.
_SENDERS: Final = {"Send", "ask", "attempt", "run", "translated"}

# By the reason: the module, and its functions.
ALLOWED: Final[dict[str, dict[str, str]]] = {
    "paging: each request reads on from where the last one ended": {
        "compaction/due.py": "sweep",
        "producers/strict/release.py": "_lapsed",
        "compaction/archive.py": "_keys",
        "compaction/salvage.py": "run",
        "consumers/totals.py": "names_page",
        "consumers/record.py": "after shards",
        "consumers/audit.py": "rounds",
        "infra/local/shards.py": "shards",
        "ledger/dynamo.py": "_get_batch pages",
        "ledger/message_queue.py": "__iter__",
        "producers/quotas/administration.py": "read_all",
        "producers/sequences/sequences.py": "_resuming",
    },
    "portions: each request is about other things": {
        "consumers/alerts/service.py": "_totals",
        "consumers/total_writer.py": "write",
        "consumers/window_writer.py": "_write",
        "consumers/window_verify.py": "compare",
    },
    "polling: waits until another process has come so far": {
        "infra/cli/watch.py": "follow",
        "infra/deploy/deployment.py": "_await_proposal",
        "infra/deploy/destruction.py": "_awaited",
        "infra/deploy/stack_operation.py": "follow",
    },
    "stages: a long change is one request after the other, decided from what is there": {
        "infra/deploy/home_change.py": "run",
        "infra/deploy/region_change.py": "run",
    },
    "reading again: several reads must show one and the same moment": {
        "compaction/schedules.py": "_start",
        "consumers/totals.py": "read",
        "consumers/verify.py": "compare",
        "ledger/exact.py": "read",
        "producers/quotas/administration.py": "of",
    },
    "expired holds: releases more of them, or waits for who does, before each next request": {
        "producers/strict/creation.py": "_delete_together",
        "producers/strict/holds.py": "_with_headroom",
        "producers/strict/multi_update.py": "apply_legs",
        "producers/strict/release.py": "again split",
    },
    "agreement: one item says what others are; it is read again when they are written": {
        "consumers/group_board.py": "_write_until_agreed",
        "consumers/rankings.py": "_sweep_until_agreed",
    },
    "optimism: reads, decides again and writes another request; an error of a request ends it": {
        "consumers/alerts/evaluator.py": "_finish",
        "consumers/progress.py": "write_above",
        "producers/strict/creation.py": "_create_together",
    },
}


Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _nodes(node: ast.AST) -> list[ast.AST]:
    """What the tests look at, of all that is in it."""
    kinds = ast.Call | ast.While | ast.For | ast.AsyncFor | ast.ImportFrom | Function
    return [one for one in ast.walk(node) if isinstance(one, kinds)]


@cache
def _functions(path: Path) -> dict[str, list[Function]]:
    """The functions of a module by their name; methods of several classes may share one."""
    found: dict[str, list[Function]] = {}
    for node in _nodes(_tree(path)):
        if isinstance(node, Function):
            found.setdefault(node.name, []).append(node)
    return found


@cache
def _imported(path: Path) -> dict[str, tuple[Path, str]]:
    """The names that a module imports from this project, each with its module and its name."""
    found = {}
    for node in _nodes(_tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("countledger."):
            name = (node.module or "").removeprefix("countledger.").replace(".", "/")
            for alias in node.names:
                found[alias.asname or alias.name] = (_ROOT / f"{name}.py", alias.name)
    return found


@cache
def _calls(node: ast.AST) -> list[ast.Call]:
    return [call for call in _nodes(node) if isinstance(call, ast.Call)]


@cache
def _calls_a_service(node: ast.AST) -> bool:
    """Whether there is a call of a client's method in it, or a step of the driver."""
    for call in _calls(node):
        function = call.func
        if isinstance(function, ast.Name) and function.id in _SENDERS:
            return True
        if isinstance(function, ast.Attribute):
            holder = function.value
            name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            if name in _CLIENTS:
                return True
    return False


def _called(path: Path, node: ast.AST) -> Iterator[tuple[Path, Function]]:
    """The functions of this project that are called in it, of the same module or imported."""
    for call in _calls(node):
        function = call.func
        if isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "self":
            yield from ((path, one) for one in _functions(path).get(function.attr, []))
        elif isinstance(function, ast.Attribute):
            package, name = _imported(path).get(getattr(function.value, "id", ""), (_ROOT, ""))
            holder = package.with_suffix("") / f"{name}.py"
            if name and holder.exists():
                yield from ((holder, one) for one in _functions(holder).get(function.attr, []))
        elif isinstance(function, ast.Name):
            own = _functions(path).get(function.id, [])
            yield from ((path, one) for one in own if one.col_offset == 0)
            module, name = _imported(path).get(function.id, (None, ""))
            if module is not None and module.exists():
                yield from ((module, one) for one in _functions(module).get(name, []))


def _repeats(loop: ast.AST) -> bool:
    if isinstance(loop, ast.While):
        return True
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    used = {node.id for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Name)}
    return not names & used


def _repeating(path: Path, function: Function) -> Iterator[ast.AST]:
    """The loops of a function, and the function itself if it calls itself."""
    yield from (node for node in _nodes(function) if _repeats(node))
    if any(one is function for _, one in _called(path, function)):
        yield function


def _loops() -> set[tuple[str, str]]:
    """Module and function of each loop that repeats requests."""
    found = set()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            if path.is_symlink() or name == _DRIVER:
                continue
            for functions in _functions(path).values():
                for function in functions:
                    if any(_sends(path, loop) for loop in _repeating(path, function)):
                        found.add((name, function.name))
    return found


def _sends(path: Path, node: ast.AST) -> bool:
    """Whether a service is called in it, or in what it calls."""
    if _calls_a_service(node):
        return True
    return any(_function_sends(found, one) for found, one in _called(path, node))


_KNOWN: Final[dict[Function, bool]] = {}


def _function_sends(path: Path, function: Function) -> bool:
    if function not in _KNOWN:
        _KNOWN[function] = False  # while it is looked at: what calls itself sends by something else
        _KNOWN[function] = _sends(path, function)
    return _KNOWN[function]


def test_requests_are_repeated_by_the_driver_alone() -> None:
    """A new loop is written as a protocol, or is listed with its reason; a stale entry goes."""
    listed = {
        (module, name)
        for by_module in ALLOWED.values()
        for module, names in by_module.items()
        for name in names.split()
    }
    assert _loops() == listed


def test_such_loops_are_found(tmp_path: Path) -> None:
    cases = {
        "while True:\n  self.dynamo.put(write)": True,
        "for _ in range(3):\n  self._attempt()": True,
        "for item in items:\n  self.dynamo.put(item)": False,
        "while waiting:\n  waiting.pop()": False,
        "while waiting:\n  self._deeper()": True,
        "self._attempt()": False,
        "if self._attempt():\n  self.function(items, waiting)": True,
        "while True:\n  answer = yield Send(operation)": True,
    }
    for number, (body, expected) in enumerate(cases.items()):
        path = tmp_path / f"case{number}.py"
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        helper = "def _attempt(self):\n    self.connection.unretried.put(1)\n"
        helper += "def _deeper(self):\n    self._attempt()\n"
        path.write_text(f"def function(self, items, waiting):\n{lines}\n{helper}")
        (function, *_) = _functions(path)["function"]
        assert any(_sends(path, loop) for loop in _repeating(path, function)) is expected, body
