# SPDX-License-Identifier: MIT
"""SIGINT and SIGTERM at any moment: one line, exit code 130 or 143, within a second.

Imported before anything else, so it imports next to nothing itself. While modules are imported, a
signal ends the process at once. A command is interrupted by an exception instead, so that it
removes its temporary files. One that is still there after `GRACE` (its threads are in a long
computation, or wait for workers) is ended by a thread that does what must be done: it writes the
checkpoint.
"""

import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

CODES: "dict[int, int]" = {signal.SIGINT: 130, signal.SIGTERM: 143}
# [limit] Seconds that a command has to end after a signal.
GRACE = 0.3
INTERRUPTED = "interrupted"


class _Ending:
    """How this process ends after a signal."""

    def __init__(self) -> None:
        # Whoever has this lock may speak; a process that is being ended keeps it.
        self.lock = threading.RLock()
        self.said = False
        self.code = CODES[signal.SIGINT]
        self.watched = False
        # Whether the process ends without waiting for threads, such as those of a lost cluster.
        self.at_once = False
        # Does what must be done before the process ends, and returns the last line.
        self.finish: Callable[[], str] = lambda: INTERRUPTED
        self.say_json: Callable[[int], object] = lambda code: None


ending = _Ending()


def _begin_anew() -> None:
    """A forked child has no thread that waits, and its parent must not answer its signals."""
    global ending
    if ending.watched:
        signal.set_wakeup_fd(-1)
    ending = _Ending()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def watch() -> None:
    """Answer signals from now on, for the rest of this process."""
    if ending.watched:
        return
    ending.watched = True
    for number in CODES:
        if signal.getsignal(number) != signal.SIG_IGN:  # In the background of a shell it is.
            signal.signal(number, _end_at_once)
    sys.unraisablehook = _ignore_interruptions
    read, write = os.pipe()
    if hasattr(os, "set_blocking"):
        os.set_blocking(write, False)
    # Unlike a handler, the pipe is written to while the main thread is in compiled code.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(
        target=_end_when_due, args=(read,), name="coframe-signals", daemon=True
    ).start()


def interrupt(number: int, frame: "FrameType | None") -> None:
    """The handler of a running command: an exception in the main thread.

    Not amid an import, which may swallow it or print it; `watch` then ends the process.
    """
    ending.code = CODES[number]
    if ending.watched and _is_importing(frame):
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(CODES[number])


def say_once(text: str) -> None:
    """Print the line that a process ends with, unless another one is out."""
    with ending.lock:
        if not ending.said:
            ending.said = True
            print(f"coframe: {text}", file=sys.stderr, flush=True)


def leave(code: int) -> None:
    """End the process with this code, at once where its threads are not to be waited for."""
    if ending.at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_at_once(number: int, frame: "FrameType | None") -> None:
    os.write(2, b"coframe: interrupted\n")
    os._exit(CODES[number])


def _end_when_due(pipe: int) -> None:
    while (number := os.read(pipe, 1)[0]) not in CODES:
        pass
    time.sleep(GRACE)
    with ending.lock:
        try:
            text = ending.finish()
            if not ending.said:
                if sys.stderr.isatty():
                    sys.stderr.write("\r\x1b[K\x1b[?25h")  # The line of progress hides the cursor.
                say_once(text)
                ending.say_json(CODES[number])
        finally:
            os._exit(CODES[number])


def _is_importing(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _ignore_interruptions(unraisable: "sys.UnraisableHookArgs") -> None:
    """An interruption in a destructor or a callback is lost there; `watch` sees to it."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)
