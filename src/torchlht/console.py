"""Output while something runs: results, notes, progress bars. Readable when piped to a file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    from rich.progress import TextColumn

_HIDDEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def readable(text: str) -> str:
    """Text with what would steer a terminal, turn writing around or not be UTF-8 shown as an escape.

    >>> readable("Ivory\\x1b[2J Gull")
    'Ivory\\\\x1b[2J Gull'
    """
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


LINE = 1000
"""Most characters of an error: names of thousands are cut in the middle."""


def one_line(text: str) -> str:
    """Text of any length and content as one line."""
    shown = readable(text).replace("\n", "\\n").replace("\t", " ")
    return shown if len(shown) <= LINE else f"{shown[: LINE // 2]} … {shown[-LINE // 2 :]}"


class ReadableConsole(Console):
    """A console that shows names as they are: they cannot steer the terminal, and [words] and :words: mean nothing in them."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console.render`: everything that is printed comes through here, apart from our own colours and cursor moves."""
        for segment in super().render(renderable, options):
            safe = segment.control or not _HIDDEN.search(segment.text)
            yield segment if safe else Segment(readable(segment.text), segment.style)


out = ReadableConsole()
notes = ReadableConsole(stderr=True)


def say(what: RenderableType) -> None:
    """Print a result. Sentences are not wrapped: a terminal wraps them itself, and files stay unwrapped."""
    out.print(what, soft_wrap=isinstance(what, str))


def percent(value: float | None) -> str:
    """A fraction in percent: 0.941 → "94.1"; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def plural(n: int, noun: str) -> str:
    """5,994 pictures; 1 picture."""
    endings = {"y": "ies", "s": "s"}
    many = noun if noun.endswith("s") else noun[:-1] + endings["y"] if noun.endswith("y") else noun + "s"
    return f"{n:,} {noun if n == 1 else many}"


def shortened(text: str, width: int) -> str:
    """A text that fits, its end replaced by an ellipsis if need be."""
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def plain_column(text: str) -> TextColumn:
    """A column of a progress bar in which [brackets] mean nothing."""
    from rich.progress import TextColumn

    return TextColumn(text, markup=False)


def json_text(value: object) -> str:
    """JSON for the terminal, or for a program."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# ---- progress ------------------------------------------------------------------------------------------------------


class EpochView:
    """Progress over epochs: a live bar in a terminal, a line per epoch in a file, nothing when quiet."""

    def __init__(self, epochs: int, steps: int, *, start: int, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.epochs, self.steps, self.live = epochs, steps, notes.is_terminal and not quiet
        self.lines = not quiet and not self.live
        count = TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}")
        self.strip, text = BarColumn(24), plain_column("{task.description}")
        columns = (count, self.strip, text, TimeRemainingColumn())
        self.bar = Progress(*columns, console=notes, disable=not self.live, transient=True)
        self.task = self.bar.add_task("", total=epochs * steps, completed=start * steps, epoch=start + 1, epochs=epochs)
        self.text = ""

    def step(self, epoch: int) -> None:
        """Report one more batch."""
        self.bar.update(self.task, advance=1, epoch=epoch)

    def say(self, text: str) -> None:
        """Print a line."""
        if self.lines or self.live:
            notes.print(text, soft_wrap=True)

    def epoch(self, epoch: int, text: str) -> None:
        """Report a finished epoch; `text` is its summary."""
        room = notes.width - len(f"epoch {self.epochs}/{self.epochs}   0:00:00 ")
        self.strip.bar_width = min(max(room - len(text), 8), 24)
        short = shortened(text, room - self.strip.bar_width)
        self.bar.update(self.task, description=short, epoch=min(epoch + 1, self.epochs))
        if self.lines:
            notes.print(f"epoch {epoch}/{self.epochs}  {text}", soft_wrap=True)

    def __enter__(self) -> EpochView:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


class GridView:
    """Progress over many runs: a live bar with the time left in a terminal, a line per run in a file."""

    def __init__(self, total: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self.total, self.done, self.skipped, self.started = total, 0, 0, time.monotonic()
        self.live = notes.is_terminal
        columns = (
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(24),
            plain_column("{task.description}"),
        )
        self.bar = Progress(*columns, console=notes, disable=not self.live, transient=True)
        self.task = self.bar.add_task("", total=total)

    def skip(self, n: int) -> None:
        """Report runs that were already finished."""
        if n:
            self.skipped += n
            self.bar.update(self.task, advance=n)
            notes.print(f"{plural(n, 'run')} finished before", soft_wrap=True)

    def finished(self, text: str) -> None:
        """Report one more finished run; `text` is its summary."""
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.total - self.skipped - self.done)
        soon = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
        self.bar.update(self.task, advance=1, description=soon)
        soon = "" if self.live or self.skipped + self.done == self.total else f"   {soon}"
        notes.print(f"{self.skipped + self.done}/{self.total}  {text}{soon}", soft_wrap=True)

    def __enter__(self) -> GridView:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def note(text: str, *, quiet: bool) -> None:
    """Print a note to stderr, unless quiet."""
    if not quiet:
        notes.print(text, soft_wrap=True)


@contextmanager
def counting(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Context: a progress bar for one long count; yields a function (done, total). In a file, a line for every tenth."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    live = notes.is_terminal and not quiet
    columns = (
        plain_column(what),
        BarColumn(24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
    )
    started, tenth = time.monotonic(), 0
    with Progress(*columns, console=notes, disable=not live, transient=True) as bar:
        task = bar.add_task("", total=total)

        def count(done: int, _: int) -> None:
            nonlocal tenth
            bar.update(task, completed=done)
            if not live and 10 * done // total > tenth:
                tenth = 10 * done // total
                note(f"{what} {done:,}/{total:,} in {time.monotonic() - started:.0f} s", quiet=quiet)

        yield count
