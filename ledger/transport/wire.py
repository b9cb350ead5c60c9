"""Answers of HTTP, from bytes: no input and no output, so a thread or an event loop may use it.

The service answers with a length and nothing unusual; such an answer is parsed here, strictly. An
answer in another form (in chunks, or until the connection ends) is a proxy's or an engine's; the
standard library parses it, and its connection is not used again.
"""

from __future__ import annotations

import re
from http.client import HTTPException, HTTPResponse, IncompleteRead
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_HEAD: Final = b"\r\n\r\n"
_VERSION: Final = b"HTTP/1."
_HEAD_MAX_BYTES: Final = 65_536
_LENGTH: Final = "content-length"
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] ([0-9]{3})(?: .*)?", re.DOTALL)
_LENGTH_MAX_DIGITS: Final = 12
_INTERIM: Final = range(100, 200)


class MalformedAnswer(Exception):
    """What came is not an answer of HTTP."""


class TruncatedAnswer(MalformedAnswer):
    """The connection ended before the answer did."""


class Answer(NamedTuple):
    """One answer.

    Attributes:
        status: its code.
        headers: by name, in lower case.
        body: as it came.
        reusable: whether its connection may carry another request: nothing is left to be read.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool


class AnswerParser:
    """Parses one answer from what is received, part by part."""

    __slots__ = ("_answer", "_begin", "_end", "_received")

    def __init__(self) -> None:
        """Nothing is received yet."""
        self._received = b""
        self._answer: tuple[int, dict[str, str], bool] | None = None
        self._begin = 0
        # Where the body ends; None as long as that is unknown.
        self._end: int | None = None

    def feed(self, part: bytes) -> Answer | None:
        """Take what was received; the answer, or None where more must come.

        Args:
            part: the next bytes; none of them where the connection has ended.

        Raises:
            MalformedAnswer: this is no answer.
            TruncatedAnswer: it ended too early.
        """
        self._received = self._received + part if self._received else part
        if self._answer is None and not self._take_head():
            if not part:
                raise TruncatedAnswer(f"it ended after {len(self._received)} bytes of its head")
            return None
        if self._end is None:
            return self._unusual(ended=not part)
        if len(self._received) < self._end:
            if not part:
                raise TruncatedAnswer(f"it ended {self._end - len(self._received)} bytes too early")
            return None
        status, headers, keeps = self._answer or (0, {}, False)
        reusable = keeps and len(self._received) == self._end
        return Answer(status, headers, self._received[self._begin : self._end], reusable)

    def _take_head(self) -> bool:
        """Parse the head if it is complete; interim answers (100 to 199) are skipped."""
        while True:
            received = self._received
            if not received.startswith(_VERSION[: len(received)]):
                raise MalformedAnswer(f"it begins with {received[:20]!r}")
            end = received.find(_END_OF_HEAD)
            if end < 0:
                if len(received) > _HEAD_MAX_BYTES:
                    raise MalformedAnswer(f"its head is longer than {_HEAD_MAX_BYTES} bytes")
                return False
            lines = received[:end].decode("latin-1").split("\r\n")
            status = _status_of(lines[0])
            if status not in _INTERIM:
                break
            self._received = received[end + len(_END_OF_HEAD) :]
        self._begin = end + len(_END_OF_HEAD)
        headers: dict[str, str] = {}
        twice = False
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise MalformedAnswer(f"it has the header {line[:60]!r}")
            name = name.lower()
            twice = twice or (name == _LENGTH and name in headers)
            headers[name] = value.strip(" \t")
        length = headers.get(_LENGTH)
        if twice or (length is not None and not _is_number(length, _LENGTH_MAX_DIGITS)):
            raise MalformedAnswer("its length is not one number")
        if length is not None and "transfer-encoding" not in headers:
            self._end = self._begin + int(length)
        closes = "close" in headers.get("connection", "").lower()
        keeps = lines[0].startswith("HTTP/1.1") and not closes
        self._answer = status, headers, keeps
        return True

    def _unusual(self, *, ended: bool) -> Answer | None:
        """An answer in chunks, or one that the end of the connection ends."""
        response = HTTPResponse(_Received(self._received), method="POST")  # type: ignore[arg-type]
        try:
            response.begin()
            # The last line of chunks is a 0; without its end it may be the beginning of another
            # number.
            cut = response.chunked and not self._received.endswith(b"\r\n")
            has_an_end = response.chunked or response.length is not None
            body = response.read()
        except IncompleteRead as error:
            if ended:
                raise TruncatedAnswer("it ended too early") from error
            return None
        except (HTTPException, ValueError) as error:
            raise MalformedAnswer(f"{type(error).__name__}: {error}") from error
        if cut and ended:
            raise TruncatedAnswer("it ended too early")
        if cut or not (has_an_end or ended):
            return None
        status, headers, _ = self._answer or (0, {}, False)
        return Answer(status, headers, body, reusable=False)


def _status_of(line: str) -> int:
    """The code in the first line of an answer."""
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise MalformedAnswer(f"it begins with {line[:60]!r}")
    return int(found[1])


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


class _Received:
    """What was received, as the standard library reads it from a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, *_: Any) -> BytesIO:  # noqa: ANN401 - as a socket's
        return BytesIO(self._received)
