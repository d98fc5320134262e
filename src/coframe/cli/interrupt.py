# SPDX-License-Identifier: MIT
"""Runs that can be interrupted and resumed from a checkpoint in the result folder."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coframe.cli import signals
from coframe.cli.app import complain
from coframe.cli.signals import CODES

if TYPE_CHECKING:
    from types import FrameType

    from coframe import Checkpoint

CHECKPOINT = "checkpoint.db"


@contextmanager
def interruptible(folder: Path, resume: bool, *, quiet: bool) -> "Iterator[Checkpoint]":
    """The checkpoint of a run: SIGINT and SIGTERM write it and end the run.

    A second signal ends the run at once.
    """
    from coframe import Checkpoint
    from coframe.errors import visible

    if resume and not quiet and not (folder / CHECKPOINT).exists():
        complain(f"no interrupted run in {folder}; starting a new one")

    def go_on() -> str:
        if not (folder / CHECKPOINT).exists():
            return ""
        words = [word for word in sys.argv[1:] if word != "--resume"]
        return f"go on with: {shlex.join(['coframe', *words, '--resume'])}"

    def message() -> str:
        again = go_on()
        return visible(f"{signals.INTERRUPTED}; {again}") if again else signals.INTERRUPTED

    def finish() -> str:
        """End the run in place of a main thread that waits for others."""
        with suppress(Exception):  # The main thread may be at it, too.
            checkpoint.__exit__(SystemExit, None, None)
        return message()

    def stop(number: int, frame: "FrameType | None") -> None:
        for each in CODES:
            signal.signal(each, signal.SIG_DFL)
        checkpoint.stop()  # Exceptions of this thread do not reach the others.
        signals.interrupt(number, frame)

    before = {number: signal.getsignal(number) for number in CODES}
    ended = signals.ending.finish
    try:
        with Checkpoint(folder / CHECKPOINT, resume=resume) as checkpoint:
            signals.ending.finish = finish
            for number in CODES:
                signal.signal(number, stop)
            yield checkpoint
    except (KeyboardInterrupt, SystemExit):
        signals.say_once(message())
        raise
    except OSError as error:  # Of a disk that is full, say: what was done is kept.
        if again := go_on():
            error.add_note(again)
        raise
    finally:
        signals.ending.finish = ended
        for number, handler in before.items():
            signal.signal(number, handler)
