# SPDX-License-Identifier: MIT
"""What all commands share: the app, its consoles and options, and how commands fail."""

import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from coframe.cli import signals

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Commands(TyperGroup):
    """The commands; what their usage errors repeat of the command line is clean text."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        with _clean_usage_errors():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _clean_usage_errors():
            return super().invoke(ctx)


@contextmanager
def _clean_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # click's own, which versions of typer hide elsewhere
            from coframe.errors import visible

            error.message = visible(error.message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=Commands,
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
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit 1 for weak clouds, several groups and warnings, too."),
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")]


# [format] Arguments of the library as messages name them.
ARGUMENT = re.compile(
    "`(fixed|priors?|level|rematch|max_turn|max_shift|turntable|targets|control|crs|poses)`"
)
# [format] Those whose option has another name.
OPTIONS = {"priors": "prior", "methods": "method"}
# [format] Parameters of commands that are no options.
POSITIONAL = ("files", "folder", "file", "sequence", "names")


@cache
def progress_console() -> "Console":
    """Where progress is shown: stderr, so that stdout can go into a pipe."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: object) -> None:
    """Print a line on stdout, never wrapped; what a terminal would act on is shown as escapes."""
    from coframe.errors import visible

    _print(visible(as_options(str(text))))


def say_json(content: object) -> None:
    """Print the one object of --json."""
    from coframe.io.files import as_json

    _print(as_json(content))


def say_table(table: "Table") -> None:
    """Print a table as wide as the terminal."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False)
    segments = [Segment(_visible_lines(text), style) for text, style, _ in console.render(table)]
    with console.capture() as shown:
        console.print(Segments(segments))
    _print(shown.get().removesuffix("\n"))


def as_options(text: str) -> str:
    """Text with arguments of the library, between backticks, as options of the command line.

    >>> as_options("fix them (`fixed`) or say how certain they are (`priors`)")
    'fix them (--fixed) or say how certain they are (--prior)'
    """
    return ARGUMENT.sub(lambda match: _option(match[1]), text)


def _option(name: str) -> str:
    return f"--{OPTIONS.get(name, name).replace('_', '-')}"


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{count} {what}{'s' * (count != 1)}"


def complain(text: object) -> None:
    """Print a line on stderr that begins with the name of the program."""
    from coframe.errors import visible

    print(f"coframe: {visible(text)}", file=sys.stderr)


def _visible_lines(text: str) -> str:
    from coframe.errors import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def _print(text: str) -> None:
    """Print clean text on stdout; what its encoding lacks is shown as escapes.

    The reader of a pipe may leave (`coframe export ... | head`): work and exit code stay the same.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


# What to do next where the system refuses something, by its number.
ADVICE = {
    errno.ENOSPC: "free some space, or choose another folder with -o",
    errno.EDQUOT: "free some space, or choose another folder with -o",
    errno.ENOENT: "check the path",
}


def _said(error: OSError) -> str:
    """Where the system refused something, why, and what to do next."""
    where = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
    notes = getattr(error, "__notes__", [])
    return "; ".join([where, *([ADVICE[error.errno]] if error.errno in ADVICE else []), *notes])


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, ending in one clear line and an exit code: 2 for errors, 130 for Ctrl-C."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        from coframe.errors import InputError, visible

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
            reason, code = _as_typed(str(error), arguments), 2
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
            reason, code = _said(error), 2
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
            signals.say_once(visible(reason))
            if arguments.get("as_json"):
                say_json({"error": reason, "exit_code": code})
        raise typer.Exit(code)

    return run


def _as_typed(message: str, arguments: Iterable[str]) -> str:
    """A message of the library in words of the command line: options, not arguments."""
    name, mark, rest = message.partition(": ")
    own = OPTIONS.get(name, name).replace("-", "_")
    typed = own in arguments and own not in POSITIONAL
    return as_options(f"{_option(name)}{mark}{rest}" if mark and typed else message)


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
