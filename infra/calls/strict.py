"""The calls of strict counters: `countledger strict`, `/v1/strict`, `/v1/strict-changes`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import (
    ADMINISTERS,
    HOW,
    READS,
    WRITES,
    Call,
    Calls,
    Key,
    KeyMissing,
    KeyParam,
    NeedsScope,
    Note,
    Op,
    Param,
    RequiredKey,
)
from countledger.infra.calls.shapes import (
    AmountText,
    CounterText,
    DeltaText,
    InputBody,
    NamespaceText,
    ShownTime,
    View,
    amount_text,
)
from countledger.ledger import keys
from countledger.ledger.amount import Amount, to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadBounds, BadDelta, BadInput, shown
from countledger.ledger.limits import (
    BINS_MAX,
    HISTORY_DEFAULT,
    HISTORY_MAX,
    HISTORY_MIN,
    MARKER_WINDOW_DEFAULT_MS,
    MARKER_WINDOW_MAX_MS,
    MARKER_WINDOW_MIN_MS,
    SET_TOKENS_DEFAULT,
    SET_TOKENS_MAX,
    TOKEN_BYTES,
    TOKEN_LIFE_MS,
    TRANSACTION_ACTIONS,
)
from countledger.ledger.values import parse_delta_text, parse_duration_ms
from countledger.producers.recorder import Became, Correction
from countledger.producers.strict.definition import KEEP, Method
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    SetFull,
    StrictOutcome,
    Unknown,
    Withdrawn,
)

STRICT: Final = Calls(
    "strict",
    """Counters that never pass their bounds: tickets, stock, credit.

    One value in the home region (or over regions), read and changed at once. How a change is
    written, what it costs and what is known after a lost answer is the counter's method;
    docs/strict.md says which to take when.
    """,
    tag="strict",
)
_KB: Final = 1_024


class CounterTwice(BadInput):
    """A request names a counter twice."""


# ---- parameters ----


class CounterChange(InputBody):
    """One of several changes."""

    counter: CounterText
    delta: DeltaText


def parse_changes(texts: list[str]) -> list[CounterChange]:
    """Counters and what they take, from texts such as `stock:bolt=-4`."""
    changes = []
    for text in texts:
        counter, equals, delta = text.rpartition("=")
        if not equals:
            raise BadDelta(f"{shown(text)} is no change: give it as COUNTER=DELTA")
        changes.append(
            CounterChange.model_construct(
                counter=keys.check_counter(counter), delta=parse_delta_text(delta)
            )
        )
    return changes


def _by(default: object) -> str:
    """The help text of a default that holds for one method only."""
    return f"[dim]By default {default}[/dim]"


_WINDOW: Final = show_duration(MARKER_WINDOW_DEFAULT_MS).replace(" ", "")
MethodName = Literal["atomic", "occ", "history", "request_token", "marker", "set"]
Counter = Annotated[CounterText, Param("The strict counter, as tickets:hall.")]
Delta = Annotated[DeltaText, Param("What to add: an exact number, not 0.")]
LowerBound = Annotated[Amount, amount_text("lower bound", BadBounds)]
UpperBound = Annotated[Amount, amount_text("upper bound", BadBounds)]
Opening = Annotated[Amount, amount_text("opening value", BadBounds)]
Value = Annotated[Amount, amount_text("value", BadBounds), Param("The new value.")]
# Of a bound: leave it as it is. Neither a text nor a value of JSON says it.
_STAYS: Final[Any] = KEEP


# ---- what is shown ----


class StrictView(View):
    """A strict counter as of one moment."""

    counter: str
    method: str
    value: AmountText
    held: AmountText
    available: AmountText
    lower: AmountText | None
    upper: AmountText | None
    version: int
    bins: int
    history: int | None
    max_tokens: int | None
    remembered: int
    window_ms: int | None
    updated_at: ShownTime | None
    write_units: int

    def row(self) -> Mapping[str, object]:
        has_holds = self.method == Method.MARKER
        return {
            "counter": self.counter,
            "value": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "method": self.method,
            "bins": self.bins,
            "remembers": self._memory,
            "held": self.held if has_holds else None,
            "available": self.available if has_holds else None,
            "write units": self.write_units,
            "updated": self.updated_at,
        }

    @property
    def _memory(self) -> str | None:
        """For how long, or how many changes, a key is remembered."""
        match Method(self.method):
            case Method.ATOMIC:
                return None
            case Method.OCC:
                return "1 change"
            case Method.HISTORY:
                return f"{self.history} changes"
            case Method.REQUEST_TOKEN:
                return show_duration(TOKEN_LIFE_MS)
            case Method.MARKER:
                return show_duration(self.window_ms or 0)
            case Method.SET:
                return f"{self.remembered} of {self.max_tokens} keys"

    def notices(self) -> Iterable[str]:
        """What a set will cost, and of which bounds the value is outside."""
        if self.max_tokens is not None and self.remembered == 0:
            full = self.write_units + self.max_tokens * TOKEN_BYTES // _KB
            yield (
                f"a change writes the whole set: write units now {self.write_units}, about {full} "
                f"when it holds its {self.max_tokens} keys"
            )
        if self.upper is not None and self.value > self.upper:
            yield self._outside("above the upper", self.upper, "up")
        if self.lower is not None and self.value < self.lower:
            yield self._outside("below the lower", self.lower, "down")

    def _outside(self, side: str, bound: Amount, way: str) -> str:
        return (
            f"the value {to_text(self.value)} is {side} bound {to_text(bound)}: changes {way} are "
            "refused until it is back inside"
        )


class AppliedView(View):
    """The change is applied, by this call."""

    outcome: Literal["applied"] = "applied"
    counter: str
    value: AmountText | None


class DuplicateView(View):
    """The change was applied under this key before; it counts once."""

    outcome: Literal["duplicate"] = "duplicate"
    counter: str
    value: AmountText | None


class WithdrawnView(View):
    """The change under this key is not applied, and never will be."""

    outcome: Literal["withdrawn"] = "withdrawn"
    counter: str
    id: str


class NotWithdrawnView(DuplicateView):
    """The change under this key was applied before it could be withdrawn, and stays."""

    # A script that continues at exit code 0 may sell the ticket again.
    exit_code = 1

    def notices(self) -> Iterable[str]:
        yield (
            f"countledger: too late: the change of counter {self.counter!r} under this key was "
            "applied and stays"
        )


Rejected: TypeAlias = BoundReached | SetFull | Withdrawn | Contended | Unknown
Changed: TypeAlias = AppliedView | DuplicateView | Rejected


def changed(outcome: StrictOutcome) -> Changed:
    match outcome:
        case Applied():
            return AppliedView.model_validate(outcome)
        case Duplicate():
            return DuplicateView.model_validate(outcome)
    return outcome


# ---- the calls ----


@STRICT.op(
    "create",
    "POST /v1/strict 201",
    costs="Two write units, two for its list entry, two for each bin.",
)
def create_strict(
    call: Call,
    counter: Annotated[
        CounterText,
        Param("namespace:rest; the namespace is strict, or strict-regions."),
        ADMINISTERS,
    ],
    *,
    method: Annotated[MethodName, Param("How changes are written.")],
    lower: Annotated[
        LowerBound | None, Param("The least that its value may be.", metavar="N")
    ] = None,
    upper: Annotated[
        UpperBound | None, Param("The most that its value may be.", metavar="N")
    ] = None,
    opening: Annotated[Opening, Param("Its first value.", metavar="N")] = 0,
    bins: Annotated[
        int,
        Field(ge=1, le=BINS_MAX),
        Param("Items to spread it over (atomic, request_token, marker)."),
    ] = 1,
    history: Annotated[
        Annotated[int, Field(ge=HISTORY_MIN, le=HISTORY_MAX)] | None,
        Param(f"Changes to remember (history). {_by(HISTORY_DEFAULT)}", metavar="N"),
    ] = None,
    max_tokens: Annotated[
        Annotated[int, Field(ge=1, le=SET_TOKENS_MAX)] | None,
        Param(f"Changes to take in all (set). {_by(SET_TOKENS_DEFAULT)}", metavar="N"),
    ] = None,
    window_ms: Annotated[
        Annotated[int, Field(ge=MARKER_WINDOW_MIN_MS, le=MARKER_WINDOW_MAX_MS)] | None,
        Param(
            f"For how long to remember a key, as in 7d (marker). {_by(_WINDOW)}",
            metavar="TIME",
            option="--window",
            text=parse_duration_ms,
        ),
    ] = None,
    regions: Annotated[
        bool, Param("Usable in several regions (atomic, occ, history, set), for good.")
    ] = False,
) -> StrictView:
    """Create a strict counter. Its method, bins and memory are fixed; its bounds may move.

    Examples:
      countledger strict create tickets:hall --method marker --lower 0 --opening 500
      countledger strict create tickets:stadium --method marker --lower 0 --opening 60000 --bins 20
      countledger strict create seats:free --method atomic --lower 0 --upper 40 --opening 40
      countledger strict create stock:lamps --method occ --lower 0 --opening 90 --regions
    """
    return StrictView.model_validate(
        call.ledger.strict.create(
            counter,
            method=method,
            lower=lower,
            upper=upper,
            opening=opening,
            bins=bins,
            history=history,
            max_tokens=max_tokens,
            window_ms=window_ms,
            regions=regions,
        )
    )


@STRICT.op(
    "change",
    "POST /v1/strict/{counter}/changes",
    costs="A write unit or more, by method. Over HTTP without a key the counter is read first: a "
    "read unit, with bins two more for each.",
)
def change_strict(
    call: Call,
    counter: Annotated[Counter, WRITES],
    delta: Delta,
    *,
    key: Annotated[Key | None, KeyParam(route=False)] = None,
    prefer: Annotated[
        Literal["under", "over"] | None,
        Field(description="which miscount to prefer after a lost answer (method atomic)"),
        Param("After a lost answer: over = at least once, under = at most once (atomic)."),
    ] = None,
    note: Annotated[
        Note, Param("Short own text (method marker); repeatable.", metavar="NAME=VALUE")
    ] = None,
) -> Changed:
    """Add to a strict counter, or take from it, if its bounds allow it.

    The outcome is "applied" or "duplicate", with the value (none for a counter with bins). The
    counter's method decides how long a key is remembered; `atomic` remembers none, and takes none.
    Over HTTP every other method requires a key.

    Exit codes: 0 applied. 4 refused by a bound or a full set; not applied. 3 unknown, or too many
    conflicts: the line says what to do. 2 bad input, or a key that was withdrawn.

    Examples:
      countledger strict change tickets:hall -2 --key order-4711      [dim]no -- needed[/dim]
      countledger strict change tickets:hall -1 --key o-1 --at $(date -u +%FT%TZ)
      countledger strict change seats:free -1 --prefer over           [dim]method atomic[/dim]
    """
    strict = call.ledger.strict
    if key is None and not call.makes_keys and strict.show(counter).method != Method.ATOMIC:
        raise KeyMissing(f"this request requires {HOW}: without it a retry would count twice")
    return changed(strict.change(counter, delta, key=key, prefer=prefer, note=note))


@STRICT.op("withdraw", "POST /v1/strict/{counter}/withdrawals", costs="Up to four write units.")
def withdraw(
    call: Call,
    counter: Annotated[
        CounterText | None,
        Param(
            "The counter of the change. Leave it out for the key of a transfer, of a change of "
            "several counters or of a `countledger set`."
        ),
        WRITES,
    ] = None,
    *,
    key: RequiredKey,
) -> WithdrawnView | NotWithdrawnView | Contended | Unknown:
    """Withdraw a change, or report that it was applied: then the outcome is "duplicate".

    Use it for an order whose answer was lost and which nobody wants to repeat. A withdrawn change
    is never applied later. Methods marker, set and (for ten minutes) request_token can withdraw.

    Exit codes: 0 withdrawn. 1 it was applied and stays. 3 unknown: run the command again.

    Examples:
      countledger strict withdraw tickets:hall --key order-4711
      countledger strict withdraw --key transfer-4711
    """
    strict = call.ledger.strict
    outcome = (
        strict.transactions.withdraw(key) if counter is None else strict.withdraw(counter, key)
    )
    match outcome:
        case Withdrawn():
            return WithdrawnView.model_validate(outcome)
        case Applied() | Duplicate():
            return NotWithdrawnView(counter=outcome.counter, value=outcome.value)
        case Contended() | Unknown():
            return outcome
    raise AssertionError("a withdrawal changes no value")


@STRICT.op("transfer", costs="Six write units, and two for each bin that has to be split.")
def transfer(
    call: Call,
    source: Annotated[CounterText, Param("The counter that gives.", metavar="FROM"), WRITES],
    target: Annotated[CounterText, Param("The counter that gets.", metavar="TO"), WRITES],
    amount: Annotated[DeltaText, Param("How much, more than 0.")],
    *,
    key: RequiredKey,
    note: Note = None,
) -> Changed:
    """Move an amount from one strict counter to another: all of it, or nothing.

    Both bounds are respected; the one that refuses is named. The key belongs to the transfer as a
    whole and is remembered for a day, whatever the counters' methods are.

    Exit codes: as "countledger strict change".

    Examples:
      countledger strict transfer account:ann account:bob 12.50 --key transfer-4711
    """
    own = call.own_key(key, map(keys.namespace_of, (source, target)))
    transactions = call.ledger.strict.transactions
    return changed(transactions.transfer(source, target, amount, key=own, note=note))


@STRICT.op(
    "together",
    "POST /v1/strict-changes",
    costs="Two write units for each counter, and two for the key.",
)
def change_together(
    call: Call,
    changes: Annotated[
        list[CounterChange],
        Field(min_length=1, max_length=TRANSACTION_ACTIONS - 1),
        Param(
            "What to add to which strict counter.", metavar="COUNTER=DELTA...", text=parse_changes
        ),
        WRITES,
    ],
    *,
    key: RequiredKey,
    note: Note = None,
) -> Changed:
    """Change up to 99 strict counters in one transaction: all of them, or none.

    A transfer takes from one counter and adds the same to another. The counter that refuses is
    named.

    Exit codes: as "countledger strict change".

    Examples:
      countledger strict together stock:bolt=-4 stock:nut=-4 stock:kit=+1 --key build-12
    """
    summed = {one.counter: one.delta for one in changes}
    if len(summed) < len(changes):
        raise CounterTwice("a counter is named twice: give each once, with the sum of its changes")
    own = call.own_key(key, map(keys.namespace_of, summed))
    return changed(call.ledger.strict.transactions.change(summed, key=own, note=note))


@STRICT.op("show", "GET /v1/strict/{counter}", costs="One read unit; with bins two more for each.")
def show_strict(call: Call, counter: Annotated[Counter, READS]) -> StrictView:
    """Show a counter as of one moment: value, bounds, method, what a change costs now."""
    return StrictView.model_validate(call.ledger.strict.show(counter))


@STRICT.op(
    "set",
    "PATCH /v1/strict/{counter}/bounds",
    costs="Two write units, with bins two for each.",
)
def set_bounds(
    call: Call,
    counter: Annotated[Counter, ADMINISTERS],
    *,
    lower: Annotated[
        LowerBound | None, Param("The new lower bound.", metavar="N|none", none="none")
    ] = _STAYS,
    upper: Annotated[
        UpperBound | None, Param("The new upper bound.", metavar="N|none", none="none")
    ] = _STAYS,
    force: Annotated[bool, Param("Allow bounds that exclude the value.")] = False,
) -> StrictView:
    """Change a counter's bounds while it is in use. A bound that is not given stays.

    "none", in JSON null, removes a bound. Bounds that exclude the value are refused. With `force`
    they are set, and changes towards that bound are refused until the value is inside again. A
    counter with bins cannot be forced.

    Examples:
      countledger strict set tickets:hall --lower 20      [dim]keep twenty back[/dim]
      countledger strict set tickets:hall --upper none
    """
    moved = call.ledger.strict.set_bounds(counter, lower=lower, upper=upper, force=force)
    return StrictView.model_validate(moved)


@STRICT.op("list", costs="Half a read unit for each, and for each bin.")
def list_strict(
    call: Call,
    namespace: Annotated[
        NamespaceText,
        Param("The part of the name before the colon."),
        NeedsScope(ScopeVerb.READ, lambda namespace: [namespace]),
    ],
) -> Iterator[StrictView]:
    """List the strict counters of a namespace, by name.

    One that cannot be read is named, and the exit code is 1.
    """
    found = call.ledger.strict.list(namespace, on_corrupt=call.on_corrupt)
    return map(StrictView.model_validate, found)


def _deletion(call: Call, counter: str) -> str:
    value = to_text(call.ledger.strict.show(counter).value)
    return f"Delete counter {counter!r} and its value {value}, for good?"


@STRICT.op(
    "delete",
    "DELETE /v1/strict/{counter} 204",
    costs="Two write units for each of its items, and a read unit.",
    confirm=_deletion,
)
def delete_strict(call: Call, counter: Annotated[Counter, ADMINISTERS]) -> None:
    """Delete a strict counter and its value; this cannot be undone.

    Examples:
      countledger strict delete tickets:hall --yes
    """
    call.ledger.strict.delete(counter)


@STRICT.op(
    "set-value",
    "PUT /v1/strict/{counter}/value",
    costs="Four write units, a read unit.",
    command=False,
)
def set_strict(
    call: Call,
    counter: Annotated[Counter, ADMINISTERS],
    value: Value,
    *,
    key: RequiredKey,
    note: Note = None,
) -> Changed:
    """Set a strict counter exactly to a value, within its bounds."""
    own = call.own_key(key, [keys.namespace_of(counter)])
    transactions = call.ledger.strict.transactions
    return changed(transactions.set_value(counter, value, key=own, note=note))


# ---- `countledger set`, of every counter ----


class CorrectionView(View):
    """How a ledger counter was brought to a value."""

    outcome: Became
    counter: str
    value: AmountText
    delta: AmountText

    @classmethod
    def of(cls, done: Correction) -> "CorrectionView":
        return cls(outcome=done.became, counter=done.counter, value=done.value, delta=done.delta)


def set_value(
    call: Call,
    counter: Annotated[CounterText, Param("The counter to set."), ADMINISTERS],
    value: Value,
    *,
    key: RequiredKey,
    note: Note = None,
) -> CorrectionView | Changed:
    """Set a counter to a value; 0 resets it.

    A ledger counter gets one entry: the difference between the value and its exact sum. Entries
    that arrive meanwhile count in addition, so the result may differ from the value, but nothing is
    lost. A strict counter has exactly that value at one moment, if its bounds allow it.

    Exit codes: as "countledger strict change".

    Examples:
      countledger set stock:bolts 1200 --key stock-taking-2026
      countledger set likes:post-1 0 --key reset-1 --note by=ann
    """
    if not call.ledger.namespaces.is_of_a_ledger(counter):
        return set_strict(call, counter, value, key=key, note=note)
    return CorrectionView.of(call.ledger.set_value(counter, value, key=key, note=note))


# A command of its own; each kind of counter has a route.
SET_VALUE: Final = Op("set", set_value, "", "", 200, costs="By the kind of the counter.")
