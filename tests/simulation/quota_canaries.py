"""Known wrong variants of quotas."""

from dataclasses import replace
from typing import Any, Final

from countledger.ledger.calendar import Per, window_of, zone_of
from countledger.ledger.operations import Absent, Add, AllOf, AnyOf, Assign, Compare
from countledger.producers.quotas import acquiring
from tests.simulation.canary import Canary, all_of, unconditional, wrapped


def _made_again(admission: Any, *given: Any) -> Any:  # noqa: ANN401 - a write
    """The first amount of a process makes the counter of the window, though one exists."""
    write = admission(*given)
    clauses = [Assign(c.name, c.value) if isinstance(c, Add) else c for c in write.clauses]
    return replace(write, clauses=tuple(clauses))


def _of_any_revision(admission: Any, table: str, limit: Any, window: Any, amount: Any) -> Any:  # noqa: ANN401
    """A process goes on under a limit that others know no more."""
    fits = Compare("used", "<=", limit.amount - amount)
    write = admission(table, limit, window, amount)
    return replace(write, condition=AnyOf(Absent("part"), fits))


def _of_one_window(marker: Any, *given: Any) -> Any:  # noqa: ANN401
    """A key is remembered within its window."""
    table, limit, window, key_id, facts = given
    return marker(table, limit, window, f"{key_id}-{window.name}", facts)


def _in_the_present_window(resolve: Any, connection: Any, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """A commit is counted when it comes."""
    window = window_of(connection.clock.now_ms(), Per.MINUTE, zone_of("UTC"))
    return resolve(connection, replace(ticket, window=window.name), *more)


def _of_any_ticket(resolution: Any, table: str, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """What the marker says of the amount and the window does not count."""
    write = resolution(table, ticket, *more)
    open_one = Compare("call", "=", ticket.reservation), Compare("state", "=", acquiring.RESERVED)
    return replace(write, condition=AllOf(*open_one))


def _again(resolution: Any, table: str, ticket: Any, *more: Any) -> Any:  # noqa: ANN401
    """A reservation that is resolved can be resolved in another way."""
    write = resolution(table, ticket, *more)
    return replace(write, condition=AllOf(Compare("call", "=", ticket.reservation)))


def _of_any_window(correction: Any, *given: Any) -> Any:  # noqa: ANN401
    """The window need not include the reservation."""
    write = correction(*given)
    return None if write is None else replace(write, condition=None)


CANARIES: Final = [
    Canary(
        "quota: the counter of a window is made once",
        wrapped(acquiring, "admission", _made_again),
        "quotas",
        seed=1,
    ),
    Canary(
        "quota: used is within the limit",
        unconditional(acquiring, "admission"),
        "quotas",
        seed=1,
    ),
    Canary(
        "quota: a write names the revision of its limit",
        wrapped(acquiring, "admission", _of_any_revision),
        "quotas",
        seed=40,
    ),
    Canary(
        "quota: a marker is of no window",
        wrapped(acquiring, "marker", _of_one_window),
        "quotas",
        seed=2,
    ),
    Canary(
        "quota: a commit is counted in the window of its reserve",
        all_of(
            wrapped(acquiring, "_resolving", _in_the_present_window),
            wrapped(acquiring, "resolution", _of_any_ticket),
            wrapped(acquiring, "correction", _of_any_window),
        ),
        "quotas",
        seed=6,
    ),
    Canary(
        "quota: a reservation is resolved once",
        all_of(
            wrapped(acquiring, "resolution", _again),
            wrapped(acquiring, "correction", _of_any_window),
        ),
        "quotas",
        seed=4,
    ),
]
