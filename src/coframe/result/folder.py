# SPDX-License-Identifier: MIT
"""A registration as a folder: poses.json and clouds for people and other programs, state.npz for
the rest, manifest.json to say that they belong together.

Works on the fields of a `Registration` by name, in both directions: the record stands above its
files.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from coframe import geometry
from coframe.align.alternatives import Alternative
from coframe.align.residuals import Adjustment, TargetResidual
from coframe.align.verdict import VERDICTS, Verdict
from coframe.em.loop import Status, history_from_arrays, history_to_arrays
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.geometry import is_rigid
from coframe.input.source import InMemory
from coframe.io import npz, ply
from coframe.io import poses as pose_files
from coframe.io.files import atomic, write_rows
from coframe.io.manifest import Manifest, is_from_elsewhere, open_regular
from coframe.io.transaction import consistent, transaction
from coframe.result import merged
from coframe.result.merged import COLOURS, NORMALS
from coframe.start.doubt import Doubt
from coframe.types import Array, Poses

# [format] What `transaction` calls it, and what a folder of it can hold.
KIND = "registration"
FILES = ("poses.json", merged.NAME, "model.ply", "state.npz")


def write(
    folder: str | os.PathLike[str], fields: Mapping[str, Any], *, reliable: Bool[Array, " K"]
) -> Path:
    """Write a registration in place of an earlier one; `reliable` marks components in model.ply."""
    with replacing(folder, fields, reliable=reliable):
        return Path(folder)


@contextmanager
def replacing(
    folder: str | os.PathLike[str], fields: Mapping[str, Any], *, reliable: Bool[Array, " K"]
) -> Iterator[Path]:
    """A new folder with the files of a registration, which takes the place of the old one when the
    block ends well; more files may be added.
    """
    folder = Path(folder)
    inputs, elsewhere = fields["files"], fields["elsewhere"]
    with transaction(folder, KIND, inputs=inputs, elsewhere=elsewhere) as new:
        _write_files(new, folder, fields, reliable)
        yield new
    shutil.rmtree(folder / merged.POINTS, ignore_errors=True)


def _write_files(
    new: Path, folder: Path, fields: Mapping[str, Any], reliable: Bool[Array, " K"]
) -> None:
    """Into `new`, what is to be seen from `folder`."""
    mixture = fields["mixture"]
    details, header = summary(folder, fields)
    pose_files.write(
        new / "poses.json", fields["names"], fields["poses"], details=details, **header
    )
    # else all of them have been written already
    if not (fields["sizes"] and merged.take(folder, new, fields["sizes"], fields["poses"])):
        _write_merged(new / merged.NAME, fields)
    ply.write(
        new / "model.ply",
        mixture.means,
        variance=mixture.variances,
        weight=mixture.weights,
        reliable=reliable.astype("u1"),
    )
    with atomic(new / "state.npz") as temporary:
        np.savez_compressed(temporary, **_state(folder, fields))


def figures_of(quality: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What `quality.assess` found, of every cloud and of the whole, as plain values."""
    content = quality.as_json()
    scans = [
        {
            "rms": each["rms"],
            "within_tolerance": each["within"],
            "sd_at_points": each["sd"],
            "strength": each["strength"],
            "target_rms": each["target_rms"],
        }
        for each in content["scans"]
    ]
    return scans, {"tolerance": content["tolerance"], "links": content["links"]}


