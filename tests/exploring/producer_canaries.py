"""Rules of strict counters, holds, quotas, sequences and claims that the explorer must miss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.leftovers import Leftovers
from countledger.ledger import attempts
from countledger.ledger.attempts import Send
from countledger.ledger.calendar import Per, window_of, zone_of
from countledger.ledger.errors import ConditionFailed, Reason, TransactionCancelled
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Delete,
    Put,
    Transact,
    Update,
)
from countledger.producers.claims import claim, claims
from countledger.producers.claims.claim import Before, Freeing, Taking
from countledger.producers.quotas import acquiring, plan
from countledger.producers.sequences import sequences
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import Appending, ExpectedDraw
from countledger.producers.strict import (
    applying,
    change,
    creation,
    hold,
    marker,
    multi_update,
    optimistic,
    token,
)
from countledger.producers.strict.definition import Definition
from countledger.producers.strict.hold import lapsed_before
from countledger.producers.strict.holds import HoldChange, Readmission
from countledger.producers.strict.marker import MarkerChange
from countledger.producers.strict.multi_update import KeyedWrite
from countledger.producers.strict.outcome import BoundReached
from countledger.producers.strict.release import Releases
from countledger.producers.strict.token import RequestTokenChange, SetChange
from tests.exploring.canary import SwitchedOff
from tests.exploring.client import ActorClient, ActorConnection
from tests.switches import (
    all_of,
    bare,
    refusals_believed,
    replaced,
    stepless,
    unconditional,
    wrapped,
)

if TYPE_CHECKING:
    from types import ModuleType

    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.hold import Hold
    from tests.switches import Switch

# True of every item, and of none that is absent.
_ANYTHING: Final = Compare("part", "<>", "")


def _unfenced(module: ModuleType) -> Switch:
    """Every request is applied, whatever the number of the fence is."""
    return replaced(module, "unraised", lambda _: _ANYTHING)


def _last(*given: object) -> Steps[object]:
    """Steps that send nothing, and end with the last argument."""
    yield from ()
    return given[-1]


def _of_its_own_token(send: Any, one: RequestTokenChange, *given: Any) -> Send:  # noqa: ANN401
    """Each request has another token."""
    sent: Send = send(one, *given)
    if not isinstance(sent.operation, Transact):
        return sent
    return Send(Transact(sent.operation.writes, one.connection.ids.unique_id()))


def _brief(put: Put) -> Put:
    """A marker that may be deleted before its window is over."""
    return replace(put, item={**put.item, "expires_at": put.item["at"] // 1_000})


def _any_incarnation(definition: Definition, item: Item | None) -> Item:
    """A marker or token is believed without a read of the counter's incarnation."""
    if item is None:
        raise definition.stale()
    return item


def _removed_by_age(leftovers: Leftovers, _counter: str, markers: Any) -> None:  # noqa: ANN401
    """Markers are removed by their time, whichever counter they belong to."""
    now_ms = max((one["at"] for one in markers), default=0)
    for one in markers:
        key = {name: one[name] for name in ("counter", "part")}
        leftovers._delete_item(key, Compare("at", "<=", now_ms))


def _in_steps(transact: Any, dynamo: ActorClient, writes: Any, token: str) -> Any:  # noqa: ANN401
    """One counter after the other."""
    first = writes[0]
    if not (isinstance(first, Put) and first.item["counter"].startswith("keyed#")):
        return transact(dynamo, writes, token)
    for number, write in enumerate(writes):
        try:
            dynamo.write_one("", write)
        except ConditionFailed as failed:
            reasons = [Reason("None")] * len(writes)
            reasons[number] = Reason("ConditionalCheckFailed", failed.item)
            raise TransactionCancelled(tuple(reasons)) from None
    return True


