"""One actor runs at a time, and a seed decides which one goes on at every call of the service.

Each actor is a thread that waits for its turn, so the product's own code runs as it is. At every
pause the turn may pass to any other; an actor may be left standing for long, or die there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import TYPE_CHECKING

from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


@dataclass(eq=False)
class Actor:
    """Something that runs on its own.

    Attributes:
        name: for messages.
        work: what it does.
        mortal: whether it may die at a pause.
    """

    name: str
    work: Callable[[], None]
    mortal: bool = False
    stands_until: int = 0
    dead: bool = False
    done: bool = False
    failure: BaseException | None = None
    turn: Lock = field(default_factory=Lock)


@dataclass
class ModelSchedule:
    """Passes the turn.

    Attributes:
        random: decides.
        between: what the world does between two steps.
        actors: all of them.
        steps: how many pauses there were.
        failure: what went wrong in an actor.
    """

    random: Random
    between: Callable[[], None]
    actors: list[Actor] = field(default_factory=list)
    steps: int = 0
    failure: BaseException | None = None
    _now: Actor | None = None
    _end: Lock = field(default_factory=Lock)

    def add(self, name: str, work: Callable[[], None], *, mortal: bool = False) -> None:
        """One more actor."""
        actor = Actor(name, work, mortal)
        actor.turn.acquire()
        self.actors.append(actor)

    @property
    def running(self) -> bool:
        """Whether anything else may happen."""
        return self._now is not None

    def run(self) -> None:
        """Let all of them run to their ends.

        Raises:
            BaseException: what went wrong in one of them.
        """
        threads = [Thread(target=self._live, args=(actor,), daemon=True) for actor in self.actors]
        for thread in threads:
            thread.start()
        self._end.acquire()
        self._pass_on()
        self._end.acquire()
        for thread in threads:
            thread.join()
        self._end.release()
        if self.failure is not None:
            raise self.failure

    def pause(self) -> None:
        """The point at which anything else may happen. Outside of a run nothing does.

        Raises:
            Killed: the actor dies here.
        """
        actor = self._now
        if actor is None:
            return
        self.steps += 1
        self.between()
        draw = self.random.random()
        if draw < 0.02:
            actor.stands_until = self.steps + self.random.randrange(300)
        elif draw < 0.026 and actor.mortal:
            actor.dead = True
        elif draw < 0.4 and not self._over():
            return
        following = self._choose()
        if following is not actor:
            self._now = following
            following.turn.release()
            actor.turn.acquire()
        if actor.dead or self._over():
            raise Killed

    def _over(self) -> bool:
        return self.failure is not None

    def _live(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            if not self._over():
                actor.work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told by `run`, whatever it is
            self.failure = self.failure or error
        actor.done = True
        self._pass_on()

    def _pass_on(self) -> None:
        if all(actor.done for actor in self.actors):
            self._now = None
            self._end.release()
            return
        self._now = self._choose()
        self._now.turn.release()

    def _choose(self) -> Actor:
        alive = [actor for actor in self.actors if not actor.done]
        awake = [actor for actor in alive if actor.stands_until <= self.steps]
        if awake:
            return awake[self.random.randrange(len(awake))]
        return min(alive, key=lambda actor: actor.stands_until)
