# SPDX-License-Identifier: MIT
"""`coframe evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from coframe.cli.app import AsJson, say, say_json, say_table

# [limit] An origin that is off by so many times the error at the points is far from these.
FAR = 10.0


def evaluate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of a result, or a file of poses or a trajectory."
        ),
    ],
    truth: Annotated[
        Path,
        typer.Option(help="True poses in any format, matched by name; of a trajectory, by time."),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare a result with true poses.

    Poses are known up to one common motion: each cloud is compared relative to the first of its
    group. Translations are those of the clouds' own origins; "at points" is the root mean square
    error of a cloud's points, where the folder has them. A result of `coframe track`, or a file in
    the format of TUM or KITTI, is compared as a trajectory, with ATE, RPE and, over 100 m and more,
    KITTI's relative errors.

    Examples:

    coframe evaluate out --truth truth.json

    coframe evaluate out --truth truth.json --json
    """
    from coframe.evaluate.files import evaluate_poses, evaluate_trajectory, holds_trajectory
    from coframe.io.manifest import Manifest
    from coframe.io.transaction import consistent
    from coframe.result import folder as folders

    def evaluated(manifest: Manifest | None) -> dict[str, Any]:
        tracked = (folder / "trajectory.txt").is_file() and not (folder / "poses.json").is_file()
        name = "trajectory.txt" if tracked else "poses.json"
        if manifest is not None:
            manifest.check(folder, [name])
        if tracked:
            return evaluate_trajectory(folder / name, truth)
        return evaluate_poses(folder / name, truth, folders.own_points(folder))

    if folder.is_dir():
        content = consistent(folder, evaluated)
    elif holds_trajectory(folder) and holds_trajectory(truth):
        content = evaluate_trajectory(folder, truth)
    else:
        content = evaluate_poses(folder, truth)
    if as_json:
        say_json(content)
    else:
        _show(content)


def _show(content: dict[str, Any]) -> None:
    if "clouds" not in content:
        say(
            f"{content['matched']} of {content['poses']} poses matched by {content['by']}; RPE from"
            " one frame to the next"
        )
        for key, unit in (("ate", "unit"), ("rpe", "unit"), ("rpe_deg", "deg")):
            figures = ", ".join(f"{name} {value:.4g}" for name, value in content[key].items())
            say(f"{key.partition('_')[0].upper()} [{unit}]: {figures}")
        if "kitti" in content:
            shift, turn = content["kitti"].values()
            say(f"KITTI, over 100 to 800 m: {shift:.4g} %, {turn:.4g} deg/m")
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("cloud")
    table.add_column("rotation", justify="right")
    table.add_column("translation", justify="right")
    at_points = "at_points" in content
    if at_points:
        table.add_column("at points", justify="right")
    table.add_column("relative to")
    for row in content["clouds"]:
        errors = [""] * (2 + at_points)
        if "rotation_deg" in row:
            errors = [f"{row['rotation_deg']:.3f} deg", f"{row['translation']:.4g}"]
            errors += [f"{row['at_points']:.4g}"] if at_points else []
        table.add_row(escape(row["name"]), *errors, escape(row.get("relative_to", "")))
    say_table(table)
    names = {"rotation_deg": "rotation", "translation": "translation", "at_points": "at points"}
    for key, name in names.items():
        unit = " deg" if key == "rotation_deg" else ""
        if key in content:
            figures = ", ".join(f"{each} {value:.4g}{unit}" for each, value in content[key].items())
            say(f"{name}: {figures}")
    if at_points and FAR * content["at_points"]["largest"] < content["translation"]["largest"]:
        say(
            "translations are those of the clouds' own origins, which lie far from their points:"
            " the error at the points is the one that counts"
        )