_STRICT: Final = (
    SwitchedOff(
        "the SDK sends no change of method atomic again",
        "strict-atomic",
        "created: add",
        replaced(ActorConnection, "unretried", property(lambda self: self.retrying)),
    ),
    SwitchedOff(
        "a change fits between the bounds",
        "strict-atomic",
        "created: take | take",
        all_of(
            *(replaced(one, "has_headroom", lambda *_: Absent("never")) for one in (change, token))
        ),
        faults=0,
    ),
    SwitchedOff(
        "a write of occ without an answer is fenced",
        "strict-occ",
        "created: take | add",
        replaced(
            optimistic,
            "plan_fence",
            lambda table, definition, _: Update(table, definition.main, (Assign("fenced", 1),)),
        ),
    ),
    SwitchedOff(
        "all bins are read before a change is refused",
        "strict-atomic-2",
        "created: take",
        replaced(
            applying,
            "_split_over_bins",
            lambda _connection, _definition, change, one: one.confirm_refusal(
                BoundReached(change.counter, 0, "upper", 0, change.delta)
            ),
        ),
        faults=0,
    ),
    SwitchedOff(
        "all requests of a key have one token",
        "strict-request_token",
        "created: key | key",
        wrapped(RequestTokenChange, "_send", _of_its_own_token),
        faults=0,
    ),
    SwitchedOff(
        "nothing is sent after a key has expired",
        "strict-request_token",
        "created: add",
        all_of(
            replaced(attempts.Attempts, "check", lambda *_: None),
            replaced(attempts.Attempts, "trusted", lambda _self, _send, answer: answer),
        ),
    ),
    SwitchedOff(
        "a marker is put where there is none",
        "strict-marker",
        "created: key to add | key to add",
        unconditional(marker, "put_marker"),
        faults=0,
    ),
    SwitchedOff(
        "a marker stays for the window of its counter",
        "strict-marker",
        "created: key to add, key to add",
        wrapped(marker, "put_marker", lambda put_marker, *given: _brief(put_marker(*given))),
    ),
    SwitchedOff(
        "a marker counts for the incarnation that it names",
        "strict-marker",
        "created: key, key | delete, create",
        replaced(Definition, "expect", _any_incarnation),
        faults=0,
    ),
    SwitchedOff(
        "a marker is deleted with the incarnation that it names",
        "strict-marker",
        "created: key to add, delete, create, key to add, key to add | tidy",
        replaced(Leftovers, "_delete_old", _removed_by_age),
        faults=0,
    ),
    SwitchedOff(
        "a change by request_token names the number of the fence",
        "strict-request_token",
        "created: add | add",
        _unfenced(token),
    ),
    SwitchedOff(
        "a creation replaces no tombstone that is as new as itself",
        "strict-life",
        "absent: create | delete",
        replaced(creation, "vacant", lambda *_: AnyOf(Absent("part"), _ANYTHING)),
    ),
    SwitchedOff(
        "a creation that is refused after no answer raises the fence of the counter",
        "strict-life",
        "created: delete | create",
        replaced(creation, "_fenced", stepless(value=True)),
    ),
    SwitchedOff(
        "a move of bounds names the number of the moves before",
        "strict-marker",
        "created: raise bound | lower bound",
        replaced(creation, "_numbered", lambda write, _moves, _call: write),
    ),
    SwitchedOff(
        "a refusal by marker leaves a void marker",
        "strict-marker",
        "created: take | key, add",
        refusals_believed(MarkerChange),
    ),
    SwitchedOff(
        "a refusal by set leaves a token of zero",
        "strict-set",
        "created: take | key, add",
        refusals_believed(SetChange),
    ),
    SwitchedOff(
        "a refusal of all bins under a key asks its token once more",
        "strict-request_token-2",
        "created: key | key",
        replaced(applying, "_confirm_by_token", _last),
        faults=0,
    ),
    SwitchedOff(
        "several counters change in one transaction",
        "transfers",
        "created: transfer | take",
        wrapped(ActorClient, "transact", _in_steps),
        faults=0,
    ),
    SwitchedOff(
        "the marker of a transfer is put where there is none",
        "transfers",
        "created: transfer, add, transfer",
        unconditional(multi_update, "_marker"),
        faults=0,
    ),
    SwitchedOff(
        "a refusal of several counters leaves a void marker",
        "transfers",
        "created: take | transfer, add",
        refusals_believed(KeyedWrite),
    ),
)


def _bare_hold(writes: Any, *given: object) -> list[Any]:  # noqa: ANN401 - handed on
    own, *others = writes(*given)
    return [bare(own), *others]


def _lapsed_here(hold: Hold, connection: Any) -> bool:  # noqa: ANN401 - of any actor
    return bool(hold.lapses_at_ms < connection.clock.now_ms())


# The endurance tests switch these off as well.
RULES_OF_HOLDS: Final = (
    SwitchedOff(
        "a hold is confirmed in time",
        "holds-lapsing",
        "held: confirm",
        all_of(
            replaced(hold, "_may_confirm", lambda *_: True),
            replaced(hold, "confirmed_before", lambda _now_ms: None),
        ),
    ),
    SwitchedOff(
        "a hold is released after the skew of clocks",
        "holds-ending",
        "held: confirm",
        all_of(
            replaced(hold, "_may_release", _lapsed_here),
            replaced(hold, "lapsed_before", lambda now_ms, _skew: lapsed_before(now_ms, 0)),
        ),
        faults=0,
    ),
    SwitchedOff(
        "a hold whose time is over is released for a sale",
        "holds-lapsing",
        "held: take",
        replaced(Releases, "for_refused", stepless(value=False)),
    ),
    SwitchedOff(
        "a hold is placed where there is no marker",
        "holds",
        "created: hold, cancel, hold",
        wrapped(HoldChange, "writes", _bare_hold),
        faults=0,
    ),
    SwitchedOff(
        "a hold ends once",
        "holds-beside",
        "held: confirm | cancel",
        unconditional(hold, "plan_end"),
        faults=0,
    ),
)
_HOLDS: Final = (
    *RULES_OF_HOLDS,
    SwitchedOff(
        "a deletion names the number of the fence",
        "holds",
        "held: confirm | delete",
        _unfenced(creation),
    ),
    SwitchedOff(
        "a deletion that is refused raises the fence",
        "holds",
        "held: confirm | delete",
        all_of(*(replaced(one, "raise_fences", stepless(value=True)) for one in (creation, token))),
    ),
    SwitchedOff(
        "a refusal to readmit a hold reads the hold again",
        "holds-lapsing-2",
        "released: readmit | readmit",
        refusals_believed(Readmission),
    ),
)


