"""The laws of keys, of retries and of finality, once, for everything that counts.

Each law is tested on a stack in memory, for every row of `tests/unit/capabilities.py`. Where a law
is about *any moment*, it is tested at each request of the call in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TypeVar

import pytest

from countledger import CountLedger, CountledgerError, IdempotencyKey
from countledger.ledger.errors import BadInput, Unclear
from countledger.testing import MemoryStack
from tests.unit.capabilities import (
    AMOUNT,
    CAPABILITIES,
    KEY,
    OTHER_KEY,
    SETTINGS,
    UNKEYED,
    Capability,
    Said,
    Setting,
    said,
)

# A token is forgotten by then, and a request that was signed before may still land.
_LATE = timedelta(minutes=12)
_SECOND = timedelta(seconds=1)
# More than any call sends.
_ALL_ATTEMPTS = 40
_DONE = (Said.COUNTED, Said.DUPLICATE)
_OUT = (Said.WITHDRAWN, Said.REFUSED, Said.NOT_YET)
# What may be counted, by what a call says.
_COUNTED = {
    Said.COUNTED: (AMOUNT,),
    Said.DUPLICATE: (AMOUNT,),
    Said.UNCLEAR: (0, AMOUNT),
    Said.NOT_YET: (0,),
    Said.REFUSED: (0,),
    Said.REUSED: (0,),
}


class Stack:
    """A stack whose time passes by waits only, and which delivers nothing."""

    def __init__(self) -> None:
        self.stack = MemoryStack(at=datetime(2030, 1, 10, 12, tzinfo=UTC))
        self.stack.hold_stream()

    def another(self) -> CountLedger:
        """Another process, which has read nothing yet."""
        to = self.stack.ledger.connection
        made = CountLedger(to.settings, session=to.session)
        made.connection = replace(to, _shared={})
        return made

    def nothing_more_goes_wrong(self) -> None:
        """What no request has met is planned no more; what is late is late."""
        self.stack._memory.faults._planned.clear()

    def land(self) -> None:
        """What is late lands."""
        self.stack.land()

    def much_later(self) -> None:
        """Tokens are forgotten; then what is late lands."""
        self.stack.advance(minutes=_LATE.total_seconds() / 60)
        self.land()

    def now(self, ago: timedelta = timedelta(0)) -> datetime:
        return self.stack.clock.now - ago


class World(Stack):
    """A stack with what a row has prepared."""

    def __init__(self, row: Capability) -> None:
        super().__init__()
        self.row = row
        self.made = row.prepare(self.stack.ledger)
        self.others: list[Said] = []
        self.error = ""

    def call(
        self, amount: int = AMOUNT, key: str | IdempotencyKey = KEY, by: CountLedger | None = None
    ) -> Said:
        """Call it; what it answers. `error` is what an error says."""
        try:
            return said(self.row.call(by or self.stack.ledger, self.made, amount, key))
        except CountledgerError as error:
            self.error = str(error)
            return said(error)

    def other_calls(self, amount: int = AMOUNT) -> None:
        """Another process calls it under the same key."""
        self.others.append(self.call(amount, by=self.another()))

    @property
    def number(self) -> object:
        """What the calls have counted."""
        return self.row.number(self.stack.ledger, self.made)

    def take(self) -> None:
        """Another call takes what the row's call needs."""
        assert self.row.take is not None
        self.row.take(self.stack.ledger, self.made)

    def give_back(self) -> None:
        self.row.give_back(self.stack.ledger, self.made)


_World = TypeVar("_World", bound=Stack)


def each_request(
    make: Callable[[], _World],
    plan: Callable[[_World], object],
    first: Callable[[_World], object] = lambda _: None,
    begin: int = 0,
) -> Iterator[_World]:
    """A world for each request of a call, in which something happens just before that request.

    Args:
        make: makes a world.
        plan: what happens.
        first: what is planned before; the requests are counted from where that was met.
        begin: the number of the first one, from 0.
    """
    for number in count(begin):
        world, met = make(), list[int]()

        def happens(world: _World = world, met: list[int] = met) -> None:
            met.append(1)
            plan(world)

        first(world)
        world.stack.before_next_request(happens, skip=number)
        yield world
        if not met:
            assert number > begin
            return


