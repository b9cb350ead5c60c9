"""Texts as people type them: durations, numbers, pairs; and what Typer alone would misread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from countledger.ledger.errors import BadInput

_UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
# Added to a time, or waited for, more would be outside of what Python can represent.
_DURATION_MAX_MS: Final = 36_525 * DAY_MS
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """A duration such as `24h`, `90m`, `7d`, `30s` or `1500ms`, in milliseconds.

    Raises:
        BadSetting: it is no whole number with a unit, or longer than a hundred years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadSetting(
            f"duration {text!r} is not a whole number with a unit: give 90m, 24h or 7d"
        )
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if duration_ms > _DURATION_MAX_MS:
        raise BadSetting(f"duration {text!r} is longer than {show_duration(_DURATION_MAX_MS)}")
    return duration_ms


def parse_pairs(
    what: str, form: str, texts: Sequence[str] | None, error: type[BadInput]
) -> dict[str, str]:
    """The pairs of texts such as `team=web`.

    Args:
        what: the option, for messages.
        form: what a pair looks like, for messages.
        texts: as typed.
        error: what is raised.

    Raises:
        error: a text has no `=` or no name, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise error(f"{what} {text!r} is not {form}")
        if name in pairs:
            raise error(f"{what} {name!r} is given twice")
        pairs[name] = value
    return pairs


_NEGATIVE: Final = re.compile(r"-(\d|\.\d|inf|nan)", re.ASCII | re.IGNORECASE)
_END_OF_OPTIONS: Final = "--"


class SignedCommand(TyperCommand):
    """A command whose last argument may be a negative number without a `--` before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
        """Sort the arguments, then parse them."""
        valued = {
            spelling
            for option in self.params
            if not getattr(option, "is_flag", True)
            for spelling in option.opts
        }
        return super().parse_args(ctx, negative_last(args, valued))


def negative_last(arguments: Sequence[str], valued: Container[str]) -> list[str]:
    """The same arguments, with a negative number after the end of the options.

    `likes:1 -5 --key k` becomes `likes:1 --key k -- -5`. For a command whose last positional
    argument is the number that may be negative.

    Args:
        arguments: as typed, without the command.
        valued: the options that take the next argument, whatever it looks like.
    """
    kept: list[str] = []
    negative: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == _END_OF_OPTIONS:
            return [*kept, _END_OF_OPTIONS, *negative, *left]
        if _NEGATIVE.match(argument):
            negative.append(argument)
            continue
        kept.append(argument)
        if argument in valued and left:
            kept.append(left.pop(0))
    return [*kept, _END_OF_OPTIONS, *negative] if negative else kept


class TargetCommand(TyperCommand):
    """A command whose `--to` may be followed by `topic ARN` as well as by the ARN alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
        """Take the word `topic` out, then parse."""
        return super().parse_args(ctx, without_topic(args))


def without_topic(arguments: Sequence[str]) -> list[str]:
    """The same arguments, `--to topic ARN` as `--to ARN`."""
    kept: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        kept.append(argument)
        if argument == "--":
            return kept + left
        if argument == "--to" and left[:1] == ["topic"] and left[1:]:
            left.pop(0)
    return kept
