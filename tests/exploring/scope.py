"""How to explore a capability: write its `Capability`, and name it in `tests/exploring/scopes.py`.

A scope is a module `tests/exploring/<capability>_scope.py`; `sequence_scope.py` is the example to
read first. It says:

- **calls**: a name, and a function of `CountLedger`. Return plain values (numbers, texts, tuples);
  errors of the product are answers, you need not catch them. Give keys, ids and times literally.
- **scripts**: what one actor does: the names of one call, or of several one after the other. Every
  pair of scripts is explored from every start.
- **starts**: for each a function that prepares the tables (it may call whatever it likes: nothing
  goes wrong there) and the state of the model that this makes.
- **model**: a function of a state (any value that can be hashed) and the name of a call; it yields
  an `Effect(answer, state after)` for everything that the call may do in that state, one moment.
  An answer is an equal value, the type of an error, or a function that accepts an answer.
- **agrees**: whether a state of the model is what the tables show at the end (`Contents.tables`
  by name; the keys are pairs). Compare what a user sees, by the product's own decoding.
- **holds**: what else must be so at each end, if it is not about the order of the calls.
- **masks**: an effect that is allowed only because the guide documents it gets a `Masked` with the
  file and the sentence. A test checks that the sentence is there, another one that each mask is
  needed by some schedule. Never mask what is not documented.
- **certainty**: only if answers other than errors say *unknown*: `MAYBE` for those. A `MAYBE` may
  have had its effect, or has it later within the life of a request, or never; `NONE` never has it.
- **prepare**: reads that each actor makes before it begins (`namespaces.get`): not explored, so
  they cost no states.
- **echoes**: the call that may happen once more for a call whose attempts were unclear, where the
  guide documents that (a number that is lost). With the mask.
- **faults**: how many, where `fewer_beside_more` makes a case too large; name it in `NOT_EXPLORED`.
- **canaries** (`canaries.py`): a rule, how to switch it off (`patch.setattr` of one condition), the
  case, and within how many states the search must find it.

Run `python -m tests.exploring claims`, or one case of it: `--case "free: take | release"`. A found
violation prints the schedule, and the line that replays it. `make explore` runs everything.

The size of a search: two scripts of one call with one fault are some thousand states; a call with
ten requests beside another one, some ten thousand. Some 3,000 states take a second. Keep scripts
short, and set `Bounds.jumps_ms` to the times that the capability knows (a claim: the life of a
tombstone); fewer of them make it faster. Where a token or a tombstone is forgotten while a request
is late, let time pass without a fault (`free_jumps`): a search is about four times as large then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from countledger.ledger.limits import HOUR_MS
from tests.exploring.actor import Actor, Beginning, Part, Pausing
from tests.exploring.client import Sending
from tests.exploring.linear import (
    Called,
    Certainty,
    Effect,
    Masked,
    calls_of,
    certainty_of,
    order_of,
)
from tests.exploring.search import Bounds, Found, Search
from tests.exploring.world import BEGIN_MS, Contents, World

if TYPE_CHECKING:
    from countledger.client import CountLedger
    from tests.exploring.linear import Model
    from tests.exploring.search import Situation

# The names of the calls of an actor.
Script: TypeAlias = tuple[str, ...]
_NAMES = "ABC"


class Beginnings(NamedTuple):
    """How a world begins.

    Attributes:
        setup: prepares the tables, an hour before.
        state: what that is in the model.
    """

    setup: Callable[[CountLedger], object]
    state: Any


class Echo(NamedTuple):
    """A call that may happen once more, after an unclear attempt of another one.

    Attributes:
        call: its name.
        masked: the sentence that documents it.
    """

    call: str
    masked: Masked


def fewer_beside_more(scripts: tuple[Script, ...]) -> int:
    """A script alone with two faults, a pair with one, three without."""
    return 3 - len(scripts)


def no_echo(_call: str) -> Echo | None:
    """No call happens twice."""
    return None


@dataclass(frozen=True, slots=True)
class Capability:
    """What is explored of a capability; see the module.

    Attributes:
        name: of the capability.
        calls: what each does, by its name.
        scripts: what one actor may do.
        starts: how the world may begin, by name.
        model: what each call may do.
        agrees: whether a state of the model is what the tables show.
        holds: what else must be so at each end: by answers, deaths and tables.
        masks: every exception that the model and the echoes name.
        prepare: what each actor reads before it begins.
        certainty: what an answer says.
        echo: the call that may happen once more.
        watch: changes the world itself when a table changes, as the stream's functions do.
        bounds: of its searches; the number of faults is that of `faults`.
        faults: with how many faults the scripts of one, two or three actors are explored; None:
            they are not.
        alone_jumps_ms: the times that may pass in searches of one script with two faults, where a
            request may be late as well; none: those of `bounds`.
        offsets_ms: how far the clock of each actor is ahead.
        setup_before_ms: how long before the world begins it was set up.
    """

    name: str
    calls: Mapping[str, Callable[[CountLedger], object]]
    scripts: tuple[Script, ...]
    starts: Mapping[str, Beginnings]
    model: Model
    agrees: Callable[[Any, Contents], bool]
    holds: Callable[[Situation], bool] = lambda _: True
    masks: tuple[Masked, ...] = ()
    prepare: Callable[[CountLedger], object] = lambda _: None
    certainty: Callable[[object], Certainty] = certainty_of
    echo: Callable[[str], Echo | None] = no_echo
    watch: Callable[[World], object] = lambda _: None
    bounds: Bounds = field(default_factory=Bounds)
    faults: Callable[[tuple[Script, ...]], int | None] = fewer_beside_more
    alone_jumps_ms: tuple[int, ...] = ()
    offsets_ms: tuple[int, ...] = (0, 0, 0)
    setup_before_ms: int = HOUR_MS

    def cases(self) -> Iterator[Case]:
        """Each pair, each script alone, triples of calls: unless `faults` leaves them out."""
        single = [script for script in self.scripts if len(script) == 1]
        for scripts, actors in ((self.scripts, 2), (self.scripts, 1), (single, 3)):
            for start in self.starts:
                for chosen in combinations_with_replacement(scripts, actors):
                    if self.faults(chosen) is not None:
                        yield Case(self, start, chosen, self.bounds_of(chosen))

    def bounds_of(self, scripts: tuple[Script, ...]) -> Bounds:
        """How far a search of these scripts goes."""
        jumps_ms = self.bounds.jumps_ms
        if len(scripts) == 1:
            jumps_ms = self.alone_jumps_ms or jumps_ms
        return replace(self.bounds, faults=self.faults(scripts) or 0, jumps_ms=jumps_ms)


@dataclass(frozen=True, slots=True)
class Case:
    """One search: a start, and what each actor does.

    Attributes:
        capability: whose.
        start: the name of its start.
        scripts: of the actors.
        bounds: how far the search goes.
    """

    capability: Capability
    start: str
    scripts: tuple[Script, ...]
    bounds: Bounds

    def __str__(self) -> str:
        """As `--case` takes it: `free: take | release, take`."""
        return f"{self.start}: {' | '.join(', '.join(script) for script in self.scripts)}"

    @classmethod
    def parse(cls, capability: Capability, text: str, bounds: Bounds) -> Case:
        """The case that `str` wrote."""
        start, _, scripts = text.partition(": ")
        parted = [tuple(script.split(", ")) for script in scripts.split(" | ")]
        return cls(capability, start, tuple(parted), bounds)

    def search(self) -> tuple[Search, Situation]:
        """Its search, and where that begins."""
        world = World()
        self.capability.watch(world)
        begin = self.capability.starts[self.start]
        contents = set_up(world, begin.setup, self.capability.setup_before_ms)
        calls, prepare = self.capability.calls, self.capability.prepare
        parts = tuple(
            Part(_NAMES[n], tuple((name, calls[name]) for name in script), prepare, offset_ms)
            for n, (script, offset_ms) in enumerate(
                zip(self.scripts, self.capability.offsets_ms, strict=False)
            )
        )
        search = Search(parts, self.bounds, world)
        return search, search.begin(contents)

    def run(self, *, count: bool = False) -> Found:
        """Search it."""
        search, first = self.search()
        return search.run(first, Linearity(self).judge, count=count)


@dataclass(eq=False, slots=True)
class Linearity:
    """Judges the ends of a case by the model of its capability.

    Attributes:
        case: which.
        needed: the masks without which some schedule would be wrong.
    """

    case: Case
    needed: set[Masked] = field(default_factory=set)
    _judged: dict[object, bool] = field(default_factory=dict)

    def judge(self, state: Situation) -> str | None:
        """What is wrong with a state, if it is an end."""
        if not state.over:
            return None
        numbers = tuple((one.number, one.at_ms) for one in state.places)
        tables = tuple(id(items) for items in state.contents.tables.values())
        known = numbers, state.dead, state.starts, tables, state.faults > 0
        if known not in self._judged:
            self._judged[known] = self._is_right(state)
        if not self._judged[known]:
            return "no order of the calls gives these answers"
        return None if self.case.capability.holds(state) else "the tables do not agree"

    def _is_right(self, state: Situation) -> bool:
        capability, begin = self.case.capability, self.case.capability.starts[self.case.start]
        life_ms = self.case.bounds.life_ms
        calls = [*calls_of(state, capability.certainty, life_ms)]

        def agrees(model_state: object) -> bool:
            return capability.agrees(model_state, state.contents)

        if order_of(calls, capability.model, begin.state, agrees, masks=False) is not None:
            return True
        echoes = [*self._echoes(calls)] * state.faults  # one for each unclear attempt
        needed = order_of([*calls, *echoes], capability.model, begin.state, agrees)
        self.needed.update(needed or ())
        return needed is not None

    def _echoes(self, calls: Iterable[Called]) -> Iterator[Called]:
        for one in calls:
            echo = self.case.capability.echo(one.call)
            if echo is not None:
                yield replace(
                    one,
                    call=echo.call,
                    certainty=Certainty.MAYBE,
                    until_ms=one.until_ms + self.case.bounds.life_ms,
                    masked=echo.masked,
                )


def set_up(
    world: World, setup: Callable[[CountLedger], object], before_ms: int = HOUR_MS
) -> Contents:
    """What a setup makes of empty tables: an actor whom nothing meets."""
    now_ms = BEGIN_MS - before_ms
    contents = Contents(world.contents.tables, {})
    actor = Actor(Part("setup", (("set up", setup),)), 0, world, now_ms)
    stop = actor.resume(None, now_ms)
    while not actor.over:
        answer = None
        match stop:
            case Sending() as sending:
                actor.resume(None, now_ms)
                contents, answer = world.carry_out(contents, now_ms, sending.request)
            case Pausing(duration_ms):
                now_ms += int(duration_ms)
            case Beginning():
                pass
        stop = actor.resume(answer, now_ms)
    (told,) = actor.told
    if isinstance(told.answer, Exception):
        raise told.answer
    return Contents(contents.tables, {})


__all__ = ["Beginnings", "Capability", "Case", "Echo", "Effect", "Masked", "set_up"]
