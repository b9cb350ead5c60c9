"""Answers of HTTP from bytes, however they are divided, cut or malformed."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger.transport.http import (
    Answer,
    AnswerParser,
    MalformedAnswer,
    TruncatedAnswer,
)

_BODY = b'{"ConsumedCapacity": {"CapacityUnits": 1.0}}'


def _answer(body: bytes = _BODY, *more: str, first: str = "HTTP/1.1 200 OK") -> bytes:
    lines = (first, "Content-Type: application/x-amz-json-1.0", *more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _with_length(body: bytes = _BODY, *more: str) -> bytes:
    return _answer(body, f"Content-Length: {len(body)}", *more)


def _in_chunks(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(f"{len(one):X}\r\n".encode() + one + b"\r\n" for one in parts)
    return _answer(chunks + b"0\r\n\r\n", "Transfer-Encoding: chunked")


def _parsed(
    received: bytes, *, cuts: list[int] | None = None, ended: bool = False
) -> Answer | None:
    """The answer as it comes in parts."""
    parser = AnswerParser()
    places = [0, *sorted(cuts or []), len(received)]
    answer = None
    for begin, end in pairwise(places):
        if answer is None and begin < end:
            answer = parser.feed(received[begin:end])
    return parser.feed(b"") if answer is None and ended else answer


def test_a_usual_answer_is_parsed() -> None:
    """Its connection may carry the next request."""
    assert _parsed(_with_length(_BODY, "x-amz-crc32: 7", "X-Empty:")) == Answer(
        200,
        {
            "content-type": "application/x-amz-json-1.0",
            "content-length": str(len(_BODY)),
            "x-amz-crc32": "7",
            "x-empty": "",
        },
        _BODY,
        reusable=True,
    )


_FORMS = {
    "length": _with_length(),
    "no body": _with_length(b""),
    "after a 100": b"HTTP/1.1 100 Continue\r\n\r\n" + _with_length(),
    "after two interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\nLink: x\r\n\r\n" + _with_length()
    ),
    "chunks": _in_chunks(_BODY, 7),
    "no length": _answer(),
}


@settings(max_examples=200)
@given(st.sampled_from(sorted(_FORMS)), st.lists(st.integers(0, 300), max_size=12))
def test_the_parts_in_which_it_comes_do_not_matter(form: str, cuts: list[int]) -> None:
    """Also if an answer has chunks, or ends with its connection."""
    received = _FORMS[form]
    inside = [cut for cut in cuts if cut < len(received)]
    answer = _parsed(received, cuts=inside, ended=form == "no length")

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"" if form == "no body" else _BODY)
    assert answer.reusable == (form not in {"chunks", "no length"})


@pytest.mark.parametrize("form", sorted(set(_FORMS) - {"no length"}))
def test_an_answer_that_is_cut_is_never_one(form: str) -> None:
    """After a cut at any byte more is waited for, and the end of the connection is an error."""
    received = _FORMS[form]
    # The empty line after the last chunk is not waited for.
    least = len(received) - 2 * (form == "chunks")
    for end in range(1, least):
        assert _parsed(received[:end]) is None
        with pytest.raises(TruncatedAnswer):
            _parsed(received[:end], ended=True)


def test_a_connection_that_ends_at_once_is_no_answer() -> None:
    """Not a byte came."""
    with pytest.raises(TruncatedAnswer):
        AnswerParser().feed(b"")


@pytest.mark.parametrize(
    "received",
    [
        _with_length() + b"H",
        _with_length() + _with_length(),
        _with_length(_BODY, "Connection: close"),
        _with_length(_BODY, "Connection: Keep-Alive, Close"),
        _with_length().replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_a_connection_with_more_bytes_or_without_a_future_is_not_used_again(
    received: bytes,
) -> None:
    """The next request would read this one's rest as its answer."""
    answer = _parsed(received)

    assert answer is not None
    assert answer.body == _BODY
    assert not answer.reusable


@pytest.mark.parametrize(
    "received",
    [
        b"<html>Please sign in</html>",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.12 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded: c\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    ],
)
def test_what_is_no_answer_is_refused_at_once(received: bytes) -> None:
    """Before the connection ends: its bytes decide."""
    with pytest.raises(MalformedAnswer):
        _parsed(received)


@settings(max_examples=500)
@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_is_an_answer_or_malformed(noise: bytes, begins_well: bool) -> None:  # noqa: FBT001
    """Never another error, and never an endless loop."""
    received = b"HTTP/1.1 200 OK\r\n" * begins_well + noise
    try:
        answer = _parsed(received, cuts=list(range(0, len(received), 7)), ended=True)
    except MalformedAnswer:
        return

    assert answer is not None


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_damaged_answer_is_never_longer_than_what_came(noise: bytes, at: int) -> None:
    """Nothing is made up."""
    usual = _in_chunks(_BODY, 9)
    received = usual[:at] + noise + usual[at + len(noise) :]
    try:
        answer = _parsed(received, ended=True)
    except MalformedAnswer:
        return

    assert answer is not None
    assert len(answer.body) <= len(received)