def summary(folder: Path, fields: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What poses.json says beside the poses: of every cloud, and of the whole."""
    files = _seen_from(folder, fields["files"]) or fields["names"]
    counts = fields["sizes"] or [len(cloud) for cloud in fields["clouds"]]
    details = [
        {"file": file, "points": count, **asdict(verdict)}
        for file, count, verdict in zip(files, counts, fields["verdicts"], strict=True)
    ]
    header = {
        "status": fields["status"].name.lower(),
        "iterations": len(fields["history"]),
        "start": fields["start"],
        "pairs_tried": fields["pairs_tried"],
        "groups": [[fields["names"][j] for j in group] for group in fields["groups"]],
        "warnings": list(fields["warnings"]),
        "alternatives": [
            _alternative_as_json(each) | {"clouds": [fields["names"][j] for j in each.clouds]}
            for each in fields["alternatives"]
        ],
        "options": dict(fields["options"]),
        "seed": fields["options"].get("seed"),
        "version": version("coframe"),
    }
    if (quality := fields.get("quality")) is not None:
        scans, links = figures_of(quality)
        details = [own | figures for own, figures in zip(details, scans, strict=True)]
        header |= links
    if fields["crs"]:
        header["crs"] = fields["crs"]
    if fields["targets"] is not None:
        header["targets"] = _targets_as_json(fields["targets"])
    return details, header


def _targets_as_json(found: Adjustment) -> dict[str, Any]:
    """Residuals of targets as plain values, with the test of all of them."""
    return asdict(found) | {
        "expected": list(found.limits),
        "consistent": found.consistent,
        "rms": {role: found.rms(role) for role in ("control", "check", "tie")},
    }


def _targets_from_json(content: Any) -> Adjustment | None:
    """What `_targets_as_json` wrote."""
    if content is None:
        return None
    residuals = tuple(
        TargetResidual(
            str(each["name"]),
            str(each["scan"]),
            str(each["role"]),
            tuple(float(value) for value in each["residual"]),
            tuple(float(value) for value in each["sd"]),
        )
        for each in content["residuals"]
    )
    found = Adjustment(residuals, float(content["chi_square"]), float(content["redundancy"]))
    figures = [found.chi_square, found.redundancy]
    figures += [value for each in residuals for value in (*each.residual, *each.sd)]
    if not np.isfinite(figures).all() or not all(sd > 0 for each in residuals for sd in each.sd):
        raise ValueError("its targets have no finite residuals")
    return found


def _alternative_as_json(one: Alternative) -> dict[str, Any]:
    shares = one.contradictions
    return {
        "clouds": list(one.clouds),
        "poses": one.poses.tolist(),
        "reason": one.reason,
        "contradictions": None if shares is None else list(shares),
        "lead": one.lead,
    }


def _alternative_from_json(content: dict[str, Any]) -> Alternative:
    clouds = tuple(int(j) for j in content["clouds"])
    poses = np.array(content["poses"], float)
    shares = content["contradictions"]
    if len(poses) != len(clouds):
        raise ValueError("an alternative has not one pose for each of its clouds")
    return Alternative(
        clouds,
        poses,
        str(content["reason"]),
        None if shares is None else (float(shares[0]), float(shares[1])),
        float(content["lead"]),
    )


def _state(folder: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """All that the other files do not hold, as arrays; text as JSON."""
    moments = fields["moments"]
    start = {
        "groups": fields["groups"],
        "start": fields["start"],
        "pairs_tried": fields["pairs_tried"],
        "warnings": fields["warnings"],
        "options": dict(fields["options"]),
        "doubts": [{"cloud": doubt.cloud, "reason": doubt.reason} for doubt in fields["doubts"]],
        "alternatives": [_alternative_as_json(each) for each in fields["alternatives"]],
        "crs": fields["crs"],
        "targets": None if fields["targets"] is None else _targets_as_json(fields["targets"]),
    }
    return {
        "names": np.array(fields["names"]),
        "files": np.array(_seen_from(folder, fields["files"]), dtype=np.str_),
        "poses": fields["poses"],
        **fields["mixture"].to_arrays(),
        "pose_covariance": fields["pose_covariance"],
        "verdicts": np.array([json.dumps(asdict(verdict)) for verdict in fields["verdicts"]]),
        "about": moments.about,
        "mass": moments.mass,
        "first": moments.first,
        "second": moments.second,
        "points": moments.points,
        **history_to_arrays(fields["history"]),
        "status": fields["status"].name,
        "start": json.dumps(start),
    }


def _write_merged(path: Path, fields: Mapping[str, Any]) -> None:
    """All points in the common frame; see `io.merged`."""
    clouds, poses = fields["clouds"], fields["poses"]
    attributes: Sequence[Mapping[str, Any]] = fields["attributes"] or ({},) * len(clouds)
    kinds = [{name: column.dtype for name, column in each.items()} for each in attributes]
    row = merged.row_of(kinds, poses.shape[1] - 1)
    with atomic(path) as temporary, temporary.open("wb") as file:
        merged.begin(file, row, sum(map(len, clouds)), merged.key_of(poses))
        for j, (points, columns) in enumerate(zip(clouds, attributes, strict=True)):
            about = {"outlier": fields["outlier_probability"][j], "label": fields["labels"][j]}
            for block in InMemory(points, columns={**columns, **about}).blocks():
                classes = block.columns["outlier"], block.columns["label"]
                write_rows(file, merged.rows(block, j, poses[j], *classes, row))


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields that `write` was given, or one sentence on what is missing or damaged."""
    return consistent(folder, lambda manifest: _read_once(Path(folder), manifest))


def _read_once(folder: Path, manifest: Manifest | None) -> dict[str, Any]:
    if not (folder / "state.npz").is_file():
        raise InputError(
            f"{folder}: expected a folder written by coframe, found no state.npz in it"
        )
    if not (folder / "poses.json").exists() and (folder / "track.json").exists():
        raise InputError(
            f"{folder}: expected a result of register or extend, found one of track; its poses are"
            " in trajectory.txt"
        )
    try:
        return _read(folder, manifest)
    except InputError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{folder}: expected a folder written by coframe, found damaged files in it ({reason})"
        ) from error


