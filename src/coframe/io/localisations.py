# SPDX-License-Identifier: MIT
"""Files of localisation microscopy: particles in, fused particles out.

Picasso HDF5 with YAML, CSV of ThunderSTORM and SMAP, MATLAB files with `points` and `sigma`, and
NPZ. A column `group` or `site` says which particle a localisation belongs to.
"""

import csv
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from coframe.errors import InputError, one_line, optional
from coframe.geometry import transform
from coframe.io import npz
from coframe.io.files import as_json, foreign, read_small, regular
from coframe.types import Array, Poses

# [format] Names of columns, in the order in which they are looked for. The first are those of
# ThunderSTORM, the second those of SMAP.
COLUMNS: dict[str, tuple[str, ...]] = {
    "x": ("x [nm]", "xnm"),
    "y": ("y [nm]", "ynm"),
    "z": ("z [nm]", "znm"),
    "lateral": ("uncertainty_xy [nm]", "uncertainty [nm]", "locprecnm"),
    "axial": ("uncertainty_z [nm]", "locprecznm"),
    "group": ("group", "site", "sitenumbers", "particle"),
}
# [format] Columns that the fused set has besides.
RESULTS = ("class", "verdict")
# [format] The unit of files that do not say theirs.
UNNAMED = "units of the file"
EXTRA = "particles"


@dataclass(frozen=True)
class Localisations:
    """Particles of a file.

    Attributes
    ----------
    clouds : tuple of arrays (N_j, D)
        Localisations of each particle [`unit`].
    sigma : tuple of arrays (N_j, D), or None
        Their standard deviations [`unit`].
    names : tuple of str
        The particles' groups in the file.
    kind : str
        "picasso", "csv", "mat" or "npz".
    frames : tuple of arrays (N_j,), or None
        The camera frame of each localisation, where the file has it.
    about : mapping
        What writing the same kind of file needs: the pixel size [nm] and metadata of Picasso, the
        names of the columns of a table.
    others : mapping of str to array (N,)
        Columns of a table that have no part in the fusion, such as photons, of all localisations
        in the order of `clouds`.
    """

    clouds: tuple[Float[Array, "_ D"], ...]
    sigma: tuple[Float[Array, "_ D"], ...] | None
    names: tuple[str, ...]
    kind: str
    frames: tuple[Int[Array, " _"], ...] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Array] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """Of all lengths: files of MATLAB and NPZ do not say theirs, see `in_unit`."""
        return "nm" if self.kind in ("picasso", "csv") else str(self.about.get("unit", UNNAMED))

    def in_unit(self, unit: str) -> "Localisations":
        """The same, of a file that does not say its unit.

        Parameters
        ----------
        unit
            Such as "nm" or "px".

        Raises
        ------
        InputError
            If the file is known to be in nm, or the name is no short word.
        """
        if not (unit.isalpha() and len(unit) <= 8):
            raise InputError(f"unit: expected a word such as nm or px, found {unit[:40]!r}")
        if self.kind in ("picasso", "csv") and unit != "nm":
            raise InputError(
                f"unit: expected none for a file whose lengths are in nm, found {unit!r}"
            )
        return replace(self, about={**self.about, "unit": unit})


