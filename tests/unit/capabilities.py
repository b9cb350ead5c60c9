"""What counts, a row for each: how to call it, what it answers, and how to read its number.

`tests/unit/test_laws.py` holds every row to the laws of keys, retries and finality. The number of a
row is what its own calls have counted: 0 before, and the amount after one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeAlias

from countledger import Claim, CountLedger, IdempotencyKey, errors
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.producers.event import Receipt, Status
from countledger.producers.quotas.quota import Admitted, Committed, Denied
from countledger.producers.sequences.sequences import Numbered
from countledger.producers.strict import outcome as strict
from countledger.producers.strict.reader import StrictCounter

AMOUNT: Final[int] = 2
KEY: Final = "order-1"
OTHER_KEY: Final = "order-2"
_HOUR: Final = timedelta(hours=1)
_OPENING: Final = 6
_COUNTER, _SECOND, _BUDGET = "s:x", "s:y", "a:x"

Key: TypeAlias = str | IdempotencyKey
Act: TypeAlias = Callable[[CountLedger, Any], object]


class Said(Enum):
    """What a call answers, in the words of no capability."""

    COUNTED = "counted by this call"
    DUPLICATE = "counted before"
    REFUSED = "not counted, and never will be"
    WITHDRAWN = "the key was withdrawn: not counted, and never will be"
    REUSED = "the key was used for something else"
    NOT_YET = "not counted: call again"
    UNCLEAR = "counted or not"
    EXPIRED = "the key is too old to be remembered"
    AHEAD = "the key is of the future"


_OUTCOMES: Final[dict[type, Said]] = {
    strict.Applied: Said.COUNTED,
    strict.Held: Said.COUNTED,
    strict.Confirmed: Said.COUNTED,
    strict.Cancelled: Said.COUNTED,
    strict.Duplicate: Said.DUPLICATE,
    strict.Withdrawn: Said.WITHDRAWN,
    strict.BoundReached: Said.REFUSED,
    strict.HoldCancelled: Said.REFUSED,
    strict.HoldConfirmed: Said.REUSED,
    strict.Contended: Said.NOT_YET,
    strict.Unknown: Said.UNCLEAR,
    Denied: Said.REFUSED,
    StrictCounter: Said.COUNTED,
    type(None): Said.COUNTED,
    Numbered: Said.COUNTED,
    int: Said.COUNTED,
    errors.BadBounds: Said.REFUSED,
    errors.OpenHolds: Said.REFUSED,
    errors.AlreadyClaimed: Said.REFUSED,
    errors.TicketResolved: Said.REUSED,
    errors.IdempotencyKeyReused: Said.REUSED,
    errors.Throttled: Said.NOT_YET,
    errors.Unclear: Said.UNCLEAR,
    errors.Unacknowledged: Said.UNCLEAR,
    errors.Unnumbered: Said.UNCLEAR,
    errors.KeyExpired: Said.EXPIRED,
    errors.ClockSkew: Said.AHEAD,
}


def said(outcome: object) -> Said:
    """What an outcome, or an error, means."""
    match outcome:
        case Receipt():
            return Said.COUNTED if outcome.status is Status.RECORDED else Said.DUPLICATE
        case Admitted() | Committed():
            return Said.DUPLICATE if outcome.duplicate else Said.COUNTED
        case bool() | list():
            return Said.COUNTED if outcome else Said.DUPLICATE
        case _:
            return _OUTCOMES[type(outcome)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A call that counts.

    Attributes:
        name: of the row.
        prepare: what there is before; its result goes to every other function.
        call: counts an amount; under a key, or under what `prepare` made (a ticket, a hold).
        number: what such calls have counted.
        take: another call, after which the call is refused; None: nothing refuses it.
        give_back: reverses `take`, as far as another call can.
        undo: another call takes back what a call has counted.
        elsewhere: the same call for another counter.
        remake: deletes what was prepared, and creates it again.
        withdraw: withdraws a key; None: its keys cannot be withdrawn.
        keyed: whether the caller gives the key.
        repeats: whether a second call is recognized as the same one.
        reused: what the same key with another content is; None: there is no other content.
        sums: whether a call under another key adds its amount.
        life: how old a key with its time may be; None: as old as it likes, or it has none.
        remembers: for how long a bare key is remembered; None: no time ends it.
        undecided: whether a refusal after a request without an answer is unclear.
        anonymous: whether a call that got no answer finds what was counted, and not by which call.
        forgets: whether a late request of a call without any answer may count again, once its
            token is forgotten: docs/strict.md says so.
    """

    name: str
    prepare: Callable[[CountLedger], Any]
    call: Callable[[CountLedger, Any, int, Any], object]
    number: Act
    take: Act | None = None
    give_back: Act = lambda _ledger, _made: None
    undo: Act | None = None
    elsewhere: Callable[[CountLedger, Any, int, Any], object] | None = None
    remake: Act | None = None
    withdraw: Act | None = None
    keyed: bool = True
    repeats: bool = True
    reused: Said | None = Said.REUSED
    sums: bool = True
    life: timedelta | None = None
    remembers: timedelta | None = None
    undecided: bool = False
    anonymous: bool = False
    forgets: bool = False

    def __str__(self) -> str:
        """For the ids of tests."""
        return self.name


