# SPDX-License-Identifier: MIT
"""The command line's frame: the app that commands join, its console, and the options they share."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console()

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn at random.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; default: all cores. The result is the same.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        import coframe

        print(f"coframe {coframe.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of coframe itself."""