def _made_again(admission: Any, *given: Any) -> Any:  # noqa: ANN401 - a write
    """Each amount makes the counter of the window, though one exists."""
    write = admission(*given)
    clauses = [Assign(c.name, c.value) if isinstance(c, Add) else c for c in write.clauses]
    return replace(write, clauses=tuple(clauses))


def _of_any_revision(admission: Any, table: str, share: Any, amount: Any) -> Any:  # noqa: ANN401
    """A process goes on under a limit that others know no more."""
    fits = Compare("used", "<=", share.limit.amount - amount)
    write = admission(table, share, amount)
    return replace(write, condition=AnyOf(Absent("part"), fits))


def _of_one_window(marker: Any, *given: Any) -> Any:  # noqa: ANN401 - a write
    """A key is remembered within its window."""
    table, places, key_id, facts = given
    return marker(table, places, f"{key_id}-{places[0].window}", facts)


def _in_the_present_window(resolve: Any, connection: Any, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """A commit is counted when it comes."""
    window = window_of(connection.clock.now_ms(), Per.HOUR, zone_of("UTC"))
    places = tuple(one._replace(window=window.name) for one in ticket.counted_in)
    return resolve(connection, replace(ticket, counted_in=places), *more)


def _of_any_ticket(resolution: Any, table: str, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """What the marker says of the amount and the window does not count."""
    write = resolution(table, ticket, *more)
    open_one = Compare("call", "=", ticket.reservation), Compare("state", "=", plan.RESERVED)
    return replace(write, condition=AllOf(*open_one))


def _again(resolution: Any, table: str, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """A reservation that is resolved can be resolved in another way."""
    write = resolution(table, ticket, *more)
    return replace(write, condition=AllOf(Compare("call", "=", ticket.reservation)))


def _of_any_window(correction: Any, *given: Any) -> Any:  # noqa: ANN401 - a write
    """The window need not include the reservation."""
    write = correction(*given)
    return None if write is None else replace(write, condition=None)


def _of_the_first_window(correction: Any, table: str, ticket: Any, place: Any, actual: Any) -> Any:  # noqa: ANN401
    """A reservation is resolved under one of its limits only."""
    if place != ticket.counted_in[0]:
        return None
    return correction(table, ticket, place, actual)


def _under_the_first_limit(admission: Any, table: str, share: Any, amount: Any, *more: Any) -> Any:  # noqa: ANN401
    """An amount is held against one of its limits only."""
    write = admission(table, share, amount, *more)
    return write if share.limit.counter == "b:y" else replace(write, condition=None)


_QUOTAS: Final = (
    SwitchedOff(
        "an amount must fit into all of its limits",
        "quotas-marker-both",
        "reserved: key",
        wrapped(acquiring, "admission", _under_the_first_limit),
        faults=0,
    ),
    SwitchedOff(
        "a reservation is resolved under all of its limits",
        "quotas-marker-both",
        "reserved: commit",
        wrapped(acquiring, "correction", _of_the_first_window),
        faults=0,
    ),
    SwitchedOff(
        "an amount of a quota under a token names the number of the fence",
        "quotas-request_token",
        "created: key 1 | raise limit",
        _unfenced(acquiring),
    ),
    SwitchedOff(
        "the counter of a window is made once",
        "quotas-marker",
        "reserved: key 1",
        wrapped(acquiring, "admission", _made_again),
        faults=0,
    ),
    SwitchedOff(
        "what a window has used is within its limit",
        "quotas-marker",
        "reserved: use",
        unconditional(acquiring, "admission"),
        faults=0,
    ),
    SwitchedOff(
        "an amount of a quota names the revision of its limit",
        "quotas-request_token",
        "created: use | lower limit, use 1 later",
        wrapped(acquiring, "admission", _of_any_revision),
    ),
    SwitchedOff(
        "a key of a quota is remembered in every window",
        "quotas-hours",
        "reserved: key, key",
        wrapped(acquiring, "marker", _of_one_window),
    ),
    SwitchedOff(
        "a commit is counted in the window of its reservation",
        "quotas-hours",
        "reserved: commit",
        all_of(
            wrapped(acquiring, "_resolving", _in_the_present_window),
            wrapped(acquiring, "resolution", _of_any_ticket),
            wrapped(acquiring, "correction", _of_any_window),
        ),
    ),
    SwitchedOff(
        "a reservation is resolved once",
        "quotas-marker",
        "reserved: commit | release",
        all_of(
            wrapped(acquiring, "resolution", _again),
            wrapped(acquiring, "correction", _of_any_window),
        ),
        faults=0,
    ),
)


def _hopeful(interpret: Any, draw: ExpectedDraw, reply: Any) -> Any:  # noqa: ANN401 - handed on
    """After a lost answer the next number passes for one's own."""
    before = getattr(reply.state, "before", None)
    found = reply.answer if isinstance(reply.answer, dict) else {}
    if before and found.get("total") == before.last + 1:
        reply = replace(reply, answer={**found, "tag": before.tag})
    return interpret(draw, reply)


_SEQUENCES: Final = (
    SwitchedOff(
        "a deletion deletes the sequence that it has read, and no other",
        "sequences",
        "created: delete | delete, create at 5",
        replaced(sequences, "AllOf", lambda is_one, _same: is_one),
    ),
    SwitchedOff(
        "a number is drawn after the last one that was seen",
        "sequences",
        "created: draw expected | draw expected",
        unconditional(sequences, "plan_expected"),
        faults=0,
    ),
    SwitchedOff(
        "a number of a lost draw is known by its tag",
        "sequences",
        "created: draw expected | draw",
        wrapped(ExpectedDraw, "_interpret", _hopeful),
    ),
    SwitchedOff(
        "an item is put where there is none",
        "collections",
        "empty: append a | append b or resume",
        unconditional(Collection, "put"),
        faults=0,
    ),
    SwitchedOff(
        "the number of an item without an answer is read",
        "collections",
        "empty: append a",
        all_of(
            replaced(Appending, "_doubt", lambda *_: None),
            replaced(Appending, "_is_mine", lambda *_: False),
        ),
    ),
)


def _by_owner(write: Any, step: Freeing) -> Any:  # noqa: ANN401 - a write
    """A release frees whatever claim its owner has."""
    return replace(write(step), condition=Compare("owner", "=", step.claim.owner))


def _taken_again(write: Any, step: Taking) -> Any:  # noqa: ANN401 - a write
    """An owner that takes what it has already makes another claim of it."""
    update = write(step)
    others = [one for one in update.clauses if one != AssignOnce("id", step.claim_id)]
    return replace(update, clauses=(Assign("id", step.claim_id), *others))


def _for_good(write: Any, step: Freeing) -> Delete:  # noqa: ANN401 - handed on
    """A claim that is released leaves no tombstone."""
    return Delete(step.table, step.claim.key, write(step).condition)


_CLAIMS: Final = (
    SwitchedOff(
        "a value is released by its owner",
        "claims",
        "free: bob takes | ann releases",
        unconditional(Freeing, "write"),
        faults=0,
    ),
    SwitchedOff(
        "a value is taken if it is free",
        "claims",
        "free: ann takes | bob takes",
        unconditional(Taking, "write"),
        faults=0,
    ),
    SwitchedOff(
        "a claim is released by its id",
        "claims",
        "taken: ann releases, ann takes, ann releases c1",
        wrapped(Freeing, "write", _by_owner),
        faults=0,
    ),
    SwitchedOff(
        "a claim that its owner takes again keeps its id",
        "claims",
        "taken: ann takes both",
        wrapped(Taking, "write", _taken_again),
        faults=0,
    ),
    SwitchedOff(
        "a claim that an item of the app refused moves a fence before it says so",
        "claims-with-items",
        "an item: ann takes with item | drop, look",
        replaced(claims, "fence_of", lambda *_: None),
    ),
    SwitchedOff(
        "a release leaves a tombstone",
        "claims",
        "free: ann takes, ann releases",
        wrapped(Freeing, "write", _for_good),
    ),
    SwitchedOff(
        "a claim takes the place of an earlier tombstone alone",
        "claims",
        "free: ann takes, ann releases",
        replaced(
            claim,
            "_undisturbed",
            lambda *_: AnyOf(Absent("removed_at"), Compare("removed_at", ">", 0)),
        ),
    ),
    SwitchedOff(
        "a claim that replaces a tombstone keeps what that says of the removal",
        "claims",
        "free: ann takes | ann releases, bob takes",
        replaced(Before, "of", lambda _: Before(None, None, None)),
    ),
)

CANARIES: Final = (*_STRICT, *_HOLDS, *_QUOTAS, *_SEQUENCES, *_CLAIMS)
