# SPDX-License-Identifier: MIT
"""`coframe evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coframe.cli.app import AsJson, say, say_json, say_table

if TYPE_CHECKING:
    from coframe.evaluate.trajectory_errors import Errors


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
    group. Translations are those of the clouds' own origins. A result of `coframe track` is
    compared as a trajectory, with ATE and RPE.

    Examples:

    coframe evaluate out --truth truth.json

    coframe evaluate out --truth truth.json --json
    """
    if (folder / "trajectory.txt").is_file() and not (folder / "poses.json").is_file():
        content = _of_trajectory(folder / "trajectory.txt", truth)
    else:
        content = _of_poses(folder / "poses.json" if folder.is_dir() else folder, truth)
    if as_json:
        say_json(content)
    else:
        _show(content)


def _of_poses(file: Path, truth: Path) -> dict[str, Any]:
    """Angles and distances per cloud, and over all that have something to be compared with."""
    import numpy as np

    from coframe.errors import InputError
    from coframe.evaluate import metrics
    from coframe.io import poses as pose_files

    known = pose_files.read(file)
    names = list(known)
    if len({pose.shape for pose in known.values()}) > 1:
        raise InputError(f"{file}: expected poses of one size, found several")
    found, true = np.array(list(known.values())), pose_files.read_for(truth, names)
    if found.shape != true.shape:
        raise InputError(f"{truth}: expected poses of size {found.shape[1]}, found {true.shape[1]}")
    rows: list[dict[str, Any]] = [{"name": name} for name in names]
    for group in _groups(file, names):
        angles, shifts = (
            measure(found[group], true[group]).tolist()
            for measure in (metrics.rotation_errors, metrics.translation_errors)
        )
        for j, angle, shift in list(zip(group, angles, shifts, strict=True))[1:]:
            rows[j] |= {"rotation_deg": angle, "translation": shift, "relative_to": names[group[0]]}
    compared = [row for row in rows if "rotation_deg" in row]
    if not compared:
        raise InputError(f"{file}: expected two clouds that hang together, found none")
    over_all = {
        key: {
            "mean": float(np.mean([row[key] for row in compared])),
            "median": float(np.median([row[key] for row in compared])),
            "largest": float(max(row[key] for row in compared)),
        }
        for key in ("rotation_deg", "translation")
    }
    return {"clouds": rows, **over_all}


def _groups(file: Path, names: list[str]) -> list[list[int]]:
    """Clouds that have a common frame, as our own files say; all, in those of others."""
    import json

    try:
        groups = json.loads(file.read_text(encoding="utf-8"))["groups"]
        return [[names.index(name) for name in group] for group in groups] or [
            list(range(len(names)))
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return [list(range(len(names)))]


def _of_trajectory(file: Path, truth: Path) -> dict[str, Any]:
    from coframe.evaluate import trajectory_errors
    from coframe.io import trajectory

    estimate, true = trajectory.read_tum(file), trajectory.read_tum(truth)
    shift, turn = trajectory_errors.relative_errors(estimate, true)

    def told(errors: "Errors") -> dict[str, float]:
        return {
            "rmse": errors.rmse,
            "mean": errors.mean,
            "median": errors.median,
            "largest": errors.largest,
        }

    ate = trajectory_errors.absolute_errors(estimate, true)
    return {
        "poses": len(estimate),
        "matched": len(ate.values),
        "ate": told(ate),
        "rpe": told(shift),
        "rpe_deg": told(turn),
    }


def _show(content: dict[str, Any]) -> None:
    if "clouds" not in content:
        say(
            f"{content['matched']} of {content['poses']} poses matched by time; RPE from one frame"
            " to the next"
        )
        for key, unit in (("ate", "unit"), ("rpe", "unit"), ("rpe_deg", "deg")):
            figures = ", ".join(f"{name} {value:.4g}" for name, value in content[key].items())
            say(f"{key.partition('_')[0].upper()} [{unit}]: {figures}")
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("cloud")
    table.add_column("rotation error", justify="right")
    table.add_column("translation error", justify="right")
    table.add_column("relative to")
    for row in content["clouds"]:
        errors = (
            (f"{row['rotation_deg']:.3f} deg", f"{row['translation']:.4g}")
            if "rotation_deg" in row
            else ("", "")
        )
        table.add_row(escape(row["name"]), *errors, escape(row.get("relative_to", "")))
    say_table(table)
    for key, unit in (("rotation_deg", " deg"), ("translation", "")):
        figures = ", ".join(f"{name} {value:.4g}{unit}" for name, value in content[key].items())
        say(f"{key.partition('_')[0]}: {figures}")
