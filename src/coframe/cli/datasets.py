# SPDX-License-Identifier: MIT
"""`coframe datasets`."""

from typing import Annotated

import typer
from rich.table import Table

from coframe.cli.app import console


def datasets(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Sets to download, such as bunny; none: all are listed.", show_default=False
        ),
    ] = None,
) -> None:
    """List the published data sets, or download some.

    They lie under the folder that the variable COFRAME_DATA names.

    Example:  coframe datasets
    """
    from coframe.data import datasets as sets

    if not names:
        table = Table("name", "here", "what", "terms", title=f"in {sets.root()}")
        for name, entry in sets.CATALOGUE.items():
            table.add_row(name, "yes" if sets.present(name) else "no", entry.about, entry.terms)
        console.print(table)
        return
    for name in names:
        found = sets.load(name, fetch=True)
        console.print(
            f"{name}: {len(found.paths)} files in {found.folder}; {found.terms}", soft_wrap=True
        )
