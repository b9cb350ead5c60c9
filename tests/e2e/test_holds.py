"""`countledger strict hold`, `confirm`, `cancel` and `holds`, as a user calls them."""

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command


def test_two_seats_are_held_and_one_is_taken(stack: LocalStack, name: str) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "marker", "--lower", "0", "--opening", "10")
    hold = ("strict", "hold", hall, "2", "--key", "basket-7", "--expires-in", "10m", "--json")

    first, again = run(*hold).json, run(*hold).json
    listed = run("strict", "holds", hall, "--json").json
    refused = run("strict", "change", hall, "-9", "--key", "order-1")
    confirmed = run("strict", "confirm", first["hold"], "1", "--json")
    shown = run("strict", "show", hall, "--json").json

    assert (first["status"], again["status"]) == ("held", "duplicate")
    assert [one["id"] for one in listed] == [first["hold"]] == [again["hold"]]
    assert refused.code == 4
    assert (confirmed.code, confirmed.json["released"]) == (0, 1)
    assert (shown["value"], shown["held"], shown["available"]) == (9, 0, 9)


def test_a_hold_that_is_cancelled_cannot_be_confirmed(stack: LocalStack, name: str) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "marker", "--lower", "0", "--opening", "10")
    hold = run("strict", "hold", hall, "10", "--key", "b", "--json").json["hold"]

    cancelled = run("strict", "cancel", hold, "--json")
    late = run("strict", "confirm", hold)

    assert (cancelled.code, cancelled.json["status"]) == (0, "cancelled")
    assert late.code == 4
    assert "was cancelled" in late.err
    assert run("strict", "show", hall, "--json").json["available"] == 10


def test_other_methods_and_unknown_holds_are_refused_with_the_reason(
    stack: LocalStack, name: str
) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "atomic", "--lower", "0", "--opening", "10")

    other = run("strict", "hold", hall, "1", "--key", "b")
    unknown = run("strict", "confirm", f"{hall}#k{'0' * 32}")

    assert other.code == 2
    assert "marker" in other.err
    assert unknown.code == 2
    assert "no hold" in unknown.err.lower() or "unknown" in unknown.err.lower()
