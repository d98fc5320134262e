# SPDX-License-Identifier: MIT
"""Results for other programs: poses in their formats, merged clouds, and aligned copies of the
inputs.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coframe import geometry
from coframe.errors import InputError
from coframe.io import clouds as cloud_files
from coframe.io import crs, e57, las, ptx
from coframe.io import poses as pose_files
from coframe.io.exported import exported
from coframe.io.files import file_names
from coframe.io.manifest import check_no_input
from coframe.io.scan import Scan, in_space, of_columns
from coframe.result.registration import Registration

MERGED = ("ply", "pcd", "las", "laz", "xyz", "csv", "npy")
SCANS = ("e57", "ptx")
POSES = tuple(form for form in pose_files.FORMATS if form not in SCANS)
FORMATS = (*POSES, *SCANS, *MERGED, "aligned")
NAMES = {
    "matrix": "matrices",
    "tum": "poses.tum.txt",
    "kitti": "poses.kitti.txt",
    "open3d": "poses.open3d.json",
}
NAMES |= {"json": "poses.coframe.json", "aligned": "aligned"}
NAMES |= {form: f"scans.{form}" for form in SCANS}
CLOUD = "points.ply"  # merged.ply is the result's own


def export(
    result: Registration,
    form: str,
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    clean: bool = False,
    inputs: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write a result in one of `FORMATS` and say what was written; `target` defaults to a name of
    its own in `folder`, which has the result.

    json, matrix, aln, mlp, conf, tum, kitti, open3d, log: the poses. e57, ptx: every cloud in its
    own frame, with its pose. ply, pcd, las, laz, xyz, csv, npy: all clouds in the common frame, as
    one.
    aligned: a copy of every input file in the common frame, in its own format. clean: without the
    outliers (not for poses and aligned copies). inputs: the folder in which the input files of a
    result may be read that was made elsewhere. overwrite: replace a file that was not exported from
    this result; inputs and files of results are never replaced.
    """
    if form not in FORMATS:
        raise InputError(f"format: expected one of {', '.join(FORMATS)}, found {form!r}")
    if clean and form not in (*MERGED, *SCANS):
        raise InputError(
            f"clean: expected a format with points, {', '.join((*MERGED, *SCANS))}, found {form}"
        )
    stem = "cleaned" if clean and form in MERGED else "merged" if form in MERGED else "poses"
    name = CLOUD if (stem, form) == ("merged", "ply") else NAMES.get(form, f"{stem}.{form}")
    path = Path(folder) / name if target is None else Path(target)
    if path.suffix.lower() != f".{form}" and form in (*MERGED, *SCANS):
        raise InputError(
            f"{path}: expected a name that ends in .{form}, found {path.suffix or 'no suffix'}"
        )
    if form == "aligned":
        return _aligned(result, Path(folder), path, inputs, overwrite)
    if form == "matrix":
        with exported(folder, path, inputs=result.files, overwrite=overwrite) as new:
            pose_files.export(new, form, result.names, result.poses)
        return [path]
    beside, names = path.parent, [path.name]
    with exported(folder, beside, names, inputs=result.files, overwrite=overwrite) as new:
        if form in POSES:
            files = [os.path.relpath(file, path.parent) for file in result.files] or None
            pose_files.export(new / path.name, form, result.names, result.poses, files=files)
        elif form == "e57":
            e57.write_scans(new / path.name, scans_of(result, clean=clean), result.crs)
        elif form == "ptx":
            ptx.write_scans(new / path.name, scans_of(result, clean=clean))
        elif form in ("las", "laz") and result.crs:
            points = merged(scans_of(result, clean=clean))
            las.write_scan(new / path.name, points, crs.as_wkt(result.crs))
        else:
            cloud_files.write(new / path.name, merged(scans_of(result, clean=clean)))
    return [path]


def scans_of(result: Registration, *, clean: bool = False) -> list[Scan]:
    """The clouds in their own frames, with their poses and what their files said of the points."""
    attributes = result.attributes or ({},) * len(result.clouds)
    scans = []
    for name, points, columns, pose, keep in zip(
        result.names, result.clouds, attributes, result.poses, result.inliers(), strict=True
    ):
        scan = of_columns(
            dict(zip("xyz", points.T, strict=False)) | dict(columns), name=name, pose=in_space(pose)
        )
        scans.append(scan[keep] if clean else scan)
    return scans


def merged(scans: list[Scan]) -> Scan:
    """All scans in the common frame as one, with the number of each point's cloud; clouds without
    colours are grey.
    """
    D = scans[0].points.shape[1]
    points = [geometry.transform(_of_dimension(scan.pose, D), scan.points) for scan in scans]
    grey = [
        np.full((len(scan), 3), 128, np.uint8) if scan.colours is None else scan.colours
        for scan in scans
    ]
    intensities = [scan.intensity for scan in scans if scan.intensity is not None]
    normals = [
        scan.normals @ scan.pose[:3, :3].T
        for scan in scans
        if scan.normals is not None and scan.pose is not None
    ]
    return Scan(
        np.concatenate(points),
        colours=np.concatenate(grey) if any(scan.colours is not None for scan in scans) else None,
        normals=np.concatenate(normals) if len(normals) == len(scans) else None,
        intensity=np.concatenate(intensities) if len(intensities) == len(scans) else None,
        columns={
            "cloud": np.repeat(np.arange(len(scans), dtype=np.int32), [len(scan) for scan in scans])
        },
        name="merged",
    )


def _of_dimension(pose: np.ndarray | None, D: int) -> np.ndarray:
    assert pose is not None
    return pose if D == 3 else geometry.pose(pose[:2, :2], pose[:2, 3])


def _aligned(
    result: Registration,
    home: Path,
    folder: Path,
    inputs: str | os.PathLike[str] | None,
    overwrite: bool,
) -> list[Path]:
    if not result.files:
        raise InputError(
            "aligned: expected a result made from files, found one that does not know its files"
        )
    sources = list(dict.fromkeys(result.files))
    suffixes = [cloud_files.moved_suffix(source) for source in sources]
    names = file_names([Path(source).stem for source in sources], suffixes)
    if result.elsewhere:
        _check_sources(home, sources, inputs)
    for name in names:
        check_no_input(folder / name, sources)
    with exported(home, folder, inputs=sources, overwrite=overwrite) as new:
        for source, name in zip(sources, names, strict=True):
            scans = [j for j, file in enumerate(result.files) if file == source]
            inside = len(cloud_files.names_of([Path(source)]))
            if len(scans) != inside:
                raise InputError(
                    f"aligned: expected poses of all {inside} scans of {source}, found"
                    f" {len(scans)}; export to e57 or ptx, which takes the scans of the result"
                )
            cloud_files.move(source, new / name, [result.poses[j] for j in scans])
    return [folder / name for name in names]


def _check_sources(
    home: Path, sources: Sequence[str], inputs: str | os.PathLike[str] | None
) -> None:
    """Refuse to read what a result that was made elsewhere names, unless the user says where."""
    allowed = [os.path.realpath(folder) for folder in (home, inputs) if folder is not None]
    for source in sources:
        where = os.path.realpath(source)
        if not any(Path(where).is_relative_to(folder) for folder in allowed):
            raise InputError(
                f"{source}: is named as an input by a result that was made elsewhere; if it may be"
                f" read, add --inputs {os.path.dirname(where)}"
            )
