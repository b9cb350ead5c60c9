"""Stories of the command line as tables: a command a row, and what it prints and comes to."""

import shlex
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from tests.e2e.command import PATIENCE_S, Command, Finished

# Any value, which is there.
ANY: Final = ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command. `NS` in any text is a name of this story alone, `NOW` its beginning.

    Attributes:
        line: what a user types after `countledger`.
        json: what the document holds at least; given, the command runs with --json.
        code: the exit code.
        out: what stdout holds.
        err: what stderr holds.
        stdin: what it reads.
        waits: whether to repeat it until it comes so.
        keeps: a field of the document, which `{field}` in later lines is.
    """

    line: str
    json: Any = None
    code: int = 0
    out: str = ""
    err: str = ""
    stdin: str = ""
    waits: bool = False
    keeps: str | None = None


Story: TypeAlias = "Iterable[Step]"


def step(line: str, json: Any = None, **more: Any) -> Step:  # noqa: ANN401 - any document
    """A row of a story; a list of documents are the items of the one that is printed."""
    document = {"items": json} if isinstance(json, list) else json
    return Step(line=line, json=document, **more)


def totals(**expected: object) -> Step:
    """Wait until the counters NS:a, NS:b ... have these totals."""
    names = " ".join(f"NS:{name}" for name in expected)
    rows = [{"counter": f"NS:{name}", "value": str(value)} for name, value in expected.items()]
    return step(f"total {names}", {"items": rows}, waits=True)


def play(command: Command, story: Story) -> str:
    """Run the commands of a story in their order; its name."""
    name = f"n{uuid.uuid4().hex[:10]}"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    kept: dict[str, str] = {}

    def named(value: Any) -> Any:  # noqa: ANN401 - any document
        if isinstance(value, str):
            value = value.replace("NS", name).replace("NOW", now)
            for field, text in kept.items():
                value = value.replace(f"{{{field}}}", text)
            return value
        if isinstance(value, Mapping):
            return {named(key): named(part) for key, part in value.items()}
        return [named(part) for part in value] if isinstance(value, list) else value

    for one in story:
        words = shlex.split(named(one.line)) + ["--json"] * (one.json is not None)
        wanted = named(one.json), one.code, named(one.out), named(one.err)
        deadline = time.monotonic() + (PATIENCE_S if one.waits else 0)
        while True:
            done = command(*words, stdin=named(one.stdin))
            wrong = problem(done, *wanted)
            if not wrong:
                break
            assert time.monotonic() < deadline, f"{one.line}: {wrong}\n{done}"
            time.sleep(0.05)
        if one.keeps is not None:
            kept[one.keeps] = done.json[one.keeps]
    return name


def problem(done: Finished, json: Any, code: int, out: str, err: str) -> str:  # noqa: ANN401
    """What a command did otherwise than its row says; nothing: an empty text."""
    if done.code != code:
        return f"exit code {done.code}, not {code}"
    if "Traceback" in done.err or out not in done.out or err not in done.err:
        return "other words"
    if code == 2 and (done.err.count("\n") != 1 or (done.out and json is None)):
        return "a refusal is one line, and nothing on stdout"
    return "" if json is None or holds(done.json, json) else f"not {json}"


def holds(found: Any, wanted: Any) -> bool:  # noqa: ANN401 - any document
    """Whether a document has what is wanted, and perhaps more names."""
    if wanted is ANY:
        return True
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and holds(found[name], part) for name, part in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list) and len(found) == len(wanted) and all(map(holds, found, wanted))
        )
    return bool(found == wanted)
