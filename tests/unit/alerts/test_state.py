"""The table of alert states, exhaustively: each cell, each reachable state, each short history.

Small worlds suffice: totals from 0 to 3, three versions, the times of a total and of a
recreated one, two revisions of a rule, and rules of every kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest

from countledger.consumers.alerts.crossing import TotalChange, crossings, is_back, last_passed
from countledger.consumers.alerts.message import Alert
from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.state import (
    ACTIONS,
    AlertAction,
    AlertInput,
    AlertState,
    AlertStatus,
    Impossible,
    PublishFiring,
    ScanAlert,
    WriteState,
    decide,
    decide_scan,
    decode_state,
    encode_state,
    input_of,
    may_matter,
    published_write_of,
    scan_alert_ahead,
    scan_status_of,
    scan_write_of,
    status_of,
    write_of,
)
from countledger.infra.memory.tables import holds
from countledger.ledger.attributes import Item
from countledger.ledger.limits import ALERT_MADE_ANEW_MS
from countledger.ledger.operations import Put
from tests.unit.alerts.evaluating import COUNTER, START_MS, TABLE, rule

KINDS: dict[str, dict[str, Any]] = {
    "rising": {"threshold": 2, "direction": "rising"},
    "falling": {"threshold": 1, "direction": "falling"},
    "both": {"threshold": 2, "direction": "both"},
    "rising steps": {"threshold": 1, "direction": "rising", "step": 1},
    "falling steps": {"threshold": 2, "direction": "falling", "step": 1},
    "rising, re-armed": {"threshold": 2, "direction": "rising", "rearm": 0},
    "falling, re-armed": {"threshold": 1, "direction": "falling", "rearm": 3},
}
VALUES = range(4)
TIMES = tuple(START_MS + n * ALERT_MADE_ANEW_MS for n in (0, 2))
# Two totals of one name, of which one begins as the other ends: when, and their incarnations.
NAMED = ((START_MS, "i1"), (START_MS + 3, "i2"))


def _rules(kind: str) -> tuple[Rule, Rule]:
    first = rule(**KINDS[kind])
    return first, replace(first, revision="r2")


def _inputs() -> Iterator[TotalChange]:
    """Every change, and every total that an initial scan reads (from its value to the same)."""
    for old, new, version, at_ms in product(VALUES, VALUES, (1, 2, 3), TIMES):
        yield TotalChange(0, COUNTER, old, new, version, at_ms)


def _decide(state: AlertState | None, change: TotalChange, rule: Rule) -> Any:  # noqa: ANN401
    return (decide_scan if change.old == change.new else decide)(state, change, rule)


def _write(change: TotalChange, step: WriteState) -> Put:
    return (scan_write_of if change.old == change.new else write_of)(TABLE, step)


def _cell(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> tuple[AlertStatus, AlertInput]:
    if change.old == change.new:
        beyond = last_passed(change.new, rule) is not None
        column = AlertInput.SCAN_BEYOND if beyond else AlertInput.SCAN_SHORT
        return scan_status_of(state, change, rule), column
    column = input_of(change, rule, scan_alert_ahead(state, change))
    return status_of(state, change, rule), column


@cache
def _reachable(kind: str) -> tuple[AlertState | None, ...]:
    """No state, and each that one or two writes lead to, before and after it is published."""
    states: set[AlertState | None] = {None}
    for _ in range(2):
        for state, change, one in product(tuple(states), _inputs(), _rules(kind)):
            if state is None or not state.has_unpublished_alerts:
                step = _decide(state, change, one)
                if isinstance(step, WriteState):
                    states |= {_short(step.state), _short(replace(step.state, published=True))}
    return tuple(states)


def _short(state: AlertState) -> AlertState:
    """The state without what no decision looks at, so that fewer states are told apart."""
    if state.firing is None or state.from_scan:
        return state
    plain = replace(state.firing, old=0, new=0, direction=Direction.RISING, crossings=())
    return replace(state, firing=plain)


def test_the_table_has_one_cell_for_each_status_and_input() -> None:
    assert set(ACTIONS) == set(product(AlertStatus, AlertInput))
    assert all(cell.reason for cell in ACTIONS.values() if isinstance(cell, Impossible))


@cache
def _checked_cells(kind: str) -> set[tuple[AlertStatus, AlertInput]]:
    """Check every input in every reachable state of a kind of rule; the cells that it meets."""
    met: set[tuple[AlertStatus, AlertInput]] = set()
    for state, change, one in product(_reachable(kind), tuple(_inputs()), _rules(kind)):
        cell = _cell(state, change, one)
        met.add(cell)
        action, step = ACTIONS[cell], _decide(state, change, one)
        if state is not None and state.has_unpublished_alerts:
            assert isinstance(step, PublishFiring)
            assert step.firing is state.firing
        elif action is AlertAction.NOTHING:
            assert step is None
        else:
            assert isinstance(step, WriteState)
            _check_write(state, change, one, step)
        if cell[0] in (AlertStatus.DISARMED, AlertStatus.RECREATED):
            assert one.rearm is not None
        if cell[0] is AlertStatus.DISARMED and action is AlertAction.REARM:
            assert is_back(change.old, one) or is_back(change.new, one)
        if cell == (AlertStatus.ARMED, AlertInput.PUBLISHED_BY_SCAN):
            assert step is None
    return met


def _check_write(
    state: AlertState | None, change: TotalChange, one: Rule, step: WriteState
) -> None:
    """Written once: it holds its alerts, or arms the rule; then the change is done."""
    after, fired = step.state, step.state.firing is not None
    assert (after.version, after.at_ms) == (change.version, change.at_ms)
    assert after.has_unpublished_alerts == fired
    assert after.armed == (not fired or one.rearm is None)
    assert _decide(replace(after, published=True), change, one) is None
    if state is None and change.old != change.new:
        assert may_matter(change, one)
    if fired and change.old != change.new:
        assert crossings(change.old, change.new, one)


@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_that_of_the_table_and_is_taken_once(kind: str) -> None:
    assert _checked_cells(kind)


def test_each_possible_cell_is_reached_and_no_impossible_one() -> None:
    met = set[tuple[AlertStatus, AlertInput]]().union(*map(_checked_cells, KINDS))

    assert met == {at for at, cell in ACTIONS.items() if not isinstance(cell, Impossible)}


def _stored(state: AlertState | None) -> Item:
    item = {} if state is None else encode_state(state)
    return {name: value for name, value in item.items() if value is not None}


@pytest.mark.parametrize("kind", ["rising steps", "rising, re-armed"])
def test_a_write_is_taken_exactly_where_the_stored_state_asks_for_it(kind: str) -> None:
    """One that was decided on an older state is refused, unless it is right for the stored one."""
    states, (one, _) = _reachable(kind)[::7], _rules(kind)
    for known, change in product(states, tuple(_inputs())[::3]):
        step = _decide(known, change, one)
        if not isinstance(step, WriteState):
            continue
        condition = _write(change, step).condition
        assert condition is not None
        assert holds(condition, _stored(known))
        for stored in states:
            if not holds(condition, _stored(stored)):
                continue
            assert stored is None or not stored.has_unpublished_alerts
            if stored is not None and change.old != change.new and not step.over:
                assert status_of(stored, change, one) is not AlertStatus.EVALUATED


def test_only_the_mark_of_its_own_alerts_settles_a_state() -> None:
    states = [one for one in _reachable("rising steps") if one and one.has_unpublished_alerts]
    for marked, stored in product(states[::5], states):
        assert marked.firing is not None
        mark = published_write_of(TABLE, PublishFiring(marked.firing, marked.from_scan))
        assert mark.condition is not None
        same = [getattr(marked, n) == getattr(stored, n) for n in ("version", "revision")]
        same.append(marked.from_scan == stored.from_scan)
        assert holds(mark.condition, _stored(stored)) == all(same)


@pytest.mark.parametrize("stored", ["i1", None, "i2"])
def test_no_write_and_no_mark_of_one_total_meets_the_state_of_another(stored: str | None) -> None:
    """A state that names no incarnation may be of the same total."""
    one, _ = _rules("rising")
    step = decide(None, TotalChange(0, COUNTER, 0, 3, 2, START_MS, incarnation="i1"), one)
    assert isinstance(step, WriteState)
    assert step.state.firing is not None
    after = replace(step.state, published=True)
    same, earlier = replace(after, incarnation=stored), replace(after, version=1, firing=None)
    over = write_of(TABLE, WriteState(after, over=after)).condition
    blind = write_of(TABLE, step).condition
    mark = published_write_of(TABLE, PublishFiring(step.state.firing)).condition
    assert over is not None
    assert blind is not None
    assert mark is not None

    assert holds(over, _stored(same)) == (stored == "i1")
    assert holds(blind, _stored(replace(earlier, incarnation=stored))) == (stored != "i2")
    assert holds(mark, _stored(same)) == (stored != "i2")


# ---- histories: all alerts are those of a walk, with a scan at any moment ----


class _Played:
    """A counter under a rule, whose changes come in order and come again."""

    def __init__(self, one: Rule) -> None:
        self.rule, self.state = one, None
        self.ids: set[str] = set()

    state: AlertState | None

    def meet(self, change: TotalChange) -> None:
        """Take all steps for a change, as the evaluator does."""
        if change.old != change.new and not may_matter(change, self.rule):
            return
        while (step := _decide(self.state, change, self.rule)) is not None:
            if isinstance(step, PublishFiring):
                self.ids |= {alert.id for alert in step.firing.alerts}
                assert self.state is not None
                self.state = replace(self.state, published=True)
            else:
                condition = _write(change, step).condition
                assert condition is not None
                assert holds(condition, _stored(self.state))
                self.state = step.state


def _changes(
    totals: Sequence[int], made_ms: int = START_MS, incarnation: str | None = None
) -> list[TotalChange]:
    return [
        TotalChange(version, COUNTER, old, new, version, made_ms + version, incarnation=incarnation)
        for version, (old, new) in enumerate(pairwise((0, *totals)), 1)
    ]


def _histories(length: int) -> Iterator[tuple[int, ...]]:
    for totals in product(VALUES, repeat=length):
        if all(old != new for old, new in pairwise((0, *totals))):
            yield totals


def _walk(
    changes: Sequence[TotalChange], one: Rule, scan: tuple[int, TotalChange] | None
) -> set[str]:
    """The alerts that must come, by a rule of thumb: crossings while armed, and that of the scan.

    A scan alerts if no change that came before it wrote a state; from the scanned total on the
    rule is disarmed.
    """
    armed, wrote = True, False
    ids: set[str] = set()
    scanned: TotalChange | None = None
    for position, change in enumerate((*changes, None)):
        if scan is not None and scan[0] == position and not wrote:
            passed = last_passed(scan[1].new, one)
            if passed is not None:
                scanned = scan[1]
                armed = armed and (one.rearm is None or scanned.version > position)
                ids.add(_id(scanned, one, passed.threshold))
        if change is None:
            break
        back = is_back(change.old, one)
        crossed = crossings(change.old, change.new, one) if armed or back else ()
        ids |= {_id(change, one, each.threshold) for each in crossed}
        if crossed:
            armed, wrote = one.rearm is None, True
        elif not armed and (back or is_back(change.new, one)):
            armed = wrote = True
        if scanned is not None and change.version == scanned.version:
            armed = one.rearm is None
    return ids


def _id(change: TotalChange, one: Rule, threshold: Any) -> str:  # noqa: ANN401 - an amount
    way = Direction.RISING if change.new > change.old else Direction.FALLING
    if change.new == change.old:
        way = Direction.FALLING if one.direction is Direction.FALLING else Direction.RISING
    return Alert(
        rule=one.name,
        revision=one.revision,
        counter=COUNTER,
        direction=way,
        threshold=threshold,
        old=change.old,
        new=change.new,
        version=change.version,
        region=one.evaluate_in,
        at_ms=change.at_ms,
        incarnation=change.incarnation,
    ).id


@pytest.mark.parametrize("kind", KINDS)
def test_each_short_history_alerts_as_a_walk_does(kind: str) -> None:
    """Each of four changes, or three of four; a scan at each moment, of each later total."""
    one, _ = _rules(kind)
    histories = [_changes(totals) for totals in _histories(4)]
    histories += [
        [*changes[:lost], *changes[lost + 1 :]] for changes in histories for lost in (1, 2)
    ]
    for changes in histories:
        scans: list[tuple[int, TotalChange] | None] = [None]
        for before in range(len(changes) + 1):
            for read in changes[max(0, before - 1) :]:
                still = read._replace(old=read.new)
                scans.append((before, still))
        for scan in scans:
            played = _Played(one)
            for position, change in enumerate((*changes, None)):
                if scan is not None and scan[0] == position:
                    played.meet(scan[1])
                    played.meet(scan[1])
                for again in changes[max(0, position - 1) : position + 1]:
                    if change is not None:
                        played.meet(again)
            assert played.ids == _walk(changes, one, scan), (changes, scan)


@pytest.mark.parametrize(
    "lives", [((START_MS, None), (TIMES[-1], None)), NAMED], ids=["minutes", "ids"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_recreated_total_alerts_as_one_that_is_new(kind: str, lives: tuple[Any, Any]) -> None:
    """Its versions start again; records of the total before it, delivered late, set nothing off."""
    one, _ = _rules(kind)
    for first, second in product(tuple(_histories(3)), repeat=2):
        old, new = _changes(first, *lives[0]), _changes(second, *lives[1])
        played = _Played(one)
        for change in (*old, *old, *new, *new):
            played.meet(change)
        late = played.state is not None and played.state.at_ms >= new[0].at_ms
        for change in old if late else ():
            played.meet(change)
        assert played.ids == _walk(old, one, None) | _walk(new, one, None), (first, second)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("scan", [False, True])
def test_a_state_is_read_as_it_was_stored(*, before: bool, scan: bool) -> None:
    earlier = AlertState(COUNTER, "r", "1", 1, START_MS, armed=True)
    state = AlertState(
        COUNTER,
        "r",
        "2",
        3,
        START_MS,
        armed=False,
        before_scan=replace(earlier, incarnation="i" if scan else None) if before else None,
        scan_alert=ScanAlert("1", 2, 5) if scan else None,
        incarnation="i" if scan else None,
    )

    assert decode_state(encode_state(state)) == state
