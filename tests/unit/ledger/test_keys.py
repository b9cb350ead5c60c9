"""The grammar of names and keys."""

from collections.abc import Callable
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.errors import BadCounterName, BadSetting
from countledger.ledger.ids import id_of_key, new_id
from countledger.ledger.keys import SPREADS
from tests.unit.ledger.clocks import NOW_MS

_AT_BOUND = ["a" * 512, "é" * 256, "\U0001f600" * 128, "n:" + "x" * 510]


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "likes:post-1",
        "a:b:c",
        "a::b",
        "a b",
        "/x/y.py",
        "日本:語",
        "\U0001f600",
        *_AT_BOUND,
    ],
)
def test_a_counter_name_is_up_to_512_bytes_of_text(name: str) -> None:
    assert keys.check_counter(name) == name


@pytest.mark.parametrize("prefix", ["", "likes:", "a ", "likes:my ", *_AT_BOUND])
def test_a_prefix_is_up_to_512_bytes_and_may_end_with_a_blank(prefix: str) -> None:
    assert keys.check_prefix(prefix) == prefix


@pytest.mark.parametrize("check", [keys.check_counter, keys.check_prefix])
@pytest.mark.parametrize("text", ["a" * 513, "n:" + "\u00e9" * 256])
def test_what_is_too_long_is_refused_with_its_size_and_the_bound(
    check: Callable[[object], str], text: str
) -> None:
    size = len(text.encode())
    with pytest.raises(BadCounterName, match=f"is {size} bytes long; at most 512 fit"):
        check(text)


class _Named(str, Enum):  # noqa: UP042 - `StrEnum` formats as its text
    """Counter names of an app, as many apps list them."""

    LIKES = "likes:post-1"


class _AnyCase(str):
    """A text that equals others."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


@pytest.mark.parametrize("name", [_Named.LIKES, _AnyCase("likes:post-1")])
def test_a_counter_name_is_plain_text_whatever_class_it_was(name: str) -> None:
    """In a batch, two names that are equal by such a class would be one counter."""
    checked = keys.check_counter(name)

    assert type(checked) is str
    assert checked == "likes:post-1"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        (5, "5 is a int, not a str"),
        (None, "is a NoneType"),
        (b"a", "is a bytes"),
        ("a#b", "'a#b' holds a '#', which is reserved"),
        ("namespace#a", "reserved"),
        ("a\nb", r"'a\\nb' holds control characters"),
        ("a\x00", "control characters"),
        ("a\x7f", "control characters"),
        ("a\x85", "control characters"),
        ("a\u2028b", "control characters"),
        ("a\ud800", r"'a\\ud800' holds control characters"),
        ("a" * 513, "is 513 bytes long; at most 512 fit"),
        ("é" * 257, "is 514 bytes long"),
        (":a", "needs text on both sides of its first colon"),
        ("a:", "both sides"),
        (":", "both sides"),
        ("x" * 1_000_000, "at most 512 fit"),
    ],
)
def test_any_other_counter_name_is_refused(name: object, reason: str) -> None:
    with pytest.raises(BadCounterName, match=reason) as refused:
        keys.check_counter(name)

    assert len(str(refused.value)) < 250
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["a", "x" * 510, "with space", "日本"])
def test_a_namespace_is_what_a_counter_name_may_begin_with(name: str) -> None:
    assert keys.check_namespace(name) == name


@pytest.mark.parametrize("name", ["", "a:b", "a#b", "a\nb", "a\ud800", "x" * 511, 5, None])
def test_any_other_namespace_name_is_refused(name: object) -> None:
    """As a setting, for no counter was named."""
    with pytest.raises(BadSetting, match="namespace") as refused:
        keys.check_namespace(name)

    assert len(str(refused.value)) < 250


@given(st.text(min_size=1, max_size=20), st.sampled_from(SPREADS))
def test_an_entrys_id_is_found_in_its_key(text: str, spread: int) -> None:
    for entry_id in (new_id(NOW_MS), id_of_key(text)):
        key = keys.entry_key(entry_id, spread)
        assert keys.id_of(key) == entry_id
        assert any(key.startswith(prefix) for prefix in keys.entry_prefixes(spread))
        assert keys.entry_key(entry_id, spread) == key


def test_a_spread_is_even() -> None:
    """Sixteen thousand ids over 16 prefixes: none takes more than twice its share."""
    shares = [0] * 16
    for number in range(16_000):
        shares[int(keys.entry_key(id_of_key(str(number)), 16)[2], 16)] += 1

    assert max(shares) < 2_000
    assert min(shares) > 500


@pytest.mark.parametrize(
    "key",
    [
        "",
        "e#",
        "s#head",
        "settings",
        "e#k123",
        "e#" + "g" * 36,
        "x#" + id_of_key("a"),
        id_of_key("a"),
    ],
)
def test_no_other_key_is_an_entrys(key: str) -> None:
    assert keys.id_of(key) is None
    assert keys.id_of(keys.entry_key(id_of_key("a"), 1) + "\n") is None
    assert keys.id_of("e#abc" + id_of_key("a")) is None


def test_no_counter_name_can_be_taken_for_an_item_of_ours() -> None:
    for key in (keys.namespace_key("a"), keys.progress_key("s")):
        with pytest.raises(BadCounterName):
            keys.check_counter(key["counter"])
    assert len({keys.HEAD, keys.SETTINGS, keys.TOTAL, keys.PROGRESS}) == 4


def test_keys_of_items_are_pairs() -> None:
    assert keys.head_key("a:b") == {"counter": "a:b", "entry": "s#head"}
    assert keys.total_key("a:b") == {"counter": "a:b", "part": "total"}
    assert keys.progress_key("l/s") == {"counter": "stream#l/s", "part": "progress"}
    assert keys.namespace_key("a") == {"counter": "namespace#a", "entry": "settings"}