# ---- strict counters --------------------------------------------------------------------------


def _create(method: str, bins: int = 1, counter: str = _COUNTER, **more: Any) -> Act:  # noqa: ANN401
    history = 9 if method == "history" else None

    def create(ledger: CountLedger, _: object = None) -> None:
        choices = {"method": method, "bins": bins, "history": history, **more}
        ledger.strict.create(counter, lower=0, opening=_OPENING, **choices)

    return create


def _remake(create: Act, *names: str) -> Act:
    def remake(ledger: CountLedger, made: object) -> None:
        for name in names:
            ledger.strict.delete(name)
        create(ledger, made)

    return remake


def _withdraw(ledger: CountLedger, key: str) -> object:
    return ledger.strict.withdraw(_COUNTER, key)


def _withdraw_of_several(ledger: CountLedger, key: str) -> object:
    return ledger.strict.transactions.withdraw(key)


def _take(ledger: CountLedger, _: object) -> None:
    ledger.strict.change(_COUNTER, -_OPENING)


def _give_back(ledger: CountLedger, _: object) -> None:
    ledger.strict.change(_COUNTER, _OPENING)


def _change(
    method: str,
    bins: int = 1,
    window_ms: int | None = None,
    **more: Any,  # noqa: ANN401 - of the row
) -> Capability:
    create = _create(method, bins, window_ms=window_ms)
    name = f"{method}, bins" if bins > 1 else method

    def elsewhere(ledger: CountLedger, _: object, n: int, key: Any) -> object:  # noqa: ANN401
        _create(method, bins, _SECOND)(ledger, None)
        return ledger.strict.change(_SECOND, -n, key=key)

    return Capability(
        name=f"{name}, short window" if window_ms else name,
        prepare=lambda ledger: create(ledger, None),
        call=lambda ledger, _, n, key: ledger.strict.change(_COUNTER, -n, key=key),
        number=lambda ledger, _: _OPENING - ledger.strict.show(_COUNTER).value,
        take=_take,
        give_back=_give_back,
        undo=lambda ledger, _: ledger.strict.change(_COUNTER, AMOUNT),
        remake=_remake(create, _COUNTER),
        elsewhere=elsewhere,
        withdraw=_withdraw if method in {"marker", "request_token", "set"} else None,
        anonymous=method != "marker",
        forgets=method == "request_token",
        **more,
    )


_TOKEN_LIFE: Final = timedelta(minutes=9)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


def _ones(*deltas: int) -> Act:
    def change(ledger: CountLedger, _: object) -> None:
        for delta in deltas:
            ledger.strict.change(_COUNTER, delta)

    return change


def _of_set(ledger: CountLedger, _: object) -> int:
    return {2: 0, 1: AMOUNT, 0: 2 * AMOUNT, 3: 1}[int(ledger.strict.show(_COUNTER).value)]


