# SPDX-License-Identifier: MIT
"""`coframe export`."""

from pathlib import Path
from typing import Annotated

import typer

EXPORTS = "Poses: json, matrix, aln, mlp, conf, tum, kitti, open3d. Points: e57, ply, pcd, las, laz, xyz, csv, npy, aligned."


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a result.")],
    to: Annotated[str, typer.Option(help=EXPORTS)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File or folder to write. Default: one in DIR.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Leave the outliers out.")] = False,
) -> None:
    """Write a result for other programs.

    Examples:

    coframe export out --to mlp -o scans.mlp     for MeshLab

    coframe export out --to matrix -o matrices   for CloudCompare

    coframe export out --to aligned -o aligned   every input in its own format

    coframe export out --to laz --clean -o all.laz
    """
    import coframe
    from coframe.export import export as write

    for path in write(coframe.load(folder), to, folder, output, clean=clean):
        print(path)
