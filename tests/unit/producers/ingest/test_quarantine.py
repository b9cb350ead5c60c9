"""The messages of the quarantine: whatever was rejected fits a queue, with its bytes."""

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.limits import MESSAGE_MAX_BYTES
from countledger.producers.ingest.entries import RecordPlace, RejectedEvent, RejectionKind
from countledger.producers.ingest.ingest import QuarantineMessage, messages_of, quarantined_of

QUEUE_MAX_BYTES = 262_144


def rejected(payload: bytes, record: int = 0, reason: str = "no") -> RejectedEvent:
    return RejectedEvent(RecordPlace(record, "1", 5, 0), payload, RejectionKind.MALFORMED, reason)


def bodies(made: list[QuarantineMessage]) -> list[dict[str, Any]]:
    return [json.loads(letter.body) for letter in made]


def payload_of(one: dict[str, Any]) -> bytes:
    """The bytes of one of them."""
    return one["text"].encode() if "text" in one else base64.b64decode(one["base64"])


@given(st.lists(st.binary(max_size=200) | st.text().map(str.encode), max_size=8))
def test_the_bytes_are_kept_exactly(payloads: list[bytes]) -> None:
    """As text where they are text, so that a person can read them."""
    made = list(messages_of([rejected(one) for one in payloads], "arn", "shard"))

    told = [one for body in bodies(made) for one in body["rejected"]]
    assert [payload_of(one) for one in told] == payloads
    assert not [one for one in told if "cut_from_bytes" in one]


@pytest.mark.parametrize("byte", [b"x", b"\xff", b"\x01", "€".encode(), b'"'])
def test_what_is_huge_is_cut_and_says_so(byte: bytes) -> None:
    """It fits; the place of the rest is said by stream, shard and sequence number."""
    payload = byte * 1_000_000

    (letter,) = messages_of([rejected(payload, reason="€" * 100_000)], "arn", "shard")

    (one,) = bodies([letter])[0]["rejected"]
    assert len(letter.body.encode()) <= QUEUE_MAX_BYTES
    assert one["cut_from_bytes"] == len(payload)
    assert one["sha256"] == sha256(payload).hexdigest()
    assert payload.startswith(payload_of(one))
    assert len(payload_of(one)) == 60_000


@given(st.lists(st.integers(0, 70_000), max_size=30))
def test_many_share_a_letter_and_each_letter_fits(sizes: list[int]) -> None:
    """It names the records that it speaks of, so that they come again where it is not kept."""
    many = [rejected(b"x" * size, record=n) for n, size in enumerate(sizes)]

    made = list(messages_of(many, "arn", "shard"))

    assert [record for letter in made for record in letter.records] == list(range(len(sizes)))
    assert all(len(letter.body) <= QUEUE_MAX_BYTES for letter in made)
    assert len(made) <= 1 + sum(map(len, (letter.body for letter in made))) // (
        MESSAGE_MAX_BYTES // 3
    )


def letter_copy_id() -> str:
    """The name of the copy of the one that `rejected` makes."""
    return quarantined_of(rejected(b"x"), "arn:stream", "shard-7", now_ms=9).id


def test_a_letter_names_stream_and_shard() -> None:
    (letter,) = messages_of([rejected(b"x")], "arn:stream", "shard-7")

    (body,) = bodies([letter])
    assert (body["format"], body["stream"], body["shard"]) == (1, "arn:stream", "shard-7")
    assert body["rejected"] == [
        {
            "kind": "malformed",
            "reason": "no",
            "sequence": "1",
            "part": 0,
            "arrived_ms": 5,
            "text": "x",
            "quarantine_id": letter_copy_id(),
        }
    ]
