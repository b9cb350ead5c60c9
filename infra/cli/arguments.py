"""Arguments as people type them: a negative number is a value, and no option."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

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
    """The same arguments, with a negative number behind the end of the options.

    `likes:1 -5 --key k` becomes `likes:1 --key k -- -5`. For a command whose last positional
    argument is the number that may be negative.

    Args:
        arguments: as typed, without the command.
        valued: the options that take the argument behind them, whatever it looks like.
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
