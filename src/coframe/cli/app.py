# SPDX-License-Identifier: MIT
"""What all commands share: the app, its consoles and options, and how commands fail."""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coframe.cli import signals

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads, default: all cores. The result is the same.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, nothing else.")
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")]


@cache
def progress_console() -> "Console":
    """Where progress is shown: stderr, so that stdout can go into a pipe."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: object) -> None:
    """Print a line on stdout, never wrapped.

    The reader of a pipe may leave (`coframe export ... | head`): work and exit code stay the same.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_json(content: object) -> None:
    """Print the one object of --json."""
    say(json.dumps(content, indent=1))


def say_table(table: "Table") -> None:
    """Print a table as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as shown:
        console.print(table)
    say(shown.get().removesuffix("\n"))


def writable(folder: Path) -> None:
    """Refuse, before any work, a folder that cannot be written to; nothing is made yet."""
    from coframe.errors import InputError

    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(
            f"{folder}: expected a folder to write to, found the file {there}; choose another one"
            " with -o"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            f"{folder}: expected a folder to write to, found no permission to write in {there};"
            " choose another one with -o"
        )


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, ending in one clear line and an exit code: 2 for errors, 130 for Ctrl-C."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        from coframe.errors import InputError

        before = {number: signal.getsignal(number) for number in signals.CODES}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, signals.interrupt)  # Temporary files are removed.
        signals.ending.said = False
        signals.ending.code = signals.CODES[signal.SIGINT]
        if arguments.get("as_json"):
            signals.ending.say_json = _say_interrupted
        try:
            command(**arguments)
        except (typer.Exit, typer.Abort):
            raise
        except InputError as error:
            reason, code = str(error), 2
        except (KeyboardInterrupt, SystemExit):  # A signal.
            code = signals.ending.code
            with signals.ending.lock:
                signals.say_once(signals.INTERRUPTED)
                if arguments.get("as_json"):
                    _say_interrupted(code)
            raise SystemExit(code) from None
        except MemoryError:
            reason, code = "not enough memory; try --memory, or fewer or thinned-out clouds", 2
        except OSError as error:
            reason, code = (
                ": ".join(str(part) for part in (error.filename, error.strerror or error) if part),
                2,
            )
        except Exception as error:
            if os.environ.get("COFRAME_TRACEBACK"):
                raise
            where = "this is a bug in coframe; COFRAME_TRACEBACK=1 shows where it happened"
            reason, code = (
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})",
                2,
            )
        else:
            return
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
        with signals.ending.lock:  # A process that a signal ends says nothing else.
            signals.say_once(reason)
            if arguments.get("as_json"):
                say_json({"error": reason, "exit_code": code})
        raise typer.Exit(code)

    return run


def _say_interrupted(code: int) -> None:
    say_json({"error": signals.INTERRUPTED, "exit_code": code})


def _show_version(wanted: bool) -> bool:
    if wanted:
        import coframe

        say(f"coframe {coframe.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of coframe itself."""
