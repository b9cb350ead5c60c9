"""The examples of the guide to guards, over small fakes of the streams of two SDKs."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from countledger.testing import MemoryStack

_PAGE: Final = Path(__file__).resolve().parents[3] / "docs/guard.md"
_BLOCKS: Final = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
_TEAM: Final = "tokens:team-1"


def _module(name: str, client: str, made: object) -> ModuleType:
    module = ModuleType(name)
    setattr(module, client, lambda: made)
    return module


def _openai() -> ModuleType:
    """Chunks of text, then one with the usage alone."""

    def create(*, stream: bool, stream_options: dict[str, bool], **_given: object) -> Iterator[Any]:
        assert stream
        assert stream_options["include_usage"]
        for text in ("Hel", "lo"):
            yield SimpleNamespace(choices=[text], usage=None)
        yield SimpleNamespace(
            choices=[], usage=SimpleNamespace(prompt_tokens=100, completion_tokens=20)
        )

    completions = SimpleNamespace(create=create)
    return _module(
        "openai", "OpenAI", SimpleNamespace(chat=SimpleNamespace(completions=completions))
    )


def _anthropic() -> ModuleType:
    """Named events; those with `usage` count all tokens so far."""

    def event(kind: str, **facts: object) -> SimpleNamespace:
        return SimpleNamespace(type=kind, **facts)

    async def events() -> AsyncIterator[Any]:
        usage = SimpleNamespace(input_tokens=100, output_tokens=1)
        yield event("message_start", message=SimpleNamespace(usage=usage))
        yield event("content_block_delta", delta="Hello")
        yield event("message_delta", usage=SimpleNamespace(output_tokens=20))
        yield event("message_stop")

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncIterator[Any]]:
        yield events()

    async def create(*, stream: bool, **_given: object) -> Any:  # noqa: ANN401 - a context
        assert stream
        return opened()

    return _module(
        "anthropic", "AsyncAnthropic", SimpleNamespace(messages=SimpleNamespace(create=create))
    )


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> MemoryStack:
    """A stack with a budget of tokens; both SDKs are replaced."""
    monkeypatch.setitem(sys.modules, "openai", _openai())
    monkeypatch.setitem(sys.modules, "anthropic", _anthropic())
    made = MemoryStack()
    made.ledger.quotas.create("tokens:", limit=1_000_000, per="day")
    return made


def _run(stack: MemoryStack, block: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    with stack.installed():
        exec(compile(_BLOCKS[block], str(_PAGE), "exec"), names)  # noqa: S102 - our own
    return names


def test_the_example_of_a_coroutine_function_runs(
    stack: MemoryStack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(_BLOCKS) == 3
    _run(stack, 0)
    assert capsys.readouterr().out.splitlines()[-1] == "True"


def test_the_first_stream_is_counted_by_its_last_chunk(stack: MemoryStack) -> None:
    ask = _run(stack, 1)["ask"]

    assert [text for chunk in ask("?") for text in chunk.choices] == ["Hel", "lo"]
    assert stack.ledger.quotas.show(_TEAM)[0].used == 2 * 100 + 8 * 20


@pytest.mark.parametrize("left", [False, True])
def test_the_second_stream_is_counted_by_its_events(stack: MemoryStack, *, left: bool) -> None:
    """What was reserved, if it is left before its first count of what was given."""
    names = _run(stack, 2)

    async def read(ask: Callable[[str], Any]) -> None:
        async with names["ledger"]:
            stream = ask("?")
            async for _ in stream:
                if left:
                    await stream.aclose()

    asyncio.run(read(names["ask"]))
    assert stack.ledger.quotas.show(_TEAM)[0].used == (70_000 if left else 3 * 100 + 15 * 20)


def test_the_first_stream_that_is_left_is_counted_as_reserved(stack: MemoryStack) -> None:
    with closing(_run(stack, 1)["ask"]("?")) as stream:
        next(stream)
    assert stack.ledger.quotas.show(_TEAM)[0].used == 40_000
