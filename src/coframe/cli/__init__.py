# SPDX-License-Identifier: MIT
"""The command line, a file per command.

It parses, shows and writes; the work is done by the library, imported where needed.
"""


def main() -> None:
    """The `coframe` command.

    Exit codes: 0 done, 1 a cloud failed, 2 bad input or usage, 130 interrupted, 143 terminated.
    """
    # Signals are answered before the rest is imported, which takes a while.
    try:
        from coframe.cli import signals

        signals.watch()
    except KeyboardInterrupt:
        import os

        os.write(2, b"coframe: interrupted\n")
        os._exit(130)
    from coframe.cli.commands import app

    try:
        app(prog_name="coframe")
    except SystemExit as end:
        if end.code in signals.CODES.values():  # A signal just before the command began.
            signals.say_once(signals.INTERRUPTED)
        signals.leave(end.code if isinstance(end.code, int) else 1)
        raise