# It takes changes of 1 and -1 alone: the second stands for the other content.
_SET: Final = replace(
    _change("set"),
    prepare=lambda ledger: ledger.strict.create(_COUNTER, method="set", lower=0, opening=2),
    call=lambda ledger, _, n, key: ledger.strict.change(
        _COUNTER, -1 if n == AMOUNT else 1, key=key
    ),
    number=lambda ledger, _: (0, AMOUNT, 2 * AMOUNT, 1)[
        2 - int(ledger.strict.show(_COUNTER).value)
    ],
    take=_ones(-1, -1),
    give_back=_ones(1, 1),
    undo=_ones(1),
    elsewhere=None,
    remake=_remake(
        lambda ledger, _: ledger.strict.create(_COUNTER, method="set", lower=0, opening=2), _COUNTER
    ),
)
_STRICT: Final = (
    _change("occ"),
    _change("history"),
    _SET,
    _change("request_token", life=_TOKEN_LIFE, remembers=_TOKEN_LIFE),
    # A change may have been split over other bins under the same key.
    _change("request_token", 2, life=_TOKEN_LIFE, remembers=_TOKEN_LIFE, reused=Said.UNCLEAR),
    _change("marker", life=_DAY, remembers=_DAY),
    _change("marker", window_ms=MINUTE_MS, life=_MINUTE, remembers=_MINUTE),
    _change("marker", 2, life=_DAY, remembers=_DAY),
)


def _two(ledger: CountLedger, _: object = None) -> None:
    _create("marker")(ledger, None)
    ledger.strict.create(_SECOND, method="atomic")


def _set_number(ledger: CountLedger, _: object) -> object:
    value = ledger.strict.show(_COUNTER).value
    return 0 if value == _OPENING else value


_TRANSACTIONS: Final = (
    Capability(
        name="transfer",
        prepare=_two,
        call=lambda ledger, _, n, key: ledger.strict.transactions.transfer(
            _COUNTER, _SECOND, n, key=key
        ),
        number=lambda ledger, _: ledger.strict.show(_SECOND).value,
        take=_take,
        give_back=_give_back,
        undo=lambda ledger, _: ledger.strict.change(_SECOND, -AMOUNT),
        withdraw=_withdraw_of_several,
        life=_DAY,
        remembers=_DAY,
    ),
    Capability(
        name="set a value",
        prepare=lambda ledger: _create("marker")(ledger, None),
        call=lambda ledger, _, n, key: ledger.strict.transactions.set_value(_COUNTER, n, key=key),
        number=_set_number,
        take=lambda ledger, _: ledger.strict.set_bounds(_COUNTER, lower=5, force=True),
        give_back=lambda ledger, _: ledger.strict.set_bounds(_COUNTER, lower=0),
        undo=lambda ledger, _: ledger.strict.change(_COUNTER, _OPENING - AMOUNT),
        withdraw=_withdraw_of_several,
        sums=False,
        life=_DAY,
        remembers=_DAY,
    ),
)


def _hold_one(ledger: CountLedger, _: object) -> None:
    held = ledger.strict.hold(_COUNTER, 1, expires_in=_HOUR, key="in the way")
    assert isinstance(held, strict.Held)


def _cancel_all(ledger: CountLedger, _: object) -> None:
    for hold in ledger.strict.holds(_COUNTER):
        ledger.strict.cancel(hold.id)


def _exists(ledger: CountLedger) -> bool:
    return any(one.counter == _COUNTER for one in ledger.strict.list("s"))


