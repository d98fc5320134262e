# SPDX-License-Identifier: MIT
"""`coframe datasets`."""

from typing import Annotated

import typer

from coframe.cli.app import counted, say, say_table


def datasets(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data sets to download, such as bunny. Default: list them.", show_default=False
        ),
    ] = None,
) -> None:
    """List the published data sets, or download some.

    They are kept in the folder that the environment variable COFRAME_DATA names.

    Example:  coframe datasets
    """
    from coframe.data import datasets as sets

    if not names:
        from rich.table import Table

        table = Table("name", "here", "content", "terms", title=f"in {sets.root()}")
        for name, entry in sets.CATALOGUE.items():
            table.add_row(name, "yes" if sets.present(name) else "no", entry.about, entry.terms)
        say_table(table)
        return
    for name in names:
        found = sets.load(name, fetch=True)
        say(f"{name}: {counted(len(found.paths), 'file')} in {found.folder}; {found.terms}")
