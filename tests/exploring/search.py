"""The search over states: fewest faults first, then fewest steps, so a counterexample is minimal.

A state is what the tables contain, the request tokens, the time, how far each actor is, and which
requests are under way without a caller. One step is a request and its answer, a pause, the begin of
a call, the landing of a late request, time that passes, items that expire, or what the world does
by itself: a version of an item arrives in another region.

Faults, each counted:

- **late**: the caller gets no answer; the request lands at any later moment within its life, or
  never. If it lands at once, only the answer was lost.
- **death**: the process dies; its request is under way, as above.
- **throttle**, **conflict**: the service refuses a write. (A throttle after which the SDK sends
  the same request again is the same as a wait.)
- **jump**: time passes, for everybody, between two steps. Afterwards what has expired may be gone.
- **stale**: an eventual read shows the tables as they were before the last write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from countledger.infra.memory.tables import Conflict
from countledger.ledger.errors import Reason, Throttled, TransactionCancelled
from countledger.ledger.limits import MINUTE_MS, SECOND_MS, SIGNED_REQUEST_LIFE_MS
from tests.exploring.actor import Beginning, Left, Pausing
from tests.exploring.client import Sending
from tests.exploring.history import Histories, History
from tests.exploring.world import BEGIN_MS, Answer, Contents, Hashes, Items, World, plain

if TYPE_CHECKING:
    from tests.exploring.actor import Part


class Fault(StrEnum):
    """What may go wrong, once for each fault that a search allows."""

    LATE = "late"
    DEATH = "death"
    THROTTLE = "throttle"
    CONFLICT = "conflict"
    JUMP = "jump"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a search goes.

    Attributes:
        faults: how many at the most.
        kinds: which of them.
        jumps_ms: how much time may pass at once.
        jumps: how often, at the most.
        free_jumps: whether that is no fault: a late request may land after such a time as well.
        late: how many requests are under way without a caller, at the most.
        states: after how many states the search ends, incomplete.
        life_ms: how long after it was sent a request may land.
        alike: whether actors that do the same may change places: the first of them begins first.
        quiet: of a read, as it is shown: whether no request of the world changes what it finds, so
            that it makes no difference when it is answered. It is answered at once, and not shown.
    """

    faults: int = 1
    kinds: frozenset[Fault] = frozenset(Fault) - {Fault.STALE}
    jumps_ms: tuple[int, ...] = (12 * MINUTE_MS, 61 * MINUTE_MS)
    jumps: int = 1
    free_jumps: bool = False
    late: int = 2
    states: int = 2_000_000
    life_ms: int = SIGNED_REQUEST_LIFE_MS
    alike: bool = False
    quiet: Callable[[str], bool] = lambda _: False


class Start(NamedTuple):
    """When a call began.

    Attributes:
        told: how many calls of each actor had ended by then.
        at_ms: the time.
    """

    told: tuple[int, ...]
    at_ms: int


class Move(NamedTuple):
    """One step, for people.

    Attributes:
        actor: whose, or -1.
        what: it does.
        answer: that it got, if any.
    """

    actor: int
    what: str
    answer: Answer | None = None


@dataclass(slots=True)
class Situation:
    """One state of the search.

    Attributes:
        contents: of the tables.
        before: the contents before the last write, which a stale read shows.
        now_ms: the time.
        places: how far each actor is.
        dead: whether each has died.
        late: the requests under way without a caller: the history that sent each, and when.
        starts: when each actor began each of its calls.
        faults: how many there were.
        jumps: how often time has passed.
        key: equal for states from which the same follows.
        origin: the state before, and which of its successors this is; None: the first.
        move: the step that led here.
    """

    contents: Contents
    before: Contents
    now_ms: int
    places: tuple[History, ...]
    dead: tuple[bool, ...]
    late: tuple[tuple[int, int], ...] = ()
    starts: tuple[tuple[Start, ...], ...] = ()
    faults: int = 0
    jumps: int = 0
    key: int = 0
    origin: tuple[Situation, int] | None = None
    move: Move = Move(-1, "the world begins")  # noqa: RUF009 - a value

    @property
    def over(self) -> bool:
        """Whether every actor has ended or died."""
        return all(dead or place.ended for dead, place in zip(self.dead, self.places, strict=True))

    def path(self) -> list[Situation]:
        """The states from the first one to this one."""
        found, one = [self], self
        while one.origin is not None:
            one = one.origin[0]
            found.append(one)
        return found[::-1]

    def choices(self) -> tuple[int, ...]:
        """Which successor was chosen in each state, from the first one on."""
        return tuple(one.origin[1] for one in self.path() if one.origin is not None)