def _administered(bins: int) -> tuple[Capability, ...]:
    """What is done to a counter: its bounds are moved, or it is deleted."""
    create, more = _create("marker", bins), ", bins" if bins > 1 else ""
    bounds = Capability(
        name=f"move a bound{more}",
        prepare=lambda ledger: create(ledger, None),
        call=lambda ledger, *_: ledger.strict.set_bounds(_COUNTER, upper=9),
        number=lambda ledger, _: 0 if ledger.strict.show(_COUNTER).upper is None else AMOUNT,
        take=lambda ledger, _: ledger.strict.change(_COUNTER, _OPENING),
        give_back=lambda ledger, _: ledger.strict.change(_COUNTER, -_OPENING),
        undo=lambda ledger, _: ledger.strict.set_bounds(_COUNTER, upper=None),
        keyed=False,
        repeats=False,
        reused=None,
    )
    delete = replace(
        bounds,
        name=f"delete a strict counter{more}",
        call=lambda ledger, *_: ledger.strict.delete(_COUNTER),
        number=lambda ledger, _: 0 if _exists(ledger) else AMOUNT,
        take=_hold_one,
        give_back=_cancel_all,
        undo=create,
    )
    return bounds, delete


# ---- holds ------------------------------------------------------------------------------------


def _hold(ledger: CountLedger, n: int, key: Any) -> object:  # noqa: ANN401 - of any kind
    return ledger.strict.hold(_COUNTER, n, expires_in=_HOUR, key=key)


def _held(bins: int) -> Callable[[CountLedger], str]:
    def prepare(ledger: CountLedger) -> str:
        _create("marker", bins)(ledger, None)
        held = _hold(ledger, AMOUNT, None)
        assert isinstance(held, strict.Held)
        return held.id

    return prepare


def _available(ledger: CountLedger, _: object) -> object:
    available = ledger.strict.show(_COUNTER).available
    return available - (_OPENING - AMOUNT)


def _holds(bins: int) -> tuple[Capability, ...]:
    create, more = _create("marker", bins), ", bins" if bins > 1 else ""
    place = Capability(
        name=f"hold{more}",
        prepare=lambda ledger: create(ledger, None),
        call=lambda ledger, _, n, key: _hold(ledger, n, key),
        number=lambda ledger, _: ledger.strict.show(_COUNTER).held,
        take=_take,
        give_back=_give_back,
        undo=_cancel_all,
        withdraw=_withdraw,
    )
    confirm = Capability(
        name=f"confirm{more}",
        prepare=_held(bins),
        call=lambda ledger, hold, n, _: ledger.strict.confirm(hold, n),
        number=lambda ledger, _: _OPENING - ledger.strict.show(_COUNTER).value,
        take=lambda ledger, hold: ledger.strict.cancel(hold),
        keyed=False,
    )
    cancel = replace(
        confirm,
        name=f"cancel{more}",
        call=lambda ledger, hold, _n, _: ledger.strict.cancel(hold),
        number=_available,
        take=lambda ledger, hold: ledger.strict.confirm(hold),
        reused=None,
    )
    return place, confirm, cancel


# ---- quotas -----------------------------------------------------------------------------------


def _quota(method: str) -> Act:
    def create(ledger: CountLedger, _: object = None) -> list[Admitted]:
        ledger.quotas.create("a:", limit=_OPENING, per="month", method=method)
        ledger.quotas.acquire("a:z", 1)
        ledger.quotas.show(_BUDGET)  # its limit, and the window, are known
        return []

    return create


def _reserve(ledger: CountLedger, made: list[Admitted]) -> list[Admitted]:
    """Of what the window has, more than leaves enough for a call."""
    ticket = ledger.quotas.reserve(_BUDGET, _OPENING - 1)
    if isinstance(ticket, Admitted):
        made.append(ticket)
    return made


def _used(ledger: CountLedger, _: object) -> object:
    return ledger.quotas.show(_BUDGET)[0].used


def _release(ledger: CountLedger, made: list[Admitted]) -> None:
    ledger.quotas.release(made.pop())


def _quota_again(ledger: CountLedger, _: object) -> None:
    ledger.quotas.delete("a:")
    ledger.quotas.create("a:", limit=_OPENING, per="month")


