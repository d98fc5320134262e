# SPDX-License-Identifier: MIT
"""The command line's frame: the app that commands join, its consoles, the options they share, and
how they fail.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Out(Console):
    """A console whose reader may leave (`coframe export ... | head`): the work and the exit code
    stay the same.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = Out(highlight=False)
# for progress: what is on stdout can go into a pipe
watcher = Console(stderr=True, highlight=False)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn at random.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads; default: all cores. The result is the same.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")]


def say(text: object) -> None:
    """A line as it is, never wrapped."""
    console.print(str(text), markup=False, soft_wrap=True)


def say_json(content: object) -> None:
    """The one object of --json."""
    say(json.dumps(content, indent=1))


def writable(folder: Path) -> None:
    """Refuse, before any work, a folder that cannot be written to; nothing is made yet."""
    from coframe.errors import InputError

    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{folder}: expected a folder to write to, found the file {there}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            f"{folder}: expected a folder to write to, found no permission to write in {there}"
        )


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which ends with one clear line and an exit code whatever happens: 2 for errors,
    130 for Ctrl-C.
    """

    @wraps(command)
    def run(**arguments: Any) -> None:
        from coframe.errors import InputError

        before = signal.signal(signal.SIGTERM, _end)  # else temporary files would stay
        try:
            command(**arguments)
        except (typer.Exit, typer.Abort):
            raise
        except InputError as error:
            reason, code = str(error), 2
        except KeyboardInterrupt:
            reason, code = "interrupted", 130
        except SystemExit as exit:  # a signal, of which `interruptible` has said what is to say
            if arguments.get("as_json"):
                say_json({"error": "interrupted", "exit_code": exit.code})
            raise
        except MemoryError:
            reason, code = "not enough memory for this; fewer or thinned-out clouds need less", 2
        except OSError as error:
            reason, code = (
                ": ".join(str(part) for part in (error.filename, error.strerror or error) if part),
                2,
            )
        except Exception as error:
            if os.environ.get("COFRAME_TRACEBACK"):
                raise
            where = "this is a defect of coframe; COFRAME_TRACEBACK=1 shows where it happened"
            reason, code = (
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})",
                2,
            )
        else:
            return
        finally:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        print(f"coframe: {reason}", file=sys.stderr)
        if arguments.get("as_json"):
            say_json({"error": reason, "exit_code": code})
        raise typer.Exit(code)

    return run


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


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
