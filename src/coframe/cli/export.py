# SPDX-License-Identifier: MIT
"""`coframe export`."""

from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import AsJson, Quiet, complain, say, say_json

EXPORTS = (
    "Poses: json, matrix, aln, mlp, conf, tum, kitti, open3d, log. Points: e57, ptx, ply, pcd, las,"
    " laz, xyz, csv, npy, aligned."
)

# What files of scans do not have, though the inputs may.
LOST = {
    "e57": "images, row and column index and other fields of the inputs are not carried over,"
    " intensity only where all clouds have it",
    "ptx": "images, the grid of rows and columns and other fields of the inputs are not carried"
    " over, intensity only where all clouds have it (otherwise 0: PTX has to say one)",
}


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a result.")],
    to: Annotated[str, typer.Option(help=EXPORTS)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File or folder to write. Default: one in DIR."),
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Leave out the outliers.")] = False,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Folder of the scans, for aligned copies from a result made elsewhere."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that this result did not export.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a result for other programs.

    The scans and the files of results are never replaced.

    Examples:

    coframe export out --to mlp -o scans.mlp         # for MeshLab

    coframe export out --to matrix -o matrices       # for CloudCompare

    coframe export out --to aligned -o aligned       # copies of the inputs

    coframe export out --to xyz --clean -o all.xyz   # merged, no outliers
    """
    import coframe
    from coframe.result.export import export as write

    result = coframe.load(folder)
    paths = write(result, to, folder, output, clean=clean, inputs=inputs, overwrite=overwrite)
    if as_json:
        say_json({"written": [str(path) for path in paths]})
    elif not quiet:
        for path in paths:
            say(path)
        if to in LOST and result.files:
            complain(f"{LOST[to]}; --to aligned keeps all that the input files have")