def _acquire(method: str, *, life: timedelta, undecided: bool) -> Capability:
    return Capability(
        name=f"acquire by {method}",
        prepare=lambda ledger: _quota(method)(ledger, None),
        call=lambda ledger, _, n, key: ledger.quotas.acquire(_BUDGET, n, key=key),
        number=_used,
        take=_reserve,
        give_back=_release,
        # A marker is of no quota: what is counted under a key stays so.
        remake=None if undecided else _quota_again,
        elsewhere=lambda ledger, _, n, key: ledger.quotas.acquire("a:y", n, key=key),
        life=life,
        # A marker is kept for as long as the window: here a month.
        remembers=None if undecided else life,
        undecided=undecided,
        anonymous=method == "request_token",
        forgets=method == "request_token",
    )


def _committed(ledger: CountLedger, _: object) -> object:
    """What is used above the limit: by a commit alone."""
    return max(0, ledger.quotas.show(_BUDGET)[0].used - _OPENING)


_RESERVED: Final = Capability(
    name="commit",
    prepare=lambda ledger: _reserve(ledger, _quota("marker")(ledger, None)),  # type: ignore[arg-type]
    call=lambda ledger, made, n, _: ledger.quotas.commit(made[0], _OPENING + n),
    number=_committed,
    take=lambda ledger, made: ledger.quotas.release(made[0]),
    keyed=False,
)
_QUOTAS: Final = (
    _acquire("request_token", life=_TOKEN_LIFE, undecided=False),
    _acquire("marker", life=_DAY, undecided=True),
    replace(
        _acquire("marker", life=_DAY, undecided=True),
        name="reserve",
        call=lambda ledger, _, n, key: ledger.quotas.reserve(_BUDGET, n, key=key),
        elsewhere=lambda ledger, _, n, key: ledger.quotas.reserve("a:y", n, key=key),
    ),
    _RESERVED,
    replace(
        _RESERVED,
        name="release",
        call=lambda ledger, made, _n, _: ledger.quotas.release(made[0]),
        number=lambda ledger, _: AMOUNT if ledger.quotas.show(_BUDGET)[0].used == 0 else 0,
        take=lambda ledger, made: ledger.quotas.commit(made[0], 1),
        reused=None,
    ),
)


def _limits() -> tuple[Capability, ...]:
    create = _quota("marker")

    def limit(ledger: CountLedger, _: object) -> int:
        return AMOUNT if ledger.quotas.list()[0].limit == 1 else 0

    def own(ledger: CountLedger, _: object) -> int:
        return AMOUNT if _BUDGET in ledger.quotas.overrides(ledger.quotas.list()[0]) else 0

    of_all = Capability(
        name="set a limit",
        prepare=lambda ledger: create(ledger, None),
        call=lambda ledger, *_: ledger.quotas.set_limit("a:", 1),
        number=limit,
        undo=lambda ledger, _: ledger.quotas.set_limit("a:", _OPENING),
        remake=_quota_again,
        keyed=False,
        repeats=False,
        reused=None,
    )
    of_one = replace(
        of_all,
        name="set the limit of a counter",
        call=lambda ledger, *_: ledger.quotas.override(_BUDGET, 1),
        number=own,
        undo=lambda ledger, _: ledger.quotas.override(_BUDGET, None),
        remake=None,
    )
    return of_all, of_one


# ---- claims, sequences, groups ----------------------------------------------------------------


def _owned(ledger: CountLedger, _: object) -> int:
    owners = (ledger.claims.owner("seat", value) for value in (KEY, OTHER_KEY))
    return sum(int(owner.removeprefix("u-")) for owner in owners if owner)


_OTHERS: Final = Claim("seat", KEY, "u-0")
_MINE: Final = Claim("seat", "before", "u-2", "claim-1")


def _took(ledger: CountLedger) -> Claim:
    ledger.claims.take(_MINE)
    return _MINE