# Says what is wrong with a state, or None.
Judge: TypeAlias = Callable[[Situation], str | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """A state that must not be.

    Attributes:
        problem: what is wrong with it.
        found: the state.
    """

    problem: str
    found: Situation


@dataclass(slots=True)
class Found:
    """What a search has found.

    Attributes:
        states: how many were looked at.
        complete: whether that was all of them.
        schedules: how many ways lead to an end; 0 if the search is not complete.
        violation: the first one, or None.
    """

    states: int = 0
    complete: bool = True
    schedules: int = 0
    violation: Violation | None = None


@dataclass(eq=False)
class Search:
    """The search of one case.

    Attributes:
        parts: what each actor does.
        bounds: how far it goes.
        world: what requests work on.
        histories: of the actors.
    """

    parts: tuple[Part, ...]
    bounds: Bounds
    world: World
    histories: Histories = field(init=False)
    _hashes: Hashes = field(default_factory=Hashes)
    _ends: dict[int, int] = field(default_factory=dict)
    _requests: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """No actor has begun."""
        self.histories = Histories(self.parts, self.world)

    def begin(self, contents: Contents) -> Situation:
        """The first state: every actor is prepared, and has done nothing."""
        actors = range(len(self.parts))
        places = tuple(self.histories.begin(actor, contents, BEGIN_MS) for actor in actors)
        first = Situation(contents, contents, BEGIN_MS, places, (False,) * len(places))
        first.starts = ((),) * len(places)
        return self._keyed(first)

    def run(self, first: Situation, judge: Judge, *, count: bool = True) -> Found:
        """Look at every state that follows from the first one, until one is wrong.

        Args:
            first: where to begin.
            judge: of each state.
            count: whether to count the schedules, which needs the whole graph.
        """
        found, seen, graph = Found(), set[int](), dict[int, tuple[tuple[int, ...], bool]]()
        queues = [deque[Situation]() for _ in range(self.bounds.faults + 1)]
        queues[0].append(first)
        for queue in queues:
            while queue:
                state = queue.popleft()
                if state.key in seen:
                    continue
                if found.states >= self.bounds.states:
                    found.complete = False
                    return found
                seen.add(state.key)
                found.states += 1
                if problem := judge(state):
                    found.violation = Violation(problem, state)
                    return found
                after = [*self.successors(state)]
                for one in after:
                    if one.key not in seen:
                        queues[one.faults].append(one)
                if count:
                    graph[state.key] = tuple(one.key for one in after), state.over
        if count:
            found.schedules = _ways(first.key, graph)
        return found

    def successors(self, state: Situation) -> Iterator[Situation]:
        """The states that follow in one step, always in the same order."""
        for number, made in enumerate(self._steps(state)):
            made.origin = state, number
            yield self._keyed(made)

    def _steps(self, state: Situation) -> Iterator[Situation]:
        for actor, place in enumerate(state.places):
            if not state.dead[actor] and not place.ended and not self._waits(state, actor):
                yield from self._act(state, actor, place)
        yield from self._land(state)
        yield from self._happen(state)
        yield from self._pass_time(state)
        if state.jumps:
            yield from _expire(state)

    def _waits(self, state: Situation, actor: int) -> bool:
        """Whether an actor that does the same is to begin first."""
        if not self.bounds.alike or state.starts[actor]:
            return False
        mine, others = self.parts[actor], range(actor)
        return any(not state.starts[n] and self.parts[n].is_like(mine) for n in others)

    def _past_quiet(self, state: Situation, actor: int) -> Situation:
        """Answer the quiet reads of an actor at once, unless its call ends with them.

        Then the call of another actor might begin before that, or after it. Nor if the actor looks
        at its clock after a read: time might pass before that. A death at such a read is that at
        the request which follows.
        """
        place = state.places[actor]
        while isinstance(stop := place.stop, Sending) and self.bounds.quiet(stop.what):
            left = self.histories.step(place, None, state.now_ms)
            _, answer = self.world.carry_out(state.contents, state.now_ms, stop.request)
            place = self.histories.step(left, answer, state.now_ms)
            if not isinstance(place.stop, Sending) or place.timed:
                return state
            state = _moved(state, actor, place, state.move)
        return state

    # ---- the steps of an actor ----

    def _act(self, state: Situation, actor: int, place: History) -> Iterator[Situation]:
        match place.stop:
            case Beginning(call):
                made = self._go_on(state, actor, place, None, Move(actor, f"begins {call}"))
                told = tuple(len(one.told) for one in state.places)
                starts = [*state.starts]
                starts[actor] = *starts[actor], Start(told, state.now_ms)
                made.starts = tuple(starts)
                yield made
            case Pausing(duration_ms):
                now_ms = max(state.now_ms, place.at_ms + int(duration_ms))
                later = self._at(state, now_ms)
                move = Move(actor, f"has waited {duration_ms / SECOND_MS:g} s")
                yield self._go_on(later, actor, place, None, move)
            case Sending() as sending:
                left = self.histories.step(place, None, state.now_ms)
                if isinstance(left.stop, Left):
                    yield from self._answer(state, actor, left, sending)
                else:
                    move = Move(actor, f"{sending.what}: not sent, its deadline is over")
                    yield _moved(state, actor, left, move)

    def _answer(
        self, state: Situation, actor: int, left: History, sending: Sending
    ) -> Iterator[Situation]:
        """A request that is under way is answered; or it is not."""
        contents, answer = self.world.carry_out(state.contents, state.now_ms, sending.request)
        made = self._go_on(state, actor, left, answer, Move(actor, sending.what, answer))
        yield _with(made, contents)
        if state.faults >= self.bounds.faults:
            return
        kinds, under_way = self.bounds.kinds, _number_of(left)
        for fault, error in _refusals(sending, self.bounds.faults):
            if fault in kinds:
                answer = Answer(error=error)
                made = self._go_on(state, actor, left, answer, Move(actor, sending.what, answer))
                yield _faulty(made)
        if sending.eventual and Fault.STALE in kinds and state.before is not state.contents:
            _, answer = self.world.carry_out(state.before, state.now_ms, sending.request)
            move = Move(actor, f"{sending.what}, as of before", answer)
            yield _faulty(self._go_on(state, actor, left, answer, move))
        if sending.writes and Fault.LATE in kinds and len(state.late) < self.bounds.late:
            answer = Answer(error=sending.lost)
            move = Move(actor, f"{sending.what}: under way, without an answer", answer)
            made = self._go_on(state, actor, left, answer, move)
            made.late = tuple(sorted((*state.late, (under_way, state.now_ms))))
            yield _faulty(made)
        if Fault.DEATH in kinds:
            dead = replace(left, at_ms=state.now_ms, alive=None, after={})
            made = _moved(state, actor, dead, Move(actor, f"dies; under way is {sending.what}"))
            made.dead = *state.dead[:actor], True, *state.dead[actor + 1 :]
            if sending.writes:
                made.late = tuple(sorted((*state.late, (under_way, state.now_ms))))
            yield _faulty(made)

    def _go_on(
        self, state: Situation, actor: int, place: History, answer: Answer | None, move: Move
    ) -> Situation:
        made = _moved(state, actor, self.histories.step(place, answer, state.now_ms), move)
        return self._past_quiet(made, actor)

    # ---- the steps of the world ----

    def _land(self, state: Situation) -> Iterator[Situation]:
        for place, late in enumerate(state.late):
            if late in state.late[:place]:
                continue
            sender = self.histories.known[late[0]]
            if not isinstance(sender.stop, Sending):
                raise TypeError(f"{sender.stop} is no request")
            contents, answer = self.world.carry_out(
                state.contents, state.now_ms, sender.stop.request
            )
            move = Move(-1, f"the late request {sender.stop.what} lands", answer)
            made = _moved(state, sender.actor, state.places[sender.actor], move)
            made.late = *state.late[:place], *state.late[place + 1 :]
            yield _with(made, contents)

    def _happen(self, state: Situation) -> Iterator[Situation]:
        """What the world does by itself."""
        if not self.world.steps:
            return
        self.world.show(state.contents, state.now_ms)
        steps = [step for some in self.world.steps for step in some()]
        for what, step in steps:
            contents, _ = self.world.carry_out(state.contents, state.now_ms, step)
            yield _with(_moved(state, 0, state.places[0], Move(-1, what)), contents)

    def _pass_time(self, state: Situation) -> Iterator[Situation]:
        bounds = self.bounds
        if Fault.JUMP not in bounds.kinds or (state.over and not state.late):
            return
        free = bounds.free_jumps
        if state.jumps >= bounds.jumps or not (free or state.faults < bounds.faults):
            return
        for duration_ms in bounds.jumps_ms:
            made = self._at(state, state.now_ms + duration_ms)
            made.jumps += 1
            made.move = Move(-1, f"{duration_ms / MINUTE_MS:g} minutes pass")
            yield made if free else _faulty(made)

    def _at(self, state: Situation, now_ms: int) -> Situation:
        """A state at a later time: what is older than the life of a request lands no more."""
        made = _moved(state, 0, state.places[0], state.move)
        made.now_ms = now_ms
        made.late = tuple(one for one in state.late if now_ms - one[1] <= self.bounds.life_ms)
        return made

    def _keyed(self, state: Situation) -> Situation:
        before = 0
        if Fault.STALE in self.bounds.kinds:
            before = self._hashes.contents(state.before)
        places = zip(state.places, state.dead, strict=True)
        state.key = hash(
            (
                self._hashes.contents(state.contents),
                before,
                state.now_ms,
                tuple(self._future(place, dead=dead) for place, dead in places),
                tuple(sorted((self._request(number), sent) for number, sent in state.late)),
                state.starts,
                state.jumps,
            )
        )
        return state

    def _future(self, place: History, *, dead: bool) -> int:
        """Equal for histories from which the same follows: after an actor's end only its answers.

        What it has read to get there makes no difference any more.
        """
        if not dead and not place.ended:
            return place.number
        if place.number not in self._ends:
            self._ends[place.number] = hash(plain(place.told))
        died = (place.call, place.at_ms) if dead else None
        return hash((died, self._ends[place.number]))

    def _request(self, number: int) -> int:
        """Equal for histories that have sent the same request."""
        known = self._requests.get(number)
        if known is None:
            stop = self.histories.known[number].stop
            known = self._requests[number] = hash(getattr(stop, "what", number))
        return known


def _number_of(left: History) -> int:
    """The number of the history that sent the request which has left."""
    if left.before is None:
        raise AssertionError("a request was sent by nobody")
    return left.before.number


def _moved(state: Situation, actor: int, place: History, move: Move) -> Situation:
    places = *state.places[:actor], place, *state.places[actor + 1 :]
    return Situation(
        state.contents,
        state.before,
        state.now_ms,
        places,
        state.dead,
        state.late,
        state.starts,
        state.faults,
        state.jumps,
        move=move,
    )


def _with(state: Situation, contents: Contents) -> Situation:
    if contents is state.contents:
        return state
    if any(contents.tables[name] is not items for name, items in state.contents.tables.items()):
        state.before = state.contents
    state.contents = contents
    return state


def _faulty(state: Situation) -> Situation:
    state.faults += 1
    return state


def _refusals(sending: Sending, faults: int) -> Iterator[tuple[Fault, Exception]]:
    """By what a write may be refused, although nothing is wrong with it.

    A throttled request that the SDK sends again is the same as one that was sent a moment later.
    """
    if sending.writes and sending.items:
        if sending.attempts <= faults:
            yield Fault.THROTTLE, _THROTTLED
        yield Fault.CONFLICT, _CONFLICT if sending.items == 1 else _cancelled(sending.items)


_THROTTLED: Final = Throttled("throttled")
_CONFLICT: Final = Conflict("TransactionConflictException")


def _cancelled(items: int) -> TransactionCancelled:
    return TransactionCancelled((Reason("TransactionConflict"), *[Reason("None")] * (items - 1)))


def _expire(state: Situation) -> Iterator[Situation]:
    """All that has expired is deleted."""
    kept: dict[str, Items] = {}
    for name, items in state.contents.tables.items():
        left = {key: item for key, item in items.items() if not _is_over(item, state.now_ms)}
        kept[name] = items if len(left) == len(items) else left
    if all(kept[name] is items for name, items in state.contents.tables.items()):
        return
    made = _moved(state, 0, state.places[0], Move(-1, "what has expired is deleted"))
    yield _with(made, Contents(kept, state.contents.tokens))


def _is_over(item: object, now_ms: int) -> bool:
    expires_at = item.get("expires_at") if isinstance(item, dict) else None
    return isinstance(expires_at, int) and expires_at * SECOND_MS < now_ms


def _ways(first: int, graph: dict[int, tuple[tuple[int, ...], bool]]) -> int:
    """How many ways lead from a state to an end."""
    known: dict[int, int] = {}
    left = [first]
    while left:
        key = left[-1]
        after, over = graph[key]
        missing = [one for one in after if one not in known]
        if key not in known and missing:
            left += missing
            continue
        left.pop()
        known.setdefault(key, int(over) + sum(known[one] for one in after))
    return known[first]
