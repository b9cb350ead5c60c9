"""Functions of which each call is counted in a quota first, and refused beyond its limit.

A call ends in one of these ways, and its reservation is resolved:

    it returns, or its generator ends       commits `actual` of the answer
    its generator is closed or cancelled    commits `actual` of the parts so far
    it raises                               as `on_failure` says
    `actual` gives no amount                commits what was reserved

A generator reserves before its first part: one that nobody reads costs nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, cast, get_args

from countledger.ledger.errors import BadQuota, NotPriced, QuotaDenied, shown
from countledger.producers.quotas.quota import Admitted, Denied, check_amount

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from countledger.ledger.amount import Amount
    from countledger.producers.quotas.quotas import Quotas

_LOG: Final = logging.getLogger(__name__)
# What is counted after an error, for the log: of the counter.
_NO_ACTUAL: Final = (
    "`actual` of the guard of %r returned no usable amount: the reserved amount is committed"
)
_NOT_COMMITTED: Final = (
    "the guard of %r could not commit what a call has used: its reservation may stay counted"
)
_NOT_RELEASED: Final = (
    "the guard of %r could not release the reservation of a call that raised: it may stay counted"
)
_P = ParamSpec("_P")
_R = TypeVar("_R")
OnFailure = Literal["release", "commit"]
OnUnpriced = Literal["commit", "raise"]
# A generator that ends so was not wanted any longer: it did not fail.
_STOPPED: Final = (GeneratorExit, asyncio.CancelledError)
# What is resolved after its caller was cancelled: an event loop alone would forget these tasks.
_RESOLVING: Final[set[asyncio.Task[None]]] = set()


class Form(Enum):
    """How a function gives its answer."""

    PLAIN = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()

    @property
    def awaited(self) -> bool:
        """Whether an event loop runs it."""
        return self in {Form.COROUTINE, Form.ASYNC_GENERATOR}


@dataclass(frozen=True, slots=True)
class _Resolution:
    """How the reservation of a call is resolved; `failed` is logged if that fails."""

    call: Callable[..., object]
    arguments: tuple[object, ...]
    failed: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A decorator for functions, coroutine functions and both kinds of generator functions.

    See `Quotas.guard`.
    """

    quotas: Quotas
    counter: str
    amount: Amount
    actual: Callable[[Any], Amount] | None
    on_error: Callable[[Exception], object] | None = None
    on_failure: OnFailure = "release"
    on_unpriced: OnUnpriced = "commit"

    def __post_init__(self) -> None:
        calls: dict[str, object] = {"actual": self.actual, "on_error": self.on_error}
        for name, call in calls.items():
            if call is not None and (not callable(call) or _is_no_plain(call)):
                raise BadQuota(
                    f"{name} {shown(call)} must be a function, and no coroutine or generator "
                    "function"
                )
        _check_choice("on_failure", self.on_failure, get_args(OnFailure))
        _check_choice("on_unpriced", self.on_unpriced, get_args(OnUnpriced))

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The guarded function; of a class method or a static method the same kind of method."""
        form = form_of(function)
        if isinstance(function, classmethod | staticmethod):
            return cast("Callable[_P, _R]", type(function)(self(function.__func__)))
        guarded: dict[Form, Callable[[Any], Any]] = {
            Form.PLAIN: self._plain,
            Form.COROUTINE: self._coroutine,
            Form.GENERATOR: self._generator,
            Form.ASYNC_GENERATOR: self._async_generator,
        }
        return cast("Callable[_P, _R]", wraps(function)(guarded[form](function)))

    def _plain(self, function: Callable[..., _R]) -> Callable[..., _R]:
        def guarded(*args: Any, **kwargs: Any) -> _R:  # noqa: ANN401 - of the function
            admitted = self._admit()
            try:
                answer = function(*args, **kwargs)
            except BaseException:
                self._resolve(self._failed(admitted))
                raise
            resolution, error = self._ended(admitted, answer)
            self._resolve(resolution)
            self._raise(error)
            return answer

        return guarded

    def _coroutine(
        self, function: Callable[..., Coroutine[Any, Any, _R]]
    ) -> Callable[..., Coroutine[Any, Any, _R]]:
        async def guarded(*args: Any, **kwargs: Any) -> _R:  # noqa: ANN401 - of the function
            admitted = await self._admit_async()
            try:
                answer = await function(*args, **kwargs)
            except BaseException:
                await self._resolve_async(self._failed(admitted))
                raise
            resolution, error = self._ended(admitted, answer)
            await self._resolve_async(resolution)
            self._raise(error)
            return answer

        return guarded

    def _generator(
        self, function: Callable[..., Generator[Any, Any, Any]]
    ) -> Callable[..., Generator[Any, Any, Any]]:
        def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - as above
            admitted = self._admit()
            parts: list[Any] = []
            try:
                returned = yield from _Recorded(function(*args, **kwargs), self._record(parts))
            except BaseException as error:
                self._resolve(self._broken(admitted, error, parts))
                raise
            resolution, unpriced = self._ended(admitted, parts)
            self._resolve(resolution)
            self._raise(unpriced)
            return returned

        return guarded

    def _async_generator(
        self, function: Callable[..., AsyncGenerator[Any, Any]]
    ) -> Callable[..., AsyncGenerator[Any, Any]]:
        async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:  # noqa: ANN401 - as above
            admitted = await self._admit_async()
            parts: list[Any] = []
            record = self._record(parts)
            try:
                stream = function(*args, **kwargs)
                step = stream.asend(None)
                while True:
                    record(part := await step)
                    try:
                        sent = yield part
                    except GeneratorExit:
                        await stream.aclose()
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - it is thrown into the function
                        step = stream.athrow(thrown)
                    else:
                        step = stream.asend(sent)
            except StopAsyncIteration:
                resolution, unpriced = self._ended(admitted, parts)
            except BaseException as error:
                await self._resolve_async(self._broken(admitted, error, parts))
                raise
            await self._resolve_async(resolution)
            self._raise(unpriced)

        return guarded

    def _record(self, parts: list[Any]) -> Callable[[object], object]:
        """What keeps each part for `actual`; without one, nothing is kept."""
        return parts.append if self.actual is not None else lambda _part: None

    def _admit(self) -> Admitted:
        admit = self.quotas.acquire if self.actual is None else self.quotas.reserve
        return _expect(admit(self.counter, self.amount))

    async def _admit_async(self) -> Admitted:
        admit = self.quotas.acquire if self.actual is None else self.quotas.reserve
        return _expect(await _awaited(admit, self.counter, self.amount))

    def _ended(
        self, admitted: Admitted, answer: object
    ) -> tuple[_Resolution | None, NotPriced | None]:
        """The resolution of a call that gave its answer; and what is raised afterwards."""
        if self.actual is None:
            return None, None
        error: NotPriced | None = None
        try:
            used = check_amount("actual", self.actual(answer), zero=True)
        except Exception as failed:  # noqa: BLE001 - the answer is given in any case
            used = admitted.amount
            if self.on_unpriced == "commit":
                self._report(_NO_ACTUAL, failed)
            else:
                error = NotPriced(
                    f"`actual` of the guard of {self.counter!r} gave no usable amount "
                    f"({type(failed).__name__}: {failed}); what was reserved is committed, and "
                    "`answer` of this error is what the function gave",
                    answer,
                )
                error.__cause__ = failed
        return _Resolution(self.quotas.commit, (admitted, used), _NOT_COMMITTED), error

    def _broken(
        self, admitted: Admitted, error: BaseException, parts: list[Any]
    ) -> _Resolution | None:
        """The resolution of a generator that raised, or was closed or cancelled."""
        if not isinstance(error, _STOPPED) and self.on_failure == "release":
            return self._failed(admitted)
        resolution, unpriced = self._ended(admitted, parts)
        if unpriced is not None:  # the caller gets the error of the generator
            self._report(_NO_ACTUAL, unpriced)
        return resolution

    def _failed(self, admitted: Admitted) -> _Resolution | None:
        """The resolution of a call that raised, without an answer."""
        if self.actual is None:
            return None
        if self.on_failure == "commit":
            return _Resolution(self.quotas.commit, (admitted,), _NOT_COMMITTED)
        return _Resolution(self.quotas.release, (admitted,), _NOT_RELEASED)

    def _resolve(self, resolution: _Resolution | None) -> None:
        if resolution is None:
            return
        try:
            resolution.call(*resolution.arguments)
        except Exception as error:  # noqa: BLE001 - the answer, or the function's error, is given
            self._report(resolution.failed, error)

    async def _resolve_async(self, resolution: _Resolution | None) -> None:
        """Resolve in a task of its own, which goes on if the caller is cancelled once more."""
        if resolution is None:
            return

        async def resolve() -> None:
            try:
                await _awaited(resolution.call, *resolution.arguments)
            except Exception as error:  # noqa: BLE001 - as above
                self._report(resolution.failed, error)

        task = asyncio.get_running_loop().create_task(resolve())
        _RESOLVING.add(task)
        task.add_done_callback(_RESOLVING.discard)
        await asyncio.shield(task)

    @staticmethod
    def _raise(error: NotPriced | None) -> None:
        if error is not None:
            raise error

    def _report(self, counted: str, error: Exception) -> None:
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception as failed:  # noqa: BLE001 - it must not replace the result either
                _LOG.exception(
                    "`on_error` of the guard of %r raised", self.counter, exc_info=failed
                )
            else:
                return
        _LOG.error(counted, self.counter, exc_info=error)


class _Recorded(Generator[Any, Any, Any]):
    """A generator of which each part is recorded when it is given."""

    def __init__(
        self, stream: Generator[Any, Any, Any], record: Callable[[object], object]
    ) -> None:
        self._stream = stream
        self._record = record

    def send(self, value: Any) -> Any:  # noqa: ANN401 - of the stream
        part = self._stream.send(value)
        self._record(part)
        return part

    def throw(self, error: Any, *more: Any) -> Any:  # noqa: ANN401 - as above
        part = self._stream.throw(error, *more)
        self._record(part)
        return part

    def close(self) -> None:
        self._stream.close()


async def _awaited(call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - its result
    """Await a call of `AsyncQuotas`, or make one of `Quotas` in a thread."""
    if inspect.iscoroutinefunction(call):
        return await call(*arguments)
    return await asyncio.to_thread(call, *arguments)


def form_of(function: object) -> Form:
    """Its form; a method, a partial and an object with `__call__` have that of their function."""
    plain = _unwrapped(function)
    if inspect.iscoroutinefunction(plain):
        return Form.COROUTINE
    if not (inspect.isfunction(plain) or inspect.isbuiltin(plain)):
        raise BadQuota(
            f"{shown(function)} is no function, coroutine function or generator function: guard a "
            "function that calls it"
        )
    if inspect.isasyncgenfunction(plain):
        return Form.ASYNC_GENERATOR
    return Form.GENERATOR if inspect.isgeneratorfunction(plain) else Form.PLAIN


def _unwrapped(function: object) -> object:
    plain: Any = function
    while True:
        if isinstance(plain, partial):
            plain = plain.func
        elif isinstance(plain, staticmethod | classmethod) or inspect.ismethod(plain):
            plain = plain.__func__
        else:
            break
    if inspect.isroutine(plain) or inspect.isclass(plain) or inspect.iscoroutinefunction(plain):
        return plain
    call = getattr(type(plain), "__call__", None)  # noqa: B004 - an object that is called
    return call if inspect.isfunction(call) else plain


def _is_no_plain(call: object) -> bool:
    """Whether a call gives something that must be awaited or iterated first."""
    plain = _unwrapped(call)
    return (
        inspect.iscoroutinefunction(plain)
        or inspect.isgeneratorfunction(plain)
        or inspect.isasyncgenfunction(plain)
    )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        known = " or ".join(f"`{choice}`" for choice in choices)
        raise BadQuota(f"{name} {shown(value)} must be {known}")


def _expect(outcome: Admitted | Denied) -> Admitted:
    if isinstance(outcome, Denied):
        raise QuotaDenied(outcome.reason, outcome)
    return outcome