def _read(folder: Path, manifest: Manifest | None) -> dict[str, Any]:
    if manifest is not None:
        clouds = [name for name in manifest.files if merged.is_name(name)]
        manifest.check(folder, ["poses.json", "state.npz", *(clouds or [merged.NAME])])
    s = npz.read(folder / "state.npz")
    if s["history"].shape[1:] == (3,):  # of earlier versions: log-likelihoods are of all points
        s["history"] = np.insert(s["history"], 3, s["points"].sum(), axis=1)
    sizes = _check_state(s)
    poses = s["poses"]
    vertices = merged.read(folder, len(poses))
    if vertices is None:
        raise InputError(
            f"{folder}: expected a folder written by coframe, found no {merged.NAME} in it"
        )
    _check_merged(vertices, len(poses), sizes["K"])
    if manifest is None and (folder / merged.NAME).exists():
        merged.check_poses(folder, poses)
    if manifest is None and (folder / "poses.json").exists():
        _check_together(folder, s["names"].tolist(), poses, vertices)
    points = np.stack(
        [np.asarray(vertices[axis], float) for axis in "xyz"[: poses.shape[1] - 1]], 1
    )
    parts = [np.flatnonzero(vertices["cloud"] == j) for j in range(len(poses))]
    return {
        "clouds": tuple(
            geometry.transform(T, points[part])
            for T, part in zip(geometry.inverse(poses), parts, strict=True)
        ),
        "names": tuple(s["names"].tolist()),
        "poses": poses,
        "mixture": Mixture.from_arrays(s),
        "moments": Moments(s["about"], s["mass"], s["first"], s["second"], s["points"]),
        "outlier_probability": tuple(
            np.asarray(vertices["outlier_probability"][part], float) for part in parts
        ),
        "labels": tuple(np.asarray(vertices["component"][part], np.int64) for part in parts),
        "verdicts": tuple(_verdict(json.loads(str(verdict))) for verdict in s["verdicts"]),
        "pose_covariance": s["pose_covariance"],
        "history": history_from_arrays(s),
        "status": Status[str(s["status"])],
        "attributes": _attributes(vertices, parts, poses),
        "files": tuple(os.path.normpath(folder.absolute() / file) for file in s.get("files", ())),
        "elsewhere": is_from_elsewhere(folder, manifest),
        **_beginning(json.loads(str(s["start"])) if "start" in s else {}, len(poses)),
    }


def own_points(folder: Path) -> list[Float[Array, "_ D"]] | None:
    """The points of each cloud of a result in its own frame; None where they are not there."""
    known = list(pose_files.read(folder / "poses.json").values())
    vertices = merged.read(folder, len(known))
    if vertices is None:
        return None
    axes = "xyz"[: len(known[0]) - 1]
    points = np.stack([np.asarray(vertices[axis], float) for axis in axes], 1)
    return [
        geometry.transform(geometry.inverse(pose), points[vertices["cloud"] == j])
        for j, pose in enumerate(known)
    ]


def _check_state(s: Mapping[str, Array]) -> dict[str, int]:
    """A ValueError where the numbers of a state are not a registration; returns the sizes M, K and
    D.
    """
    shapes = {
        "means": "K D",
        "covariances": "K D D",
        "weights": "K",
        "outlier_density": "",
        "pose_covariance": "M P P",
    }
    shapes |= {
        "about": "K D",
        "mass": "M K",
        "first": "M K D",
        "second": "M K D D" if s["second"].ndim == 4 else "M K",
    }
    shapes |= {"points": "M", "poses": "M D1 D1", "history": "I 4"}
    shapes |= {"visibility": "M K"} if s["visibility"].size else {}
    shapes |= {"history_poses": "I H D1 D1"} if len(s["history"]) else {}
    likelihood = s["history"][:, 1:2]
    history = np.hstack(
        [s["history"][:, :1], np.where(np.isnan(likelihood), 0, likelihood), s["history"][:, 2:]]
    )
    # methods without a likelihood have NaN there
    sizes = npz.numbers({**s, "history": history}, shapes)
    D = sizes["D"]
    if (
        sizes["D1"] != D + 1
        or sizes["P"] != geometry.degrees_of_freedom(D)
        or not all(map(is_rigid, s["poses"]))
    ):
        raise ValueError("its poses are not rotations and translations")
    if not all(is_rigid(pose) for poses in s["history_poses"] for pose in poses):
        raise ValueError("the poses of its history are not rotations and translations")
    for name in ("weights", "visibility", "mass", "points", "outlier_density"):
        if (s[name] < 0).any():
            raise ValueError(f"{name} is negative")
    if not s["weights"].sum() > 0 or np.linalg.eigvalsh(s["covariances"]).min() <= 0:
        raise ValueError("a component has no positive variance")
    if any(
        s[name].shape != (sizes["M"],) or s[name].dtype.kind != "U"
        for name in ("names", "verdicts")
    ):
        raise ValueError("names and verdicts are not one for each cloud")
    return sizes


