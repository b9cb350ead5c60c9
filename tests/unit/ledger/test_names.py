"""The laws of the mapping from names of the outside to counter names."""

import os
from enum import Enum
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import countledger
from countledger.ledger.errors import BadCounterName, BadSetting
from countledger.ledger.ids import counter_name
from countledger.ledger.keys import check_counter
from countledger.ledger.texts import broken_rule
from tests.unit.demo.repositories import ODD_NAMES

# Bytes that meet every branch: plain, reserved, control, not UTF-8, many bytes wide, and long.
_PIECES = st.sampled_from(
    [b"a", b"/", b" ", b"%", b"#", b"~", b"2", b"5", b"\n", b"\x85", b"\xff", "é日🎉".encode()]
)
_NAMES = st.one_of(
    st.binary(max_size=40),
    st.lists(_PIECES, max_size=30).map(b"".join),
    st.tuples(st.lists(_PIECES, max_size=5).map(b"".join), st.integers(410, 540)).map(
        lambda made: b"d/" * (made[1] // 2) + made[0]
    ),
)
_NAMESPACES = st.sampled_from(["lines", "a", "é" * 20, "n" * 445])


class _Namespaces(str, Enum):  # noqa: UP042 - `StrEnum` formats as its text
    """Namespaces of an app, as many apps list them."""

    LINES = "lines"


@given(_NAMESPACES, _NAMES)
@example("lines", b"")
@example("lines", b"\xed\xa0\x80")
@example("n" * 445, "é".encode() * 600)
def test_every_name_becomes_a_valid_counter_name(namespace: str, name: bytes) -> None:
    counter = counter_name(namespace, name)

    assert counter == check_counter(counter)
    assert counter.startswith(f"{namespace}:")


@given(_NAMES, _NAMES)
@example(b"", b"%")
@example(b"%25", b"%")
@example(b"%FF", b"\xff")
@example(b"\xc3\xa9", b"\xe9")
@example(b"a" * 600, b"a" * 601)
@example(b"a" * 600, b"a" * 440 + b"%~" + sha256(b"a" * 600).hexdigest().encode())
def test_different_names_become_different_counters(one: bytes, other: bytes) -> None:
    assert (counter_name("lines", one) == counter_name("lines", other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="%#")))
def test_an_ordinary_name_is_unchanged(name: str) -> None:
    if 0 < len(name.encode()) <= 500 and broken_rule(name, 500) is None:
        assert counter_name("lines", name) == f"lines:{name}"


@given(st.text(max_size=30) | st.text(max_size=3).map(lambda part: part * 200))
def test_a_text_has_the_counter_of_its_bytes(name: str) -> None:
    assert counter_name("lines", name) == counter_name("lines", name.encode())


@given(_NAMES)
@example(b"caf\xe9")
def test_a_path_has_one_counter_as_text_and_as_bytes(name: bytes) -> None:
    """Python gives the names of files as text, with surrogates for what is no UTF-8."""
    assert counter_name("lines", os.fsdecode(name)) == counter_name("lines", name)


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        (b"src/app.py", "lines:src/app.py"),
        (b"100%.md", "lines:100%25.md"),
        (b"a#b", "lines:a%23b"),
        (b"a\tb\nc", "lines:a%09b%0Ac"),
        (b"caf\xe9", "lines:caf%E9"),
        ("café", "lines:café"),
        ("a\u2028b", "lines:a%E2%80%A8b"),
        (b"\xc2\x85", "lines:%C2%85"),
        ("https://example.org/?q=1#top", "lines:https://example.org/?q=1%23top"),
        ("", "lines:%"),
        (b"a" * 506, "lines:" + "a" * 506),
        (b"a" * 507, "lines:" + "a" * 440 + "%~" + sha256(b"a" * 507).hexdigest()),
    ],
)
def test_the_names_of_counters_never_change(name: str | bytes, counter: str) -> None:
    """Never edit these vectors: another name is another counter, which begins at zero."""
    assert counter == counter_name("lines", name)


@pytest.mark.parametrize("char", ["é", "#", "日", "\u2028", "a", "🎉"])
@pytest.mark.parametrize("before", range(4))
def test_a_long_name_keeps_its_beginning_and_never_half_a_character(char: str, before: int) -> None:
    name = "b" * before + char * 600

    counter = counter_name("lines", name)
    kept = counter.removeprefix("lines:").partition("%~")[0]
    encoded = counter_name("lines", char).removeprefix("lines:")

    assert 508 < len(counter.encode()) <= 512
    assert ("b" * before + encoded * 600).startswith(kept)
    assert kept[-2] != "%" != kept[-1]


def test_the_size_of_a_name_has_no_bound_and_that_of_its_counter_has() -> None:
    """All of the name is part of the digest; only its beginning is encoded."""
    huge = "#" * 5_000_000

    assert len(counter_name("lines", huge)) <= 512
    assert counter_name("lines", huge) != counter_name("lines", huge + "a")


def test_the_odd_names_of_git_are_all_different() -> None:
    assert len({counter_name("lines", name) for name in ODD_NAMES}) == len(ODD_NAMES)


def test_a_namespace_is_plain_text_whatever_class_it_was() -> None:
    counter = counter_name(_Namespaces.LINES, "a")

    assert type(counter) is str
    assert counter == "lines:a"


@pytest.mark.parametrize("namespace", ["", "a:b", "a#b", "a\nb", "n" * 446, "é" * 223, None, b"a"])
def test_any_other_namespace_is_refused(namespace: str) -> None:
    """Also if this name would fit: the next one may not."""
    with pytest.raises(BadSetting, match="namespace") as refused:
        counter_name(namespace, "a")

    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (5, "name 5 is a int: give text or bytes"),
        (None, "is a NoneType"),
        (bytearray(b"a"), "is a bytearray"),
        ("a\ud800", r"has the surrogate '\\ud800', which is no byte"),
        ("\udc7f" * 1_000, r"surrogate '\\udc7f'"),
    ],
)
def test_any_other_name_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BadCounterName, match=reason) as refused:
        counter_name("lines", name)

    assert len(str(refused.value)) < 250


def test_the_function_is_public() -> None:
    assert countledger.counter_name is counter_name
