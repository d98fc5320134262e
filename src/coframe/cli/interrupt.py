# SPDX-License-Identifier: MIT
"""Runs that may be interrupted: a checkpoint in the result folder, and signals that leave it
behind.
"""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coframe import Checkpoint

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def interruptible(folder: Path, resume: bool) -> "Iterator[Checkpoint]":
    """The checkpoint of a run; SIGINT and SIGTERM end the run with what is done in it.

    A second signal does not wait for that.
    """
    from coframe import Checkpoint

    before = {number: signal.getsignal(number) for number in CODES}

    def stop(number: int, _: object) -> None:
        for each in CODES:
            signal.signal(each, signal.SIG_DFL)
        checkpoint.stop()  # for the threads, which no exception of this one reaches
        raise SystemExit(CODES[signal.Signals(number)])

    try:
        with Checkpoint(folder / "checkpoint.db", resume=resume) as checkpoint:
            for number in CODES:
                signal.signal(number, stop)
            yield checkpoint
    except SystemExit as error:
        if error.code in CODES.values():
            words = [word for word in sys.argv[1:] if word != "--resume"]
            print(
                f"coframe: interrupted; go on with: {shlex.join(['coframe', *words, '--resume'])}",
                file=sys.stderr,
            )
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
