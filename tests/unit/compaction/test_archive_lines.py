"""The content of an archive: lines, checksums, places. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from countledger.compaction.s3_archive import ArchiveLocation, checksum, items_in, lines_of
from countledger.ledger.errors import BadSetting, CorruptArchive


@pytest.mark.parametrize("place", ["", "bucket", "s3://", "s3://a", "s3://B_ad/x", "https://x.y/z"])
def test_what_is_no_place_is_refused(place: str) -> None:
    """Before anything is merged."""
    with pytest.raises(BadSetting, match="s3://bucket/prefix"):
        ArchiveLocation.parse(place)


def test_lines_hold_whatever_an_item_may_hold() -> None:
    """In one order, and back again; a zlib of another release changes no checksum."""
    items: list[dict[str, Any]] = [
        {
            "counter": "c",
            "entry": "e#2",
            "delta": Decimal("-0.1"),
            "raw": b"\x00\xff",
            "l": [1, "x"],
        },
        {"counter": "c", "entry": "e#1", "delta": 10**37, "note": {"NS": "a", "B": "c"}},
        {"counter": "c", "entry": "e#3", "delta": 1, "set": {"b", "a"}, "blobs": {b"2", b"1"}},
    ]

    lines = lines_of(items)

    assert lines == lines_of(reversed(items))
    assert items_in(lines, "here") == [items[1], items[0], items[2]]
    with pytest.raises(CorruptArchive, match="here has a line"):
        items_in(b'{"Item": 1}\n', "here")


def test_how_a_line_is_written_never_changes() -> None:
    """A run may be resumed by another release: what was sealed must be written again alike."""
    item = {"counter": "a:b", "entry": "e#1", "delta": -5, "at": 1_700_000_000_000, "origin": "r"}

    lines = lines_of([item])

    assert lines == (
        b'{"Item":{"at":{"N":"1700000000000"},"counter":{"S":"a:b"},"delta":{"N":"-5"},'
        b'"entry":{"S":"e#1"},"origin":{"S":"r"}}}\n'
    )
    assert checksum(lines) == "16a326474ed44e2dc94f43587627bc2f6766ba86a4e2df9b3b01b45687933527"
