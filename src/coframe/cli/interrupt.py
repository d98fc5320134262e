# SPDX-License-Identifier: MIT
"""Runs that can be interrupted and resumed from a checkpoint in the result folder."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coframe.cli.app import complain

if TYPE_CHECKING:
    from coframe import Checkpoint

CHECKPOINT = "checkpoint.db"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def interruptible(folder: Path, resume: bool, *, quiet: bool) -> "Iterator[Checkpoint]":
    """The checkpoint of a run: SIGINT and SIGTERM write it and end the run.

    A second signal ends the run at once.
    """
    from coframe import Checkpoint

    if resume and not quiet and not (folder / CHECKPOINT).exists():
        complain(f"no interrupted run in {folder}; starting a new one")

    before = {number: signal.getsignal(number) for number in CODES}

    def stop(number: int, _: object) -> None:
        for each in CODES:
            signal.signal(each, signal.SIG_DFL)
        checkpoint.stop()  # Exceptions of this thread do not reach the others.
        raise SystemExit(CODES[signal.Signals(number)])

    try:
        with Checkpoint(folder / CHECKPOINT, resume=resume) as checkpoint:
            for number in CODES:
                signal.signal(number, stop)
            yield checkpoint
    except SystemExit as error:
        if error.code in CODES.values():
            words = [word for word in sys.argv[1:] if word != "--resume"]
            again = shlex.join(["coframe", *words, "--resume"])
            resumable = (folder / CHECKPOINT).exists()
            complain(f"interrupted; go on with: {again}" if resumable else "interrupted")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