_CLAIMS: Final = (
    Capability(
        name="take a claim",
        prepare=lambda _: None,
        call=lambda ledger, _, n, key: ledger.claims.take(Claim("seat", key, f"u-{n}", key)),
        number=_owned,
        take=lambda ledger, _: ledger.claims.take(_OTHERS),
        give_back=lambda ledger, _: ledger.claims.release(_OTHERS),
        undo=lambda ledger, _: ledger.claims.release(Claim("seat", KEY, f"u-{AMOUNT}")),
        reused=Said.REFUSED,
    ),
    Capability(
        name="change a claim",
        prepare=_took,
        call=lambda ledger, mine, _n, _: ledger.claims.change(mine, KEY),
        number=_owned,
        take=lambda ledger, _: ledger.claims.take(_OTHERS),
        give_back=lambda ledger, _: ledger.claims.release(_OTHERS),
        undo=lambda ledger, _: ledger.claims.release(Claim("seat", KEY, f"u-{AMOUNT}")),
        keyed=False,
        reused=None,
    ),
    Capability(
        name="release a claim",
        prepare=_took,
        call=lambda ledger, mine, _n, _: ledger.claims.release(mine),
        number=lambda ledger, mine: 0 if ledger.claims.owner("seat", mine.value) else AMOUNT,
        undo=lambda ledger, mine: ledger.claims.take(replace(mine, claim_id="claim-2")),
        keyed=False,
        reused=None,
    ),
)


def _sequence_again(ledger: CountLedger, _: object) -> None:
    ledger.sequences.delete("q:x")
    ledger.sequences.create("q:x", first=1)


_OTHER: Final = (
    Capability(
        name="record",
        prepare=lambda _: None,
        call=lambda ledger, _, n, key: ledger.record("a:x", n, key=key),
        number=lambda ledger, _: ledger.exact("a:x").value,
        undo=lambda ledger, _: ledger.record("a:x", -AMOUNT),
        elsewhere=lambda ledger, _, n, key: ledger.record("a:y", n, key=key),
        life=_DAY,
    ),
    Capability(
        name="draw by expectation",
        prepare=lambda ledger: ledger.sequences.create("q:x", first=1),
        call=lambda ledger, *_: ledger.sequences.draw_expected("q:x"),
        number=lambda ledger, _: AMOUNT * ledger.sequences.show("q:x").last,
        undo=lambda ledger, _: ledger.sequences.delete("q:x"),
        remake=_sequence_again,
        keyed=False,
        repeats=False,
        reused=None,
    ),
    Capability(
        name="add to a group",
        prepare=lambda ledger: ledger.groups.add("g", ["a:y"]),
        call=lambda ledger, *_: ledger.groups.add("g", ["a:x"]),
        number=lambda ledger, _: AMOUNT * len([*ledger.groups.of("a:x")]),
        undo=lambda ledger, _: ledger.groups.remove("g", ["a:x"]),
        anonymous=True,
        keyed=False,
        reused=None,
    ),
    Capability(
        name="remove from a group",
        prepare=lambda ledger: ledger.groups.add("g", ["a:x", "a:y"]),
        call=lambda ledger, *_: ledger.groups.remove("g", ["a:x"]),
        number=lambda ledger, _: AMOUNT * (1 - len([*ledger.groups.of("a:x")])),
        undo=lambda ledger, _: ledger.groups.add("g", ["a:x"]),
        anonymous=True,
        keyed=False,
        reused=None,
    ),
)
CAPABILITIES: Final = (
    *_OTHER,
    *_STRICT,
    *_TRANSACTIONS,
    *_administered(1),
    *_administered(2),
    *_holds(1),
    *_holds(3),
    *_QUOTAS,
    *_limits(),
    *_CLAIMS,
)


# ---- without a key ----------------------------------------------------------------------------


def _unkeyed(row: Capability, name: str, *, over: bool, call: Callable[..., object]) -> Capability:
    return replace(
        row,
        name=f"{name}, over" if over else name,
        call=lambda ledger, _, n, _key: call(ledger, n, prefer="over" if over else "under"),
        keyed=False,
        repeats=False,
        reused=None,
    )


def _change_once(ledger: CountLedger, n: int, **prefer: Any) -> object:  # noqa: ANN401
    return ledger.strict.change(_COUNTER, -n, **prefer)