def read(path: str | os.PathLike[str]) -> Localisations:
    """Read the particles of a file.

    Parameters
    ----------
    path
        .hdf5 or .h5 of Picasso with its .yaml beside it, .csv, .mat or .npz.

    Returns
    -------
    Localisations

    Raises
    ------
    InputError
        If it is none of these, or has no groups.

    Examples
    --------
    >>> particles = read("origami_picked.hdf5")
    >>> coframe.fuse(particles.clouds, particles.sigma)
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in READERS:
        found = "a folder" if path.is_dir() else f"the suffix {suffix!r}" if suffix else "no suffix"
        raise InputError(
            f"{path}: expected particles in a file .hdf5 (Picasso), .csv (ThunderSTORM or SMAP),"
            f" .mat or .npz, found {found}"
        )
    with regular(path):  # Says in a sentence that it is absent, or a folder.
        pass
    try:
        with foreign():
            return READERS[suffix](path)
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise InputError(f"{path}: cannot be read as particles: {one_line(error)}") from None


def _grouped(
    path: Path,
    points: Float[Array, "N D"],
    sigma: Float[Array, "N D"] | None,
    groups: Array,
    kind: str,
    frames: Array | None,
    about: Mapping[str, Any],
    others: Mapping[str, Array],
) -> Localisations:
    """Rows of a table by group, in ascending order; groups below zero are no particles."""
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(1))[0])
        raise InputError(
            f"{path}: expected finite coordinates, found others in localisation {row + 1}; filter"
            " such rows out"
        )
    groups = np.asarray(groups, float)
    if not np.isfinite(groups).all():
        row = int(np.flatnonzero(~np.isfinite(groups))[0])
        raise InputError(
            f"{path}: expected the number of the particle in column"
            f" {about.get('group', 'group')}, found {groups[row]:g} in localisation {row + 1}; give"
            " -1 to localisations of no particle"
        )
    if frames is not None:
        frames = np.nan_to_num(np.asarray(frames, float), posinf=0, neginf=0).astype(np.int64)
    numbers = np.rint(groups).astype(np.int64)
    kept = np.flatnonzero(numbers >= 0)
    order = kept[np.argsort(numbers[kept], kind="stable")]
    found, first = np.unique(numbers[order], return_index=True)
    rows = np.split(order, first[1:])
    return Localisations(
        clouds=tuple(points[r] for r in rows),
        sigma=None if sigma is None else tuple(sigma[r] for r in rows),
        names=tuple(str(number) for number in found),
        kind=kind,
        frames=None if frames is None else tuple(frames[r] for r in rows),
        about=about,
        others={name: column[order] for name, column in others.items()},
    )


# Picasso


def _read_picasso(path: Path) -> Localisations:
    h5py = optional("h5py", EXTRA, str(path))
    with h5py.File(path, "r") as file:
        if "locs" not in file:
            raise InputError(
                f"{path}: expected localisations of Picasso under /locs, found"
                f" {', '.join(sorted(file)) or 'nothing'}"
            )
        locs = file["locs"][...]
        inside = file["metadata"][()] if "metadata" in file else None
    names = locs.dtype.names or ()
    for name in ("x", "y", "group"):
        if name not in names:
            advice = "; save picked localisations in Picasso: Render" if name == "group" else ""
            raise InputError(f"{path}: expected a column {name}, found {', '.join(names)}{advice}")
    metadata = _picasso_metadata(path, inside)
    pixel = _pixel_size(path, metadata)
    axes = ["x", "y", *(["z"] if "z" in names else [])]
    # In Picasso, x and y are in camera pixels, z is in nm.
    scale = np.array([pixel, pixel, 1.0])[: len(axes)]
    points = np.stack([locs[axis] for axis in axes], 1).astype(float) * scale
    sigma = None
    precisions = [f"lp{axis}" for axis in axes]
    if "lpx" in names and "lpy" in names:
        if "lpz" not in names:
            # Axial precision is not stored by older versions; twice the lateral one is typical.
            precisions = precisions[:2]
        sigma = np.stack([locs[name] for name in precisions], 1).astype(float)
        sigma = sigma * scale[: len(precisions)]
        if len(precisions) < len(axes):
            sigma = np.column_stack([sigma, 2 * sigma.mean(1)])
    frames = locs["frame"] if "frame" in names else None
    about = {"pixel": pixel, "metadata": metadata}
    used = {"x", "y", "z", "lpx", "lpy", "lpz", "frame", "group", "class"}
    others = {name: locs[name] for name in names if name not in used}
    return _grouped(path, points, sigma, locs["group"], "picasso", frames, about, others)


def _picasso_metadata(path: Path, inside: Any) -> list[dict[str, Any]]:
    """Metadata from the YAML file beside a file of Picasso, or from inside it."""
    beside = path.with_suffix(".yaml")
    if beside.exists():
        yaml = optional("yaml", EXTRA, str(beside))
        try:
            found = list(yaml.safe_load_all(read_small(beside)))
        except yaml.YAMLError as error:
            raise InputError(f"{beside}: is no YAML: {one_line(error)}") from None
    elif inside is not None:
        text = inside.decode("utf-8") if isinstance(inside, bytes) else str(inside)
        content = json.loads(text)
        found = content if isinstance(content, list) else [content]
    else:
        found = []
    return [each for each in found if isinstance(each, dict)]


def _pixel_size(path: Path, metadata: Sequence[Mapping[str, Any]]) -> float:
    sizes = [each["Pixelsize"] for each in metadata if "Pixelsize" in each]
    if not sizes:
        raise InputError(
            f"{path}: expected the pixel size in nm as Pixelsize in {path.with_suffix('.yaml')},"
            " found none; add the line 'Pixelsize: 130', say"
        )
    try:
        pixel = float(sizes[-1])
    except (TypeError, ValueError):
        pixel = float("nan")
    if not (np.isfinite(pixel) and pixel > 0):
        raise InputError(f"{path}: expected a Pixelsize above 0 nm, found {sizes[-1]!r}")
    return pixel


# Tables


def _read_csv(path: Path) -> Localisations:
    with open(path, encoding="utf-8-sig", newline="") as file:
        line = file.readline()
        delimiter = max(",;\t", key=line.count)
        header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
        lower = [name.lower() for name in header]
        where = {
            key: lower.index(name)
            for key, names in COLUMNS.items()
            for name in reversed(names)
            if name in lower
        }
        for key in ("x", "y", "group"):
            if key not in where:
                wanted = " or ".join(COLUMNS[key][:2])
                advice = (
                    "add one with the number of each localisation's particle"
                    if key == "group"
                    else "name the columns as ThunderSTORM or SMAP does"
                )
                raise InputError(
                    f"{path}: expected a column {wanted} in the first line, found"
                    f" {', '.join(header)[:200] or 'nothing'}; {advice}"
                )
        if "frame" in lower:
            where["frame"] = lower.index("frame")
        lines = (line for line in file if line.strip())
        first = next(lines, None)
        if first is None:
            raise InputError(f"{path}: expected localisations below the first line, found none")
        kept = _others(header, next(csv.reader([first], delimiter=delimiter)), where)
        keys = list(where)
        options: dict[str, Any] = {"delimiter": delimiter, "quotechar": '"', "ndmin": 2}
        wanted_columns = [where[key] for key in keys]
        try:
            table = np.loadtxt(
                itertools.chain([first], lines), usecols=[*wanted_columns, *kept], **options
            )
        except ValueError:
            # A cell of a column that is not needed may be empty.
            kept = []
            file.seek(0)
            try:
                table = np.loadtxt(file, skiprows=1, usecols=wanted_columns, **options)
            except ValueError:
                file.seek(0)
                rows = csv.reader(file, delimiter=delimiter)
                raise InputError(f"{path}: {_bad_cell(rows, header, wanted_columns)}") from None
    others = {header[c]: table[:, len(keys) + i] for i, c in enumerate(kept)}
    table = table[:, : len(keys)]
    columns = dict(zip(keys, table.T, strict=True))
    axes = [axis for axis in "xyz" if axis in columns]
    points = np.stack([columns[axis] for axis in axes], 1)
    sigma = None
    if "lateral" in columns:
        lateral = columns["lateral"]
        sigma = np.stack([lateral, lateral, columns.get("axial", 2 * lateral)][: len(axes)], 1)
    about = {key: header[where[key]] for key in keys}
    frames = columns.get("frame")
    return _grouped(path, points, sigma, columns["group"], "csv", frames, about, others)


def _others(header: list[str], first: list[str], where: Mapping[str, int]) -> list[int]:
    """Further columns to keep: those with a name of their own, and a number in the first row."""
    return [
        c
        for c, (name, cell) in enumerate(zip(header, first, strict=False))
        if c not in where.values()
        and header.count(name) == 1
        and name
        and name.lower() not in RESULTS
        and not name.lower().startswith("pose_")
        and _is_number(cell)
    ]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _bad_cell(rows: Iterable[list[str]], header: list[str], wanted: list[int]) -> str:
    """What is wrong with the first cell below the header that is no number."""
    for number, row in enumerate(rows, 1):
        for c in wanted if number > 1 and row else ():
            cell = row[c] if c < len(row) else ""
            if not _is_number(cell):
                found = repr(cell[:40]) if cell.strip() else "nothing"
                return f"expected a number in column {header[c]}, line {number}, found {found}"
    return "expected numbers below the first line"


# MATLAB and NPZ


def _read_mat(path: Path) -> Localisations:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, squeeze_me=True, struct_as_record=False)
    except NotImplementedError:
        raise InputError(
            f"{path}: is of MATLAB version 7.3, which cannot be read; save it with '-v7'"
        ) from None
    except MatReadError as error:
        raise InputError(f"{path}: is no MATLAB file: {one_line(error)}") from None
    found = [
        each
        for name, value in content.items()
        if not name.startswith("__")
        for each in np.atleast_1d(np.asarray(value, object)).ravel()
        if hasattr(each, "points")
    ]
    if not found:
        names = [name for name in content if not name.startswith("__")]
        raise InputError(
            f"{path}: expected a cell or struct array whose elements have points and sigma, found"
            f" {', '.join(names) or 'nothing'}"
        )
    clouds = tuple(np.atleast_2d(np.asarray(each.points, float)) for each in found)
    sigma = None
    if all(hasattr(each, "sigma") for each in found):
        sigma = tuple(
            _along_axes(path, j, each.sigma, cloud)
            for j, (each, cloud) in enumerate(zip(found, clouds, strict=True))
        )
    return Localisations(clouds, sigma, tuple(str(j) for j in range(len(clouds))), "mat")


def _read_npz(path: Path) -> Localisations:
    arrays = npz.read(path)
    keys = sorted(key for key in arrays if key.startswith("particle_"))
    if not keys:
        raise InputError(
            f"{path}: expected arrays particle_000, particle_001 and so on, found"
            f" {', '.join(sorted(arrays))[:200] or 'nothing'}"
        )
    clouds = tuple(np.asarray(arrays[key], float) for key in keys)
    names = tuple(key.removeprefix("particle_") for key in keys)
    sigma = None
    if all(f"sigma_{name}" in arrays for name in names):
        sigma = tuple(
            _along_axes(path, j, arrays[f"sigma_{name}"], cloud)
            for j, (name, cloud) in enumerate(zip(names, clouds, strict=True))
        )
    return Localisations(clouds, sigma, names, "npz")


def _along_axes(path: Path, j: int, given: Any, cloud: Array) -> Float[Array, "N D"]:
    """Standard deviations along every axis, from one, one an axis, or lateral and axial."""
    if cloud.ndim != 2:
        raise InputError(f"{path}: particle {j}: expected rows of coordinates, found {cloud.shape}")
    values = np.asarray(given, float).reshape(len(cloud), -1)
    if cloud.shape[1] == 3 and values.shape[1] == 2:
        values = values[:, [0, 0, 1]]
    return np.array(np.broadcast_to(values, cloud.shape))


READERS: dict[str, Callable[[Path], Localisations]] = {
    ".hdf5": _read_picasso,
    ".h5": _read_picasso,
    ".csv": _read_csv,
    ".mat": _read_mat,
    ".npz": _read_npz,
}


# Writing


def fused_files(kind: str) -> list[str]:
    """The names of the files that `write_fused` writes."""
    suffix = {"picasso": "hdf5"}.get(kind, kind)
    return [f"fused.{suffix}", *(["fused.yaml"] if kind == "picasso" else [])]


def write_fused(
    folder: Path,
    particles: Localisations,
    poses: Poses,
    classes: Int[Array, " M"],
    verdicts: Sequence[str],
) -> list[str]:
    """Write particles in the common frame, in the kind of file that they came from.

    Parameters
    ----------
    folder
        That exists.
    particles
        As read.
    poses : array (M, D+1, D+1)
    classes : array (M,)
    verdicts
        One a particle.

    Returns
    -------
    list of str
        Names of the files, see `fused_files`.
    """
    clouds = [transform(T, cloud) for cloud, T in zip(particles.clouds, poses, strict=True)]
    names = fused_files(particles.kind)
    path = folder / names[0]
    if particles.kind == "picasso":
        _write_picasso(path, particles, clouds, poses, classes, verdicts)
    elif particles.kind == "csv":
        _write_csv(path, particles, clouds, poses, classes, verdicts)
    else:
        content: dict[str, Any] = {
            "poses": poses,
            "classes": np.asarray(classes),
            "verdicts": np.array(list(verdicts)),
        }
        if particles.kind == "mat":
            _write_mat(path, particles, clouds, content)
        else:
            for name, cloud in zip(particles.names, clouds, strict=True):
                content[f"particle_{name}"] = cloud
            for name, sigma in zip(particles.names, particles.sigma or (), strict=False):
                content[f"sigma_{name}"] = sigma
            np.savez_compressed(path, allow_pickle=False, **content)
    return names


def _rows(particles: Localisations) -> Int[Array, " N"]:
    return np.repeat(np.arange(len(particles.clouds)), [len(c) for c in particles.clouds])


def _write_picasso(
    path: Path,
    particles: Localisations,
    clouds: list[Array],
    poses: Poses,
    classes: Int[Array, " M"],
    verdicts: Sequence[str],
) -> None:
    h5py = optional("h5py", EXTRA, str(path))
    yaml = optional("yaml", EXTRA, str(path))
    points, rows = np.concatenate(clouds), _rows(particles)
    pixel = float(particles.about["pixel"])
    # Rendered in the middle of a field of view with room about it.
    low = points[:, :2].min(0)
    size = int(np.ceil(np.ptp(points[:, :2], axis=0).max() / pixel)) + 2
    columns: dict[str, Array] = {
        "frame": (
            np.zeros(len(points), np.uint32)
            if particles.frames is None
            else np.concatenate(particles.frames).astype(np.uint32)
        ),
        "x": ((points[:, 0] - low[0]) / pixel + 1).astype(np.float32),
        "y": ((points[:, 1] - low[1]) / pixel + 1).astype(np.float32),
    }
    if points.shape[1] == 3:
        columns["z"] = points[:, 2].astype(np.float32)
    if particles.sigma is not None:
        sigma = np.concatenate(particles.sigma)
        columns["lpx"], columns["lpy"] = (sigma[:, :2] / pixel).T.astype(np.float32)
        if points.shape[1] == 3:
            columns["lpz"] = sigma[:, 2].astype(np.float32)
    groups = np.array([int(name) for name in particles.names], np.int32)
    columns["group"] = groups[rows]
    columns["class"] = np.asarray(classes, np.int32)[rows]
    columns |= particles.others
    locs = np.empty(len(points), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        locs[name] = column
    about = {
        "Generated by": "coframe fuse",
        "Width": size,
        "Height": size,
        "Frames": int(columns["frame"].max()) + 1,
        "Pixelsize": pixel,
        # From the common frame [nm] to the field of view: x in pixels = (x - origin) / size + 1.
        "Origin [nm]": [float(each) for each in low],
        "Particles": [
            {
                "group": int(group),
                "class": int(number),
                "verdict": verdict,
                "pose": [float(each) for each in T.ravel()],
            }
            for group, number, verdict, T in zip(groups, classes, verdicts, poses, strict=True)
        ],
    }
    metadata = [*particles.about["metadata"], about]
    with h5py.File(path, "w") as file:
        file.create_dataset("locs", data=locs)
        file.create_dataset("metadata", data=as_json(metadata))
    with open(path.with_suffix(".yaml"), "w", encoding="utf-8") as file:
        yaml.safe_dump_all(metadata, file, default_flow_style=None, sort_keys=False)


def _write_csv(
    path: Path,
    particles: Localisations,
    clouds: list[Array],
    poses: Poses,
    classes: Int[Array, " M"],
    verdicts: Sequence[str],
) -> None:
    points, rows = np.concatenate(clouds), _rows(particles)
    D = points.shape[1]
    about = particles.about
    columns: dict[str, Array] = {}
    if particles.frames is not None:
        columns[about["frame"]] = np.concatenate(particles.frames)
    columns |= {about[axis]: points[:, i] for i, axis in enumerate("xyz"[:D])}
    if particles.sigma is not None:
        sigma = np.concatenate(particles.sigma)
        columns[about["lateral"]] = sigma[:, 0]
        if D == 3 and "axial" in about:
            columns[about["axial"]] = sigma[:, 2]
    columns |= particles.others
    columns[about["group"]] = np.array([int(name) for name in particles.names])[rows]
    columns["class"] = np.asarray(classes)[rows]
    for i in range(D):
        for k in range(D + 1):
            columns[f"pose_{i}{k}"] = poses[rows, i, k]
    header = [*columns, "verdict"]
    words = np.array(list(verdicts))[rows]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
        writer.writerow(header)
        whole = [name for name in header if name in (about["group"], "class", about.get("frame"))]
        texts = [
            [f"{value:.0f}" if name in whole else f"{value:.9g}" for value in column]
            for name, column in columns.items()
        ]
        writer.writerows(zip(*texts, words, strict=True))


def _write_mat(
    path: Path, particles: Localisations, clouds: list[Array], content: dict[str, Any]
) -> None:
    from scipy.io import savemat

    cells = np.empty((1, len(clouds)), object)
    for j, cloud in enumerate(clouds):
        cells[0, j] = {"points": cloud}
        if particles.sigma is not None:
            cells[0, j]["sigma"] = particles.sigma[j]
    savemat(path, {"particles": cells, **content}, do_compression=True)
