"""The asynchronous client has what the synchronous one has, with the same signatures."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, assert_type

import pytest

from countledger import (
    AsyncCountLedger,
    CountLedger,
    CountledgerError,
    Entry,
    Event,
    Receipt,
    Settings,
    Total,
    TotalOverRegions,
)
from countledger.ledger.asynchronous.forms import AsyncForm, FormMethod, iterated
from countledger.ledger.errors import BadInput, LedgerNotOpen
from countledger.producers.asynchronous.forms import AsyncLease, AsyncSequences
from countledger.producers.strict.outcome import StrictOutcome

# What a form does not have, and why.
_LEFT_OUT: Final = {
    "for other parts of the project": {
        "Alerts": {"create_once"},
        "Auditor": {"each", "unread", "unrepaired", "walk"},
        "Groups": {"board", "memberships"},
        "Namespaces": {"expect", "for_use", "is_of_a_ledger"},
        "Schedules": {"create_once", "take_over"},
    },
}


def _ledger() -> AsyncCountLedger:
    settings = Settings(ledger_table="l", counters_table="c", home_region="us-east-1")
    import boto3  # noqa: PLC0415 - for these tests alone

    session = boto3.Session("id", "secret", region_name="us-east-1")
    return AsyncCountLedger(settings, session=session, endpoint_url="http://127.0.0.1:9")


def _public(owner: type) -> set[str]:
    """The methods and properties of a class, those of its bases included; no fields."""
    return {
        name
        for one in owner.__mro__[:-1]
        for name, value in vars(one).items()
        if not name.startswith("_") and (callable(value) or hasattr(value, "__get__"))
        if not inspect.ismemberdescriptor(value)
    }


def _forms() -> Iterator[tuple[type, type]]:
    """Each synchronous class with its form; found from the client."""
    _ledger()
    for name, value in vars(AsyncCountLedger).items():
        if hasattr(value, "func") and not name.startswith("_"):
            getattr(_ledger(), name)  # loads the module of the form
    left: list[Any] = [AsyncForm]
    while left:
        for form in left.pop().__subclasses__():
            left.append(form)
            (base,) = form.__orig_bases__
            yield base.__args__[0], form


_FORMS: Final = sorted(_forms(), key=lambda pair: pair[0].__name__)


def test_there_is_a_form_of_each_part_of_the_client() -> None:
    parts = {name for name, value in vars(CountLedger).items() if hasattr(value, "func")}

    assert len(_FORMS) == 20
    assert {name for name in parts if not name.startswith("_")} <= set(vars(AsyncCountLedger))


@pytest.mark.parametrize(("plain", "form"), _FORMS, ids=[plain.__name__ for plain, _ in _FORMS])
def test_nothing_is_missing_in_a_form(plain: type, form: type) -> None:
    """What is left out is in the list above, with its reason."""
    left_out = {name for one in _LEFT_OUT.values() for name in one.get(plain.__name__, ())}

    assert _public(plain) - _public(form) == left_out
    assert _public(form) - _public(plain) <= {"aclose"}


@pytest.mark.parametrize(("plain", "form"), _FORMS, ids=[plain.__name__ for plain, _ in _FORMS])
def test_each_method_of_a_form_is_its_classs(plain: type, form: type) -> None:
    """And an iterator where that one is: a method is taken over under its own name."""
    for name, value in vars(form).items():
        if isinstance(value, FormMethod):
            assert value.method is getattr(plain, name)
            returned = str(inspect.signature(value.method).return_annotation)
            assert returned.startswith("Iterator[") == isinstance(value, iterated), name


def test_type_checkers_know_what_a_call_takes_and_returns() -> None:
    """Checked by the type checker: each comment below is an error that it finds."""

    async def use(ledger: AsyncCountLedger) -> None:
        assert_type(await ledger.record("a", 1), Receipt)
        assert_type(await ledger.record_many([Event("a", 1)]), Sequence[Receipt | CountledgerError])
        assert_type(await ledger.total("a"), Total)
        assert_type(await ledger.total("a", regions=True), TotalOverRegions)
        assert_type(await ledger.strict.change("a", 1, key="k"), StrictOutcome)
        assert_type(ledger.entries("a", limit=3), AsyncIterator[Entry])
        assert_type(ledger.sequences, AsyncSequences)
        assert_type(await ledger.sequences.lease("a"), AsyncLease)
        assert_type(await (await ledger.sequences.lease("a")).draw(), int)
        pending = await (await ledger.buffered()).add("a", 1)
        assert_type(await pending.result(timeout_s=1), Receipt)
        await ledger.record("a")  # type: ignore[call-arg]
        await ledger.record("a", "1")  # type: ignore[arg-type]
        await ledger.record("a", 1, kye="k")  # type: ignore[call-arg]
        await ledger.schedules.create("a", no_such_setting=1)  # type: ignore[call-arg]
        ledger.strict.change("a", 1).value  # type: ignore[attr-defined]  # noqa: B018 - not awaited

    assert inspect.iscoroutinefunction(use)


def test_a_method_says_what_the_synchronous_one_says() -> None:
    ledger = _ledger()

    assert inspect.getdoc(ledger.record) == inspect.getdoc(CountLedger.record)
    assert (
        list(inspect.signature(ledger.record).parameters)[1:]
        == [*inspect.signature(CountLedger.record).parameters][1:]
    )


async def _call(call: Callable[[], Any]) -> None:
    await call()


def test_a_guard_refuses_a_plain_function() -> None:
    """It could not wait for the quota."""
    with pytest.raises(BadInput, match="is no coroutine function"):
        _ledger().quotas.guard("llm:a")(print)  # type: ignore[type-var]


def test_a_guard_refuses_a_plain_generator() -> None:
    """It could not wait for the quota either."""

    def parts() -> Iterator[int]:
        yield 1

    with pytest.raises(BadInput, match="no asynchronous generator"):
        _ledger().quotas.guard("llm:a")(parts)  # type: ignore[type-var]


def test_an_object_that_is_not_open_says_so() -> None:
    import asyncio  # noqa: PLC0415 - for this test alone

    with pytest.raises(LedgerNotOpen, match="use it within `async with`"):
        asyncio.run(_call(lambda: _ledger().record("a", 1)))
    with pytest.raises(LedgerNotOpen, match="use it within `async with`"):
        asyncio.run(_call(lambda: _ledger().audit.verify("a")))