def _acquire_once(ledger: CountLedger, n: int, **prefer: Any) -> object:  # noqa: ANN401
    return ledger.quotas.acquire(_BUDGET, n, **prefer)


# Of two rows each the second one is sent again, and may count twice.
UNKEYED: Final = tuple(
    _unkeyed(row, name, over=over, call=call)
    for row, name, call in (
        (_change("atomic"), "atomic", _change_once),
        (_acquire("marker", life=_DAY, undecided=True), "acquire without a key", _acquire_once),
    )
    for over in (False, True)
)


# ---- what is created, and deleted -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What has a name, is created with a content, and deleted.

    Attributes:
        name: of the row.
        prepare: what there is before.
        create: creates it with a content, 1 or 2.
        delete: deletes it.
        content: with what it exists; None: it does not.
        exists: the error of a creation under a name that is taken.
        undecided: whether a refusal after a request without an answer is unclear.
        comes_back: whether a late creation is applied after a deletion: docs/sequences.md says so.
        reads_again: whether a deletion, of which no request was lost, deletes what has the name
            when it is written; else what had it when the call began.
    """

    name: str
    prepare: Callable[[CountLedger], object] = lambda _: None
    create: Callable[[CountLedger, int], object]
    delete: Callable[[CountLedger], object]
    content: Callable[[CountLedger], object]
    exists: type[errors.CountledgerError]
    undecided: bool = True
    comes_back: bool = False
    reads_again: bool = False

    def __str__(self) -> str:
        """For the ids of tests."""
        return self.name


def _strict_counter(bins: int) -> Setting:
    def content(ledger: CountLedger) -> object:
        return next((one.value for one in ledger.strict.list("s") if one.counter == _COUNTER), None)

    return Setting(
        name="strict counter" + (", bins" if bins > 1 else ""),
        create=lambda ledger, n: ledger.strict.create(
            _COUNTER, method="marker", opening=n, bins=bins
        ),
        delete=lambda ledger: ledger.strict.delete(_COUNTER),
        content=content,
        exists=errors.CounterExists,
        undecided=False,
    )


def _sequence(ledger: CountLedger) -> object:
    shown = ledger.sequences.show("q:x")
    return shown.last + 1 if shown.version else None


def _rule(ledger: CountLedger) -> object:
    return next((one.threshold for one in ledger.alerts.list()), None)


def _schedule(ledger: CountLedger) -> object:
    found = ledger.schedules.find("likes")
    return None if found is None else {"rate(1 hour)": 1, "rate(2 hours)": 2}[found.expression]


SETTINGS: Final = (
    _strict_counter(1),
    _strict_counter(2),
    Setting(
        name="quota",
        create=lambda ledger, n: ledger.quotas.create("a:", limit=n, per="day"),
        delete=lambda ledger: ledger.quotas.delete("a:"),
        content=lambda ledger: next((one.limit for one in ledger.quotas.list()), None),
        exists=errors.QuotaExists,
        reads_again=True,
    ),
    Setting(
        name="sequence",
        prepare=lambda ledger: ledger.sequences.create("q:y"),
        create=lambda ledger, n: ledger.sequences.create("q:x", first=n),
        delete=lambda ledger: ledger.sequences.delete("q:x"),
        content=_sequence,
        exists=errors.SequenceExists,
        comes_back=True,
    ),
    Setting(
        name="alert rule",
        create=lambda ledger, n: ledger.alerts.create(
            "many", counter="a:x", threshold=n, direction="rising"
        ),
        delete=lambda ledger: ledger.alerts.delete("many"),
        content=_rule,
        exists=errors.RuleExists,
        reads_again=True,
        undecided=False,
    ),
    Setting(
        name="schedule",
        prepare=lambda ledger: ledger.namespaces.create("likes"),
        create=lambda ledger, n: ledger.schedules.create("likes", every_ms=n * HOUR_MS),
        delete=lambda ledger: ledger.schedules.delete("likes"),
        content=_schedule,
        exists=errors.ScheduleExists,
        reads_again=True,
        undecided=False,
    ),
)
