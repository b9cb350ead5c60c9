"""The asynchronous form of a class: each of its methods by one line, with the same signature.

    class AsyncClaims(AsyncForm[Claims]):
        take = awaited(Claims.take)

`awaited` and `iterated` run the method in the event loop: its requests suspend it. `threaded` and
`iterated_in_thread` run it in a thread of the loop's executor: the methods that take minutes, or
compute for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

from countledger.ledger.errors import CallCancelled
from countledger.ledger.suspension import CallNotes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from countledger.ledger.asynchronous.calls import OpenClients

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")
_LOG: Final = logging.getLogger(__name__)
_END: Final = object()


class AsyncForm(Generic[_S]):
    """An object whose methods are awaited; to find the synchronous one may take requests."""

    def __init__(self, opened: OpenClients, find: Callable[[], _S]) -> None:
        self._opened = opened
        self._find = find

    async def _call(self, name: str, function: Callable[[], _T]) -> _T:
        """Run synchronous code in the event loop; a cancellation's cause is `CallCancelled`."""
        notes = CallNotes()
        try:
            return await self._opened.get().run(function, notes)
        except asyncio.CancelledError as cancelled:
            raise cancelled from _cancelled(name, notes)

    async def _call_in_thread(self, name: str, function: Callable[[], _T]) -> _T:
        """Run synchronous code in a thread, which a cancellation does not end."""
        clients = self._opened.get()
        clients.check()
        try:
            return await asyncio.to_thread(function)
        except asyncio.CancelledError as cancelled:
            notes = CallNotes(maybe_applied=True)
            raise cancelled from _cancelled(f"{name}, whose thread goes on,", notes)


class FormMethod(Generic[_P, _T]):
    """A method of an asynchronous form, with the signature of a synchronous method."""

    def __init__(self, method: Callable[Concatenate[Any, _P], _T]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def bound(self, form: AsyncForm[Any], *args: Any, **kwargs: Any) -> Callable[[], _T]:  # noqa: ANN401 - the method's
        return lambda: self.method(form._find(), *args, **kwargs)  # noqa: SLF001 - of this module


class awaited(FormMethod[_P, _T]):  # noqa: N801 - used as a decorator is
    """A method that runs in the event loop."""

    way: Callable[..., Any] = AsyncForm._call  # noqa: SLF001 - of this module

    @overload
    def __get__(self, form: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(
        self, form: AsyncForm[Any], owner: type[Any]
    ) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    def __get__(
        self, form: AsyncForm[Any] | None, owner: type[Any]
    ) -> Self | Callable[_P, Coroutine[Any, Any, _T]]:
        if form is None:
            return self

        perform = partial(type(self).way, form, _name(self.method))

        @wraps(self.method)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            value: _T = await perform(self.bound(form, *args, **kwargs))
            return value

        return call


class threaded(awaited[_P, _T]):  # noqa: N801 - likewise
    """A method that runs in a thread of the event loop's executor."""

    way = AsyncForm._call_in_thread  # noqa: SLF001 - of this module


class iterated(FormMethod[_P, Iterator[_T]], Generic[_P, _T]):  # noqa: N801 - likewise
    """An iterator whose steps run in the event loop."""

    way: Callable[..., Any] = AsyncForm._call  # noqa: SLF001 - of this module

    @overload
    def __get__(self, form: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(
        self, form: AsyncForm[Any], owner: type[Any]
    ) -> Callable[_P, AsyncIterator[_T]]: ...
    def __get__(
        self, form: AsyncForm[Any] | None, owner: type[Any]
    ) -> Self | Callable[_P, AsyncIterator[_T]]:
        if form is None:
            return self
        perform = partial(type(self).way, form, _name(self.method))

        @wraps(self.method)
        async def iterate(*args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
            begin = self.bound(form, *args, **kwargs)
            steps = await perform(lambda: iter(begin()))
            try:
                while (value := await perform(lambda: next(steps, _END))) is not _END:
                    yield value
            finally:
                close = getattr(steps, "close", None)
                if close is not None:
                    await perform(close)

        return iterate


class iterated_in_thread(iterated[_P, _T]):  # noqa: N801 - likewise
    """An iterator whose steps run in a thread of the event loop's executor."""

    way = AsyncForm._call_in_thread  # noqa: SLF001 - of this module


def _name(method: Callable[..., object]) -> str:
    return getattr(method, "__qualname__", "a call")


def _cancelled(name: str, notes: CallNotes) -> CallCancelled:
    """What the caller learns, and the log, in which nothing is lost."""
    if not notes.maybe_applied:
        return CallCancelled(f"{name} was cancelled: nothing was changed", maybe_applied=False)
    entries = tuple(notes.entries)
    error = CallCancelled(f"{name} was cancelled: it may have been applied", entries=entries)
    _LOG.warning("%s%s", error, "".join(f"; entry {one.id} of {one.counter!r}" for one in entries))
    return error