def _check_merged(vertices: Array, clouds: int, components: int) -> None:
    """A ValueError where the points are not those of such a registration."""
    limits = {
        "cloud": (0, clouds - 1),
        "component": (-1, components - 1),
        "outlier_probability": (0, 1 + 1e-6),
    }
    for name, (low, high) in (
        dict.fromkeys("xyz", (-LARGEST_NUMBER, LARGEST_NUMBER)) | limits
    ).items():
        if not ((vertices[name] >= low) & (vertices[name] <= high)).all():  # false for NaN
            raise ValueError(f"merged.ply has a {name} that is not from {low} to {high}")


def _check_together(folder: Path, names: list[str], poses: Poses, vertices: Array) -> None:
    """A ValueError where files of release 0.1, which has no manifest, are of different results."""
    with open_regular(folder / "poses.json") as file:
        clouds = json.loads(file.read())["clouds"]
    counts = np.bincount(vertices["cloud"], minlength=len(poses)).tolist()
    known = [(cloud["name"], cloud["pose"], cloud["points"]) for cloud in clouds]
    if known != list(zip(names, poses.tolist(), counts, strict=True)):
        raise ValueError("poses.json, state.npz and merged.ply are of different results")


def _verdict(about: dict[str, Any]) -> Verdict:
    verdict = Verdict(**about)
    figures = [
        float(each)
        for each in (verdict.overlap, verdict.inliers, verdict.residual, verdict.expected)
    ]
    if (
        verdict.verdict not in VERDICTS
        or not isinstance(verdict.reason, str)
        or not np.isfinite(figures).all()
    ):
        raise ValueError("a verdict is not aligned, weak or failed with finite figures")
    return Verdict(verdict.verdict, verdict.reason, *figures)


def _attributes(
    vertices: Array, parts: Sequence[Int[Array, " _"]], poses: Array
) -> tuple[Mapping[str, Array], ...]:
    """What `io.merged` wrote, cloud by cloud, normals turned back."""
    names = [
        name for name in (*COLOURS, "intensity", *NORMALS) if name in (vertices.dtype.names or ())
    ]
    if not names:
        return ()
    found = [{name: vertices[name][part] for name in names} for part in parts]
    for each in found:  # clouds without colours were made grey
        if COLOURS[0] in names and all((each[name] == merged.GREY).all() for name in COLOURS):
            for name in COLOURS:
                del each[name]
    if NORMALS[0] in names:
        for each, R in zip(found, geometry.rotation(poses), strict=True):
            each |= dict(
                zip(NORMALS, (np.stack([each[name] for name in NORMALS], 1) @ R).T, strict=True)
            )
    return tuple(found)


def _seen_from(folder: Path, files: Sequence[str]) -> list[str]:
    """The files as paths from the folder, so that both can move together; as they are where no path
    leads there.
    """
    try:
        return [Path(os.path.relpath(file, folder)).as_posix() for file in files]
    except ValueError:  # another drive
        return list(files)


def _beginning(about: dict[str, Any], clouds: int) -> dict[str, Any]:
    """What is known of the start, from JSON."""
    groups = tuple(tuple(int(j) for j in group) for group in about.get("groups", ()))
    doubts = tuple(
        Doubt(int(each["cloud"]), str(each["reason"])) for each in about.get("doubts", ())
    )
    alternatives = tuple(_alternative_from_json(each) for each in about.get("alternatives", ()))
    if not all(
        0 <= j < clouds
        for j in (
            *(j for group in groups for j in group),
            *(doubt.cloud for doubt in doubts),
            *(j for each in alternatives for j in each.clouds),
        )
    ):
        raise ValueError("its start names clouds that are not there")
    if not all(is_rigid(pose) for each in alternatives for pose in each.poses):
        raise ValueError("its start has poses that are not rotations and translations")
    return {
        "groups": groups,
        "start": str(about.get("start", "given")),
        "pairs_tried": int(about.get("pairs_tried", 0)),
        "warnings": tuple(str(warning) for warning in about.get("warnings", ())),
        "options": dict(about.get("options", {})),
        "doubts": doubts,
        "alternatives": alternatives,
        "crs": str(about.get("crs", "")),
        "targets": _targets_from_json(about.get("targets")),
    }