def rows(which: Callable[[Capability], object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [one for one in CAPABILITIES if which(one)], ids=str)


# ---- keys -------------------------------------------------------------------------------------


@rows(lambda row: row.repeats)
def test_a_repeated_call_counts_once_in_every_process(row: Capability) -> None:
    world = World(row)

    told = [world.call(), world.call(), world.call(by=world.another())]

    assert told == [Said.COUNTED, Said.DUPLICATE, Said.DUPLICATE]
    assert world.number == AMOUNT


@rows(lambda row: row.reused)
def test_the_same_key_with_another_content_is_refused_by_name(row: Capability) -> None:
    world = World(row)
    world.call()

    told = [world.call(AMOUNT - 1), world.call(AMOUNT - 1, by=world.another())]

    assert told == [row.reused] * 2
    assert KEY in world.error or not (row.keyed and row.reused is Said.REUSED)
    assert world.number == AMOUNT


@rows(lambda row: row.keyed)
def test_another_key_is_another_change(row: Capability) -> None:
    world = World(row)

    assert [world.call(), world.call(key=OTHER_KEY)] == [Said.COUNTED] * 2
    assert world.number == (2 * AMOUNT if row.sums else AMOUNT)


@rows(lambda row: row.elsewhere)
def test_the_same_key_for_another_counter_is_another_change(row: Capability) -> None:
    world = World(row)
    assert row.elsewhere is not None
    world.call()

    assert said(row.elsewhere(world.stack.ledger, world.made, AMOUNT - 1, KEY)) is Said.COUNTED
    assert world.number == AMOUNT


@rows(lambda row: row.life)
def test_a_key_and_its_time_are_one_identity(row: Capability) -> None:
    world = World(row)
    now = world.now()
    first, second = (IdempotencyKey(KEY, now - n * _SECOND) for n in range(2))

    told = [world.call(key=key) for key in (first, second, first)]

    assert told == [Said.COUNTED, Said.COUNTED, Said.DUPLICATE]
    assert world.number == (2 * AMOUNT if row.sums else AMOUNT)


@rows(lambda row: row.life)
def test_a_key_too_old_to_be_remembered_and_one_of_the_future_are_refused(row: Capability) -> None:
    """Whether it was counted is no longer known; another clock may forget it too early."""
    world = World(row)
    assert row.life is not None
    old, ahead = (world.now(ago) for ago in (row.life + _SECOND, timedelta(minutes=-2)))

    told = [world.call(key=IdempotencyKey(KEY, at)) for at in (old, ahead)]

    assert told == [Said.EXPIRED, Said.AHEAD]
    assert KEY in world.error
    assert world.number == 0
    assert world.call(key=IdempotencyKey(KEY, world.now(row.life - _SECOND))) is Said.COUNTED


@rows(lambda row: row.remembers)
def test_a_bare_key_is_remembered_for_its_window(row: Capability) -> None:
    world = World(row)
    assert row.remembers is not None
    world.call()

    world.stack.advance(seconds=row.remembers.total_seconds() - 1)
    assert world.call() is Said.DUPLICATE

    world.stack.advance(hours=1)
    assert world.call() is Said.COUNTED
    assert world.number == (2 * AMOUNT if row.sums else AMOUNT)


@rows(lambda row: row.remake)
def test_what_was_deleted_and_created_again_knows_no_key_of_before(row: Capability) -> None:
    """Neither the process that knows the old one, nor a late request of it."""
    world = World(row)
    assert row.remake is not None
    world.stack.delay_next()
    assert world.call() is Said.COUNTED
    row.remake(world.another(), world.made)
    world.stack.land()
    assert world.number == 0

    assert world.call(by=world.another()) is Said.COUNTED
    assert world.number == AMOUNT


# ---- retries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose_next_answer", "delay_next", "fail_next", "throttle"])
@rows(lambda _: True)
def test_a_call_that_meets_a_fault_counts_once(row: Capability, fault: str) -> None:
    """Applied and lost, late, lost before, throttled: at each of its requests."""
    for world in each_request(partial(World, row), lambda world: getattr(world.stack, fault)()):
        assert world.call() is Said.COUNTED
        world.nothing_more_goes_wrong()
        assert world.number == AMOUNT
        if row.repeats:
            assert world.call() is Said.DUPLICATE
        if row.reused:
            assert world.call(AMOUNT - 1) is row.reused
            assert world.call(AMOUNT - 1, by=world.another()) is row.reused
        world.much_later()
        assert world.number == AMOUNT


@rows(lambda _: True)
def test_a_request_that_lands_during_its_call_counts_once(row: Capability) -> None:
    """Before any of the requests that follow it."""
    for world in each_request(
        partial(World, row), World.land, lambda world: world.stack.delay_next()
    ):
        assert world.call() is Said.COUNTED
        assert world.number == AMOUNT


@rows(lambda _: True)
def test_a_call_that_is_suspended_after_a_lost_answer_counts_once_at_the_most(
    row: Capability,
) -> None:
    """Its token is forgotten by then; its late request lands before any of its later ones."""
    for world in each_request(
        partial(World, row), World.much_later, lambda world: world.stack.delay_next()
    ):
        told = world.call()
        world.stack.land()
        assert world.number in _COUNTED[told]


@pytest.mark.parametrize("fault", ["lose_next_answer", "delay_next", "fail_next"])
@rows(lambda row: row.repeats)
def test_a_call_without_any_answer_says_so_and_its_key_settles_it(
    row: Capability, fault: str
) -> None:
    world = World(row)
    for _ in range(_ALL_ATTEMPTS):
        getattr(world.stack, fault)()

    told = world.call()
    assert told is Said.UNCLEAR or (fault == "lose_next_answer" and told is Said.COUNTED)
    assert world.number in _COUNTED[told]

    world.nothing_more_goes_wrong()
    again = world.call()
    assert again in _DONE or (row.forgets and again is Said.UNCLEAR)
    assert world.number == AMOUNT
    (World.land if row.forgets else World.much_later)(world)
    assert world.number == AMOUNT


@rows(lambda row: row.undo)
def test_a_late_request_changes_nothing_once_its_effect_was_undone(row: Capability) -> None:
    """While its token is remembered, and after it is forgotten."""
    assert row.undo is not None
    for lands in (World.land, World.much_later):
        world = World(row)
        world.stack.delay_next()
        assert world.call() is Said.COUNTED
        row.undo(world.another(), world.made)
        lands(world)
        assert world.number == 0


@pytest.mark.parametrize("lost", [None, "of this one", "of the other one"])
@rows(lambda row: row.repeats)
def test_of_two_calls_under_one_key_one_counts_and_says_so(
    row: Capability, lost: str | None
) -> None:
    """The other one comes before any request of this one; the first request of one is lost."""

    def first(world: World) -> None:
        if lost == "of this one":
            world.stack.fail_next()

    def other(world: World) -> None:
        if lost == "of the other one":
            world.stack.fail_next()
        world.other_calls()

    for world in each_request(partial(World, row), other, first):
        told = [world.call(), *world.others]
        assert set(told) <= {*_DONE, Said.UNCLEAR}
        assert world.number == AMOUNT
        if Said.UNCLEAR not in told and not (row.anonymous and lost):
            assert told.count(Said.COUNTED) == 1


@rows(lambda row: row.reused)
def test_of_two_calls_with_different_contents_under_one_key_one_counts(row: Capability) -> None:
    for world in each_request(partial(World, row), lambda world: world.other_calls(AMOUNT - 1)):
        mine = world.call()
        assert (mine, *world.others) in {
            (Said.COUNTED,),
            (Said.COUNTED, row.reused),
            (row.reused, Said.COUNTED),
        }
        assert world.number == (AMOUNT if mine is Said.COUNTED else AMOUNT - 1)


@pytest.mark.parametrize("fault", ["lose_next_answer", "delay_next", "fail_next", "throttle"])
@pytest.mark.parametrize("row", UNKEYED, ids=str)
def test_a_call_without_a_key_says_what_it_may_have_done(row: Capability, fault: str) -> None:
    """Only a caller that prefers one change too many gets an answer; then it may count twice."""
    for world in each_request(partial(World, row), lambda world: getattr(world.stack, fault)()):
        told = world.call()
        met = not world.stack._memory.faults._planned
        world.nothing_more_goes_wrong()
        world.much_later()
        if row.name.endswith("over"):
            assert told is Said.COUNTED
            assert world.number in (AMOUNT, 2 * AMOUNT)
        else:
            assert told is (Said.UNCLEAR if met and fault != "throttle" else Said.COUNTED)
            assert world.number in _COUNTED[told]


# ---- finality ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, "delay_next", "fail_next"])
@rows(lambda row: row.take)
def test_what_is_refused_is_not_applied_later(row: Capability, fault: str | None) -> None:
    """Although what it needs is given back."""
    world = World(row)
    if fault is not None:
        getattr(world.stack, fault)()
    world.stack.before_next_request(world.take)

    told = world.call()

    refused = row.reused if row.reused and not row.keyed else Said.REFUSED
    unclear = row.undecided and fault is not None
    assert told in ((Said.UNCLEAR,) if unclear else (Said.REFUSED, Said.REUSED, refused))
    world.give_back()
    world.much_later()
    assert unclear or world.number == 0


@rows(lambda row: row.take)
def test_what_a_call_says_is_so_whenever_its_late_request_lands(row: Capability) -> None:
    """What it needs is taken after its first request, and given back before that lands."""

    def comes_back(world: World) -> None:
        world.give_back()
        world.land()

    def taken(world: World) -> None:
        world.stack.delay_next()
        world.stack.before_next_request(world.take)

    for world in each_request(partial(World, row), comes_back, taken):
        told = world.call()
        if not world.stack.planned_faults:
            world.much_later()
            assert world.number in _COUNTED[told], told


@rows(lambda row: row.take)
def test_a_call_whose_late_request_was_applied_is_not_refused(row: Capability) -> None:
    """What it needs is taken only then: before any of the requests that follow."""
    applied: list[World] = []

    def lands(world: World) -> None:
        if None in world.stack.land():
            applied.append(world)
        with suppress(CountledgerError):
            world.take()

    for world in each_request(partial(World, row), lands, lambda world: world.stack.delay_next()):
        told = world.call()
        assert world not in applied or told in {Said.COUNTED, Said.UNCLEAR}
    assert applied


@rows(lambda row: row.take and row.keyed)
def test_a_refused_call_may_be_made_again_under_its_key(row: Capability) -> None:
    world = World(row)
    world.take()
    assert world.call() is Said.REFUSED

    world.give_back()

    assert world.call() is Said.COUNTED
    assert world.number == AMOUNT


@pytest.mark.parametrize("fault", [None, "delay_next", "fail_next", "lose_next_answer"])
@rows(lambda row: row.withdraw)
def test_a_key_is_withdrawn_or_counted_and_never_both(row: Capability, fault: str | None) -> None:
    """Another process withdraws it before any request of the call, the first of which is lost."""
    withdrawn: list[Said] = []

    def withdraw(world: World) -> None:
        assert row.withdraw is not None
        withdrawn.append(said(row.withdraw(world.another(), KEY)))

    def first(world: World) -> None:
        if fault is not None:
            getattr(world.stack, fault)()

    for world in each_request(partial(World, row), withdraw, first):
        withdrawn.clear()
        told = world.call()
        if not withdrawn:
            break
        world.much_later()
        assert withdrawn[0] in {Said.WITHDRAWN, Said.DUPLICATE}
        assert world.number == (0 if withdrawn[0] is Said.WITHDRAWN else AMOUNT)
        assert told in {Said.UNCLEAR, *(_OUT if world.number == 0 else _DONE)}


# ---- what is created, and deleted -------------------------------------------------------------


class Names(Stack):
    """A stack, and a setting that does not exist yet."""

    def __init__(self, row: Setting, content: int | None = None) -> None:
        super().__init__()
        self.row = row
        row.prepare(self.stack.ledger)
        if content is not None:
            self.create(content)

    def create(self, content: int) -> bool | None:
        """Whether it was created; None: that is unclear."""
        try:
            self.row.create(self.stack.ledger, content)
        except self.row.exists:
            return False
        except Unclear:
            return None
        return True

    def delete(self, by: CountLedger | None = None) -> bool:
        """Whether it is deleted; else that is unclear, or there was nothing."""
        try:
            self.row.delete(by or self.stack.ledger)
        except (Unclear, BadInput):
            return False
        return True

    @property
    def content(self) -> object:
        """As a process reads it that knows nothing."""
        return self.row.content(self.another())


each_setting = pytest.mark.parametrize("row", SETTINGS, ids=str)


@each_setting
def test_a_name_that_is_taken_is_refused(row: Setting) -> None:
    names = Names(row, 1)

    assert names.create(2) is False
    assert names.content == 1


@pytest.mark.parametrize("fault", ["lose_next_answer", "delay_next", "fail_next", "throttle"])
@each_setting
def test_a_creation_and_a_deletion_succeed_after_a_fault(row: Setting, fault: str) -> None:
    """At each of their requests, and whatever lands later."""
    for names in each_request(partial(Names, row), lambda names: getattr(names.stack, fault)()):
        assert names.create(2)
        names.nothing_more_goes_wrong()
        names.land()
        assert names.content == 2
    for names in each_request(partial(Names, row, 1), lambda names: getattr(names.stack, fault)()):
        assert names.delete()
        names.nothing_more_goes_wrong()
        names.land()
        assert names.content is None


@pytest.mark.parametrize("lands", [Stack.land, Stack.much_later])
@each_setting
def test_a_late_creation_brings_nothing_back_that_was_deleted(
    row: Setting, lands: Callable[[Stack], object]
) -> None:
    names = Names(row)
    names.stack.delay_next()
    assert names.create(1)
    names.delete()

    lands(names)

    assert names.content == (1 if row.comes_back else None)
    assert names.create(2) is not row.comes_back
    assert names.content == (1 if row.comes_back else 2)


@each_setting
def test_a_creation_that_is_refused_creates_nothing_later(row: Setting) -> None:
    """Once the other one of that name is deleted; where that cannot be promised, it is unclear."""
    names = Names(row, 1)
    names.stack.delay_next()

    assert names.create(2) is (None if row.undecided else False)

    names.nothing_more_goes_wrong()
    names.delete()
    names.land()
    assert names.content is None or row.undecided


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (row, fault)
        for row in SETTINGS
        for fault in (None, "lose_next_answer", "fail_next", "delay_next")
        if fault or not row.reads_again
    ],
    ids=str,
)
def test_a_deletion_deletes_nothing_that_was_created_after_it_began(
    row: Setting, fault: str | None
) -> None:
    """Another process deletes it first, and creates it again: before any later request."""
    began = 1 if fault is None else 0

    def again(names: Names) -> None:
        names.delete(names.another())
        row.create(names.another(), 2)

    def first(names: Names) -> None:
        if fault is not None:
            getattr(names.stack, fault)()

    for names in each_request(partial(Names, row, 1), again, first, began):
        names.delete()
        met = not names.stack.planned_faults
        names.nothing_more_goes_wrong()
        names.land()
        assert names.content == 2 or not met
