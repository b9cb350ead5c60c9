"""What an account allows is compared with what a stack wants, before anything is made."""

import pytest

from countledger.infra.deploy.account_limits import (
    WARM,
    ServiceQuotas,
    refuse_beyond,
    refuse_lowered,
    warnings,
)
from countledger.ledger.errors import BadInput

ACCOUNT = ServiceQuotas(
    concurrency=1000,
    unreserved=300,
    account_units={"write": 1000, "read": 80_000},
    table_write_units=40_000,
)


@pytest.mark.parametrize(
    ("wanted", "now", "reason"),
    [
        ({"MaterializerConcurrency": "200"}, {}, None),
        ({"MaterializerConcurrency": "201"}, {}, "give 200 or less"),
        (
            {"MaterializerConcurrency": "150", "HttpApi": "iam", "HttpConcurrency": "51"},
            {},
            "200 or",
        ),
        ({"MaterializerConcurrency": "150", "HttpConcurrency": "51"}, {}, None),
        # What the stack has reserved itself becomes free.
        ({"MaterializerConcurrency": "250"}, {"MaterializerConcurrency": "50"}, None),
        ({"LedgerWarmWriteUnits": "40000"}, {}, None),
        ({"CountersWarmWriteUnits": "40001"}, {}, "CountersWarmWriteUnits=40001 is more"),
        ({"CapacityMode": "provisioned"}, {}, None),
        (
            {"CapacityMode": "provisioned", "LedgerWriteUnits": "500,900"},
            {},
            "least write capacity of all tables and indexes is 1125 units",
        ),
        ({"CapacityMode": "on-demand", "LedgerWriteUnits": "500,900"}, {}, None),
    ],
)
def test_what_an_account_cannot_serve_is_refused(
    wanted: dict[str, str], now: dict[str, str], reason: str | None
) -> None:
    refuse_beyond(ServiceQuotas(), wanted, now)  # an account that does not say stops nothing
    if reason is None:
        refuse_beyond(ACCOUNT, wanted, now)
        return

    with pytest.raises(BadInput, match=reason):
        refuse_beyond(ACCOUNT, wanted, now)


@pytest.mark.parametrize(
    ("before", "after", "has", "least"),
    [
        ("24000", "24000", 50_000, None),
        ("24000", "30000", 24_000, None),
        ("24000", "12000", 24_000, 24_000),
        ("24000", "0", 24_000, 24_000),
        # It rises with traffic, so that a first value may be too low as well.
        ("0", "12000", 16_000, 16_000),
        ("0", "16000", 16_000, None),
        ("24000", "30000", 40_000, 40_000),
    ],
)
@pytest.mark.parametrize("name", WARM)
def test_warm_throughput_that_dynamodb_would_have_to_lower_is_refused(
    name: str, before: str, after: str, has: int, least: int | None
) -> None:
    read: list[str] = []

    def units_of(output: str) -> int:
        read.append(output)
        return has

    if least is None:
        refuse_lowered({name: after}, {name: before}, units_of)
    else:
        with pytest.raises(BadInput, match=f"{name}={after} is less than the {least} write units"):
            refuse_lowered({name: after}, {name: before}, units_of)
    assert set(read) <= {WARM[name]}
    assert bool(read) == (after not in {before, "0"})


def test_a_new_stack_and_the_ledger_of_another_region_have_no_throughput_to_lower() -> None:
    def unread(output: str) -> int:
        raise AssertionError(output)

    refuse_lowered({"LedgerWarmWriteUnits": "4000"}, {}, unread)
    there = {"LedgerStreamArn": "arn", "LedgerWarmWriteUnits": "24000"}
    refuse_lowered({**there, "LedgerWarmWriteUnits": "0"}, there, unread)


@pytest.mark.parametrize(
    ("concurrency", "compactors", "warned"),
    [(10, "20", True), (31, "20", True), (32, "20", False), (10, "2", True), (14, "2", False)],
)
def test_a_small_concurrency_is_named(concurrency: int, compactors: str, *, warned: bool) -> None:
    found = list(warnings(ServiceQuotas(concurrency=concurrency), {"MaxCompactors": compactors}))

    assert bool(found) == warned
    assert list(warnings(ServiceQuotas(), {})) == []
