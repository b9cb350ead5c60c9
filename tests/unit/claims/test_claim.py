"""What can be claimed, and that no two values share a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.errors import BadClaim, CorruptItem, NewerFormat
from countledger.producers.claims.claim import Claim, owner_of

PARTS = st.lists(st.text("a#%235", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple)


@given(PARTS, PARTS)
def test_different_values_have_different_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (keys.claim_key("s", one) == keys.claim_key("s", other)) == (one == other)


def test_a_claims_key_is_fixed() -> None:
    """Another key would let a second owner in."""
    assert keys.claim_key("mail", ("a@x.org",)) == {
        "counter": "unique#mail#a@x.org",
        "part": "claim",
    }
    assert keys.claim_key("s", ("50%", "#1"))["counter"] == "unique#s#50%25#%231"


def test_no_counter_can_be_taken_for_a_claim() -> None:
    assert not keys.is_counter(keys.claim_key("s", ("a",))["counter"])


@pytest.mark.parametrize(
    ("scope", "value", "owner", "why"),
    [
        ("", "a", "u", "scope"),
        ("a#b", "a", "u", "reserved"),
        ("x" * 256, "a", "u", "256 bytes"),
        (7, "a", "u", "int, not a str"),
        ("s", "", "u", "empty"),
        ("s", "a\n", "u", "control"),
        ("s", (), "u", "nor a tuple of 1 to 100"),
        ("s", ("a", ""), "u", "empty"),
        ("s", ("a", 5), "u", "int, not a str"),
        ("s", ["a"], "u", "neither a text nor a tuple"),
        ("s", ("a",) * 101, "u", "nor a tuple of 1 to 100"),
        ("s", "x" * 2_049, "u", "2049 bytes"),
        ("s", "#" * 1_000, "u", "claim a hash"),
        ("s", "\ud800", "u", "control"),
        ("s", "a", "", "owner"),
        ("s", "a", None, "NoneType, not a str"),
        ("s", "a", "x" * 1_025, "1025 bytes"),
    ],
)
def test_what_cannot_be_claimed_is_refused(
    scope: object, value: object, owner: object, why: str
) -> None:
    with pytest.raises(BadClaim, match=why):
        Claim(scope, value, owner)  # type: ignore[arg-type]


def test_a_claim_that_cannot_be_read_is_no_free_value() -> None:
    with pytest.raises(CorruptItem, match="no 'owner'"):
        owner_of({"counter": "unique#s#a", "part": "claim"})
    with pytest.raises(NewerFormat):
        owner_of({"counter": "unique#s#a", "part": "claim", "owner": "u", "v": 2})
