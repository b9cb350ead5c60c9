"""The laws of the mapping from git's names to counter names."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countledger.infra.demo.history import counter_name
from countledger.ledger.keys import check_counter
from tests.unit.demo.repositories import ODD_NAMES

# Bytes that meet every branch: plain, reserved, control, not UTF-8, many bytes wide, and long.
_PIECES = st.sampled_from(
    [b"a", b"/", b" ", b"%", b"#", b"~", b"2", b"5", b"\n", b"\x85", b"\xff", "é日🎉".encode()]
)
_NAMES = st.one_of(
    st.binary(max_size=40),
    st.lists(_PIECES, max_size=30).map(b"".join),
    st.tuples(st.lists(_PIECES, max_size=5).map(b"".join), st.integers(480, 540)).map(
        lambda made: b"d/" * (made[1] // 2) + made[0]
    ),
)


@given(_NAMES)
@example(b"")
@example(b"\xed\xa0\x80")
@example("é".encode() * 600)
def test_every_name_becomes_a_valid_counter_name(name: bytes) -> None:
    counter = counter_name("lines", name)

    assert counter == check_counter(counter)
    assert counter.startswith("lines:")


@given(_NAMES, _NAMES)
@example(b"", b"%")
@example(b"%25", b"%")
@example(b"%FF", b"\xff")
@example(b"a" * 600, b"a" * 601)
def test_different_names_become_different_counters(one: bytes, other: bytes) -> None:
    assert (counter_name("lines", one) == counter_name("lines", other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="%#")))
def test_an_ordinary_name_reads_as_it_is(name: str) -> None:
    if 0 < len(name.encode()) <= 500:
        assert counter_name("lines", name.encode()) == f"lines:{name}"


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        (b"src/app.py", "lines:src/app.py"),
        (b"100%.md", "lines:100%25.md"),
        (b"a#b", "lines:a%23b"),
        (b"a\tb\nc", "lines:a%09b%0Ac"),
        (b"caf\xe9", "lines:caf%E9"),
        ("café".encode(), "lines:café"),
        (b"\xc2\x85", "lines:%C2%85"),
        (b"", "lines:%"),
    ],
)
def test_the_documented_spellings_hold(name: bytes, counter: str) -> None:
    assert counter == counter_name("lines", name)


def test_a_long_name_keeps_its_beginning_and_never_half_a_character() -> None:
    for name in ("é".encode() * 600, b"#" * 600, b"a" * 600):
        counter = counter_name("lines", name)
        kept = counter.removeprefix("lines:").partition("%~")[0]

        assert 508 < len(counter.encode()) <= 512
        assert set(kept.replace("%23", "#")) <= set(name.decode())


def test_the_odd_names_of_the_other_tests_are_all_different() -> None:
    assert len({counter_name("lines", name) for name in ODD_NAMES}) == len(ODD_NAMES)
