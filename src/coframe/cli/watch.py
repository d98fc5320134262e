# SPDX-License-Identifier: MIT
"""Progress of a run: one line on the terminal, with an estimate of the time left."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coframe.cli.app import progress_console

if TYPE_CHECKING:
    from coframe import Iteration

KNOWN = 0.05  # [share of the work] done before the time left is estimated


@dataclass
class TimeLeft:
    """Seconds left, from the share of the work that is done.

    It counts down between reports; a new estimate moves it half way.
    """

    now: Callable[[], float] = time.monotonic
    share: float = 0.0
    began: float | None = None
    end: float | None = None

    def report(self, share: float) -> None:
        """Set the share of the work that is done, 0 to 1; a smaller one than before is ignored."""
        now = self.now()
        self.began = now if self.began is None else self.began
        if share <= self.share:
            return
        self.share = share
        guess = now + (now - self.began) * (1 - share) / share
        if share >= KNOWN:
            self.end = guess if self.end is None else (max(self.end, now) + guess) / 2

    def seconds(self) -> float | None:
        """None before the first estimate, and after it has run out."""
        left = None if self.end is None else self.end - self.now()
        return left if left is not None and left > 0 else None


def about(seconds: float | None) -> str:
    """A duration in words, coarsely rounded up.

    >>> about(7.2), about(47.0), about(200.0), about(4000.0)
    ('about 8 s left', 'about 50 s left', 'about 4 min left', 'about 1.2 h left')
    """
    if seconds is None:
        return ""
    if seconds < 60:
        step = 1 if seconds <= 10 else 5
        return f"about {step * math.ceil(seconds / step)} s left"
    return (
        f"about {math.ceil(seconds / 60)} min left"
        if seconds < 3600
        else f"about {math.ceil(seconds / 360) / 10:.1f} h left"
    )


@dataclass
class Watch:
    """Callbacks for `register`; `show` displays a line."""

    show: Callable[[str], object]
    fits: TimeLeft = field(default_factory=TimeLeft)
    pairs: TimeLeft = field(default_factory=TimeLeft)
    iterations: int = 0
    matching: bool = False

    def file(self, name: str) -> None:
        self.show(f"reading {name[:60]}")

    def iteration(self, step: "Iteration") -> None:
        if self.iterations == 0:
            self.matching = False
            self.fits.report(0.0)
        self.iterations += 1
        figures = f"log-likelihood {step.log_likelihood:.4g}, pose change {step.step:.0e}"
        self.show(f"iteration {self.iterations}: {figures}")

    def pair(self, done: int, total: int) -> None:
        self.matching = True
        self.pairs.report((done - 1) / total)
        self.show(f"matching: pair {done} of {total}")

    def progress(self, share: float) -> None:
        self.fits.report(share)

    @property
    def callbacks(self) -> dict[str, Any]:
        """Keyword arguments of `register`."""
        return {
            "on_file": self.file,
            "on_iteration": self.iteration,
            "on_pair": self.pair,
            "on_progress": self.progress,
        }

    def time_left(self) -> str:
        """The time left in words; while pairs are matched, that of the matching."""
        if self.matching:
            return about(self.pairs.seconds()).replace(" left", " of matching left")
        return about(self.fits.seconds())


@contextmanager
def watching(quiet: bool) -> Iterator[Watch]:
    """Show progress on stderr while the block runs, if that is a terminal."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    from coframe.errors import visible

    class TimeColumn(ProgressColumn):
        """The time left, or the time passed while there is no estimate."""

        def render(self, task: Task) -> Text:
            time = watch.time_left() or f"{task.elapsed or 0:.0f} s"
            return Text(time, style="progress.remaining")

    watch = Watch(lambda text: progress.update(task, description=visible(text)))
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeColumn()
    console = progress_console()
    progress = Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    )
    task = progress.add_task("reading")
    with progress:
        yield watch
