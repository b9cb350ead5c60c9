"""What each actor has seen so far: a tree of answers, so that code runs only for new histories.

An actor is a function of its answers and of the time. The tree of an actor has a node for each
history; a node keeps the greenlet that stands there until it goes on. A history that goes on in
another way is run again from its beginning, with the answers that are stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.exploring.actor import Actor, Beginning, Ended, Pausing, Stop
from tests.exploring.world import Answer, plain

if TYPE_CHECKING:
    from tests.exploring.actor import Part, Told
    from tests.exploring.world import Contents, World

# How many histories keep their greenlet.
_ALIVE: Final = 4_000


@dataclass(eq=False, slots=True)
class History:
    """What an actor has seen up to some place.

    Attributes:
        number: in the order in which histories were found; no two of a search have the same.
        actor: which actor's.
        before: the history that goes on here; None: it begins.
        answer: the answer that it went on with.
        at_ms: the time of that; of one of those times, if the actor did not look at its clock.
        stop: where the actor stops next.
        told: the answers of its calls so far.
        timed: whether it depends on the time.
    """

    number: int
    actor: int
    before: History | None
    answer: Answer | None
    at_ms: int
    stop: Stop
    told: tuple[Told, ...]
    timed: bool
    alive: Actor | None = None
    after: dict[object, History] = field(default_factory=dict)

    @property
    def began(self) -> History:
        """Where the call that is under way, or about to begin, begins.

        What a dead actor has read since then changes nothing any more.
        """
        one = self
        while not isinstance(one.stop, Beginning):
            if one.before is None:
                raise AssertionError("no call is under way")
            one = one.before
        return one

    @property
    def call(self) -> str:
        """The call that is under way, or about to begin."""
        stop = self.began.stop
        if not isinstance(stop, Beginning):
            raise TypeError(f"{stop} is no beginning")
        return stop.call

    @property
    def ended(self) -> bool:
        """Whether the actor has nothing left to do."""
        return isinstance(self.stop, Ended)


class NotDeterministic(AssertionError):
    """The product did something else for the same answers at the same times."""


@dataclass(eq=False)
class Histories:
    """The histories of all actors of a search.

    Attributes:
        parts: what each actor does.
        world: what requests work on.
        known: every history, by its number.
        runs: how often an actor was run again from its beginning.
    """

    parts: tuple[Part, ...]
    world: World
    known: list[History] = field(default_factory=list)
    runs: int = 0
    _alive: deque[History] = field(default_factory=deque)

    def begin(self, actor: int, contents: Contents, now_ms: int) -> History:
        """The history of an actor that has prepared itself, which changes nothing."""
        made = Actor(self.parts[actor], actor + 1, self.world, now_ms)
        history = self._note(actor, None, None, now_ms, made, made.resume(None, now_ms))
        while not isinstance(history.stop, Beginning | Ended):
            request = getattr(history.stop, "request", None)
            answer = None
            if request is not None:
                history = self.step(history, None, now_ms)
                after, answer = self.world.carry_out(contents, now_ms, request)
                if after != contents:
                    raise AssertionError("an actor changes something while it prepares itself")
            history = self.step(history, answer, now_ms)
        return history

    def step(self, history: History, answer: Answer | None, now_ms: int) -> History:
        """The history that goes on with an answer, at a time.

        If the actor does not look at its clock before it stops again, the time makes no difference,
        and histories that differ in it are one.
        """
        told = plain(answer)
        found = history.after.get((None, told)) or history.after.get((now_ms, told))
        if found is None:
            actor = self._actor_at(history)
            stop = actor.resume(answer, now_ms)
            found = self._note(history.actor, history, answer, now_ms, actor, stop)
            history.after[now_ms if found.timed else None, told] = found
        return found

    def _note(  # noqa: PLR0917 - what a history is
        self,
        number: int,
        before: History | None,
        answer: Answer | None,
        now_ms: int,
        actor: Actor,
        stop: Stop,
    ) -> History:
        timed = actor.looked_at_time or isinstance(stop, Pausing)
        made = History(len(self.known), number, before, answer, now_ms, stop, actor.told, timed)
        self.known.append(made)
        if not isinstance(stop, Ended):
            made.alive = actor
            self._alive.append(made)
            if len(self._alive) > _ALIVE:
                self._alive.popleft().alive = None
        return made

    def _actor_at(self, history: History) -> Actor:
        """An actor that stands at the end of a history."""
        if history.alive is not None:
            actor, history.alive = history.alive, None
            return actor
        self.runs += 1
        chain = [*_chain(history)]
        actor = Actor(self.parts[history.actor], history.actor + 1, self.world, chain[-1].at_ms)
        stop = history.stop
        for one in reversed(chain):
            stop = actor.resume(one.answer, one.at_ms)
        if _shown(stop) != _shown(history.stop):
            raise NotDeterministic(f"{_shown(history.stop)}, and then {_shown(stop)}")
        return actor


def _chain(history: History) -> Iterator[History]:
    """A history and what it went on from, back to its beginning."""
    one: History | None = history
    while one is not None:
        yield one
        one = one.before


def _shown(stop: Stop) -> tuple[Any, ...]:
    return type(stop).__name__, *(one for one in stop if isinstance(one, str | int | float))
