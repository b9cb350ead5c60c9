"""Lines of progress on stderr, while a command works."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID


class Bar:
    """One line of progress."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, by: int = 1) -> None:
        """Go on by so much."""
        self._progress.advance(self._task, by)

    def set(self, done: int, total: int | None = None) -> None:
        """Show so much; a total replaces the one before."""
        self._progress.update(self._task, completed=done, total=total)


class Bars:
    """Lines of progress, one below the other.

    Attributes:
        shown: whether anybody sees them: stderr is a terminal.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.shown = not progress.disable

    def add(self, label: str, total: int | None = None) -> Bar:
        """One more line; without a total it only counts."""
        return Bar(self._progress, self._progress.add_task(label, total=total))

    def say(self, text: str) -> None:
        """One line of text above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)


@contextmanager
def open_progress(*, hidden: bool = False) -> Iterator[Bars]:
    """Show progress while the block lasts.

    Args:
        hidden: show none, also on a terminal.
    """
    from rich.progress import (  # noqa: PLC0415 - few commands show it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text  # noqa: PLC0415 - the same

    class SpeedColumn(ProgressColumn):
        """How many a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(),
        TimeElapsedColumn(),
    )
    disable = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=disable) as progress:
        yield Bars(progress)
