"""What apps may rest on: the public names, their documentation, their types."""

import inspect

import pytest

import countledger

# Adding a name is a feature; taking one away, or renaming it, breaks apps.
_NAMES = [
    "Admitted",
    "Amount",
    "AsyncCountLedger",
    "Audit",
    "BufferStatistics",
    "BufferedProducer",
    "Buffering",
    "Claim",
    "Collection",
    "Committed",
    "Correction",
    "CountLedger",
    "CountledgerError",
    "Denied",
    "Direction",
    "Entry",
    "Event",
    "ExactSum",
    "Failure",
    "Freshness",
    "Group",
    "Head",
    "IdempotencyKey",
    "ItemChange",
    "ItemDeletion",
    "Judgement",
    "Kind",
    "Namespace",
    "NewItem",
    "PendingEntry",
    "RangeKey",
    "Ranked",
    "Receipt",
    "RegionAnswer",
    "Remedy",
    "Repair",
    "Retire",
    "Rule",
    "Schedule",
    "Settings",
    "ShardProgress",
    "Snapshot",
    "Status",
    "Total",
    "TotalOverRegions",
    "Verdict",
    "WindowSum",
    "counted",
    "counter_name",
    "errors",
    "outcomes",
    "record",
    "total",
]
_METHODS = [
    "alerts",
    "archived",
    "audit",
    "buffered",
    "claims",
    "compactor",
    "counters",
    "deletions",
    "due",
    "entries",
    "exact",
    "expired",
    "freshness",
    "groups",
    "head",
    "kinesis",
    "names",
    "names_page",
    "namespaces",
    "quarantine",
    "quotas",
    "rankings",
    "read_units",
    "record",
    "record_many",
    "record_stream",
    "resend",
    "schedules",
    "sequences",
    "set_value",
    "snapshot",
    "strict",
    "total",
    "totals",
    "window_audit",
    "window_settings",
    "windows",
    "write_units",
]


def _public(owner: object) -> list[str]:
    return [name for name in vars(owner) if not name.startswith("_")]


def test_the_public_names_are_these() -> None:
    assert countledger.__all__ == _NAMES
    assert all(hasattr(countledger, name) for name in _NAMES)


def test_the_clients_methods_are_these() -> None:
    assert sorted(_public(countledger.CountLedger)) == _METHODS


@pytest.mark.parametrize("name", [name for name in _NAMES if name != "Amount"])
def test_every_public_name_says_what_it_is(name: str) -> None:
    """So does every public method and property of it, and every error."""
    value = getattr(countledger, name)
    assert inspect.getdoc(value)
    assert value.__doc__, f"{name} has only an inherited docstring"
    for member in _public(value) if inspect.isclass(value) else []:
        part = getattr(value, member)
        if inspect.isfunction(part) or isinstance(part, property):
            assert part.__doc__, f"{name}.{member}"


def test_every_error_says_what_it_is_and_whose_turn_it_is() -> None:
    """One root; exit codes that the command line knows."""
    kinds = [k for k in vars(countledger.errors).values() if inspect.isclass(k)]
    ours = [kind for kind in kinds if issubclass(kind, Exception)]

    assert len(ours) > 20
    for kind in ours:
        assert issubclass(kind, countledger.CountledgerError)
        assert kind.__doc__
        assert kind.exit_code in (2, 3, 4, 5)
        assert f" {kind.__name__} " in f" {countledger.errors.__doc__} ".replace("\n", " ")


def test_every_operation_says_what_it_costs() -> None:
    for name in ("record", "total", "totals", "freshness", "exact", "entries"):
        doc = (inspect.getdoc(getattr(countledger.CountLedger, name)) or "").lower()
        assert "unit" in doc, name
