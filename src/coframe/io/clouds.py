# SPDX-License-Identifier: MIT
"""Reading and writing clouds in any format.

What a file is, its first bytes say; the suffix decides where they do not.
"""

import glob
import os
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from coframe.errors import InputError, one_line, visible
from coframe.io import e57, e57_poses, images, kitti, las, mesh, npy, pcd, ply, ptx, text, vtk
from coframe.io.depth import Intrinsics
from coframe.io.files import as_path, regular
from coframe.io.manifest import own_files
from coframe.io.scan import Scan, in_space
from coframe.types import Points, Pose

TEXT = (".txt", ".csv", ".asc")
ARRAYS = (".npy", ".npz", ".bin")
TABLES = (".pts", ".ptx", ".xyz", ".xyzn", ".xyzrgb")
SCANS = (".ply", ".pcd", ".las", ".laz", ".e57", ".vtk", *TABLES, *ARRAYS)
MESHES = (".obj", ".stl", ".off")
IMAGES = (".png",)
FORMATS = (*SCANS, *MESHES, *TEXT, *IMAGES)
KINDS = (
    {suffix: suffix[1:] for suffix in FORMATS}
    | dict.fromkeys((*TEXT, ".xyz", ".xyzn", ".xyzrgb"), "text")
    | {".laz": "las"}
)
WRITTEN_TEXT = (".xyz", ".txt", ".asc", ".csv")
WRITTEN = (".ply", ".pcd", ".las", ".laz", ".e57", ".ptx", *WRITTEN_TEXT, ".npy", ".bin")
MARKS = {
    b"LASF": "las",
    b"ASTM-E57": "e57",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"\x89PNG": "png",
    b"# vtk DataFile": "vtk",
}
# [size] Bytes of a point where a file's header does not say quickly how many there are.
BYTES_PER_POINT = 30
# [format] Kinds whose files may hold the poses of their scans.
HOLD_POSES = ("e57", "ptx", "pcd")
BAD_FILE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    SyntaxError,
)
BAD_ARCHIVE = (struct.error, zipfile.BadZipFile, zlib.error)


def read(path: str | os.PathLike[str]) -> Points:
    """Read the coordinates of a cloud; of a file with several scans, those of the first.

    Parameters
    ----------
    path : path
        A file in any of `FORMATS`.

    Returns
    -------
    array (N, D)
        In the unit of the file.

    Raises
    ------
    InputError
        If the file cannot be read.

    Examples
    --------
    >>> points = coframe.io.clouds.read("scan.ply")
    """
    return read_scan(path).points


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """Read a cloud with all that its file says of the points; of several scans, the first.

    Parameters
    ----------
    path : path
        A file in any of `FORMATS`.

    Returns
    -------
    Scan

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    return read_all(path)[0]


def read_all(
    path: str | os.PathLike[str],
    *,
    samples: int | None = None,
    intrinsics: Intrinsics | None = None,
    seed: int = 0,
) -> list[Scan]:
    """Read every scan of a file. Most formats hold one; E57, PTX, PTS and NPZ may hold many.

    Parameters
    ----------
    path : path
        A file in any of `FORMATS`.
    samples : int, optional
        Points to draw from the surface of a mesh; its vertices by default.
    intrinsics : Intrinsics, optional
        Of a depth image's camera; from the intrinsics.json beside it by default.
    seed : int, optional
        Of the drawing.

    Returns
    -------
    list of Scan

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    path, kind = _checked(path)
    with _reading(path, kind):
        match kind:
            case "e57":
                return e57.read_scans(path)
            case "ptx":
                return ptx.read_scans(path)
            case "npz":
                return npy.read_archive(path)
            case "pts":
                return text.read_pts(path)
            case "png":
                return [images.read_scan(path, intrinsics)]
            case "obj" | "stl" | "off":
                return [mesh.read_scan(path, kind=kind, samples=samples, seed=seed)]
            case _:
                return [READERS[kind](path)]


def blocks(path: str | os.PathLike[str], rows: int = ply.ROWS) -> Iterator[Scan]:
    """Read a file block by block, for clouds larger than memory.

    PLY, binary PCD, text, PTX, NPY, LAS, LAZ, E57 and KITTI files are read in blocks; others at
    once, and then cut.

    Parameters
    ----------
    path : path
        A file in any of `FORMATS`.
    rows : int, optional
        Points of a block, at most.

    Yields
    ------
    Scan
    """
    path, kind = _checked(path)
    with _reading(path, kind):
        if kind in STREAMS:
            yield from STREAMS[kind](path, rows)
            return
        for scan in read_all(path):
            yield from (scan[begin : begin + rows] for begin in range(0, len(scan), rows))


def rough_count(path: Path) -> float:
    """About how many points a file has: as its header says, else by its size.

    Parameters
    ----------
    path : path

    Returns
    -------
    float
    """
    with suppress(InputError, struct.error, IndexError, OSError, ValueError):
        count = COUNTS.get(kind_of(path) or "")
        if count is not None:
            return float(count(path))
    return path.stat().st_size / BYTES_PER_POINT


def write(path: str | os.PathLike[str], scan: Any) -> None:
    """Write a scan, in the format of the suffix.

    Parameters
    ----------
    path : path
        With a suffix of `WRITTEN`.
    scan : Scan or array (N, D)
        An array has points alone.

    Raises
    ------
    InputError
        If the suffix is another, or there are no points.

    Examples
    --------
    >>> coframe.io.clouds.write("scan.las", coframe.io.clouds.read_scan("scan.ply"))
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITTEN:
        raise InputError(
            f"{path}: expected a suffix of {', '.join(WRITTEN)} to write to, found"
            f" {suffix or 'none'}"
        )
    if not isinstance(scan, Scan):
        scan = Scan(_as_points(scan))
    if suffix == ".e57":
        e57.write_scans(path, [scan])
    elif suffix == ".ptx":
        ptx.write_scans(path, [scan])
    else:
        WRITERS[KINDS[suffix]](Path(path), scan)


def _as_points(value: Any) -> Points:
    """The points of an array, for a scan that has nothing else."""
    try:
        points = np.array(value, float)
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise InputError(
            f"scan: expected a Scan or an array of shape (N, 3), found {type(value).__name__}"
        )
    return points


def move(
    source: str | os.PathLike[str], target: str | os.PathLike[str], poses: Sequence[Pose]
) -> None:
    """Copy a cloud file in its own format, moved into the common frame.

    The scans of an E57 or PTX file keep their coordinates and get the poses. A format that is not
    written becomes PLY.

    Parameters
    ----------
    source, target : path
        The target has the suffix that `moved_suffix` returns.
    poses : sequence of arrays (D+1, D+1)
        One for each scan of the file.
    """
    file, kind = _checked(source)
    pose = in_space(poses[0])
    with _reading(file, kind):
        if kind == "e57":
            return e57_poses.move(file, target, [in_space(T) for T in poses])
        if kind == "ptx":
            return ptx.move(file, target, [in_space(T) for T in poses])
        if kind == "las":
            return las.move(file, target, pose)
        if kind in ("obj", "stl", "off"):
            return mesh.move(file, target, pose)
        if kind == "ply" and _has_more_than_vertices(file):
            return ply.move(file, target, pose)
        scan = read_scan(file)
    return write(target, replace(scan.moved(poses[0]), pose=None))


def moved_suffix(source: str | os.PathLike[str]) -> str:
    """The suffix of a moved copy: the file's own, or .ply for formats that are not written."""
    suffix = Path(source).suffix.lower()
    return suffix if suffix in (*WRITTEN, *MESHES) else ".ply"


def left_out_message(folder: Path, names: Sequence[str]) -> str:
    """What is said of coframe's own files in a folder of clouds."""
    return f"{folder}: left out {', '.join(names)}, written by coframe"


def _warn(folder: Path, names: Sequence[str]) -> None:
    warnings.warn(left_out_message(folder, names), stacklevel=3)


def expand(
    arguments: Iterable[str | os.PathLike[str]],
    *,
    on_left_out: Callable[[Path, list[str]], object] = _warn,
) -> list[Path]:
    """List the files that files, folders and patterns name, without repeats.

    They are in the order of the arguments; of a folder or a pattern, scan2 comes before scan10. Of
    a folder, the scans; if there are none, the meshes; then text files; then depth images. So
    notes and poses beside the scans do no harm. Of folders and patterns, results of coframe are
    left out.

    Parameters
    ----------
    arguments : iterable of path
    on_left_out : callable, optional
        Called with a folder and the names of the clouds in it that coframe wrote. Default: a
        warning.

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        If a folder has no clouds, or a pattern matches no file.

    Examples
    --------
    >>> coframe.io.clouds.expand(["scans/*.ply"])
    """
    found: dict[Path, None] = {}
    for argument in arguments:
        path = as_path(argument)
        _refuse_bad_name(path)
        if path.is_dir():
            files = _clouds_of(path, on_left_out)
            if not files:
                raise InputError(
                    f"{path}: expected a folder with clouds, found none of {', '.join(FORMATS)}"
                    " in it; name the files themselves"
                )
        elif not path.exists() and any(letter in str(argument) for letter in "*?["):
            files = [
                Path(match)
                for match in glob.glob(os.fspath(argument), recursive=True)
                if Path(match).is_file()
            ]
            files = _without_own(files, on_left_out)
            if not files:
                raise InputError(
                    f"{argument}: expected a pattern that matches files, found none; check the path"
                )
        else:
            files = [path]
        found |= dict.fromkeys(sorted(files, key=by_name))
    return list(found)


def others_in(folder: Path, chosen: Sequence[Path]) -> list[str]:
    """Names of files in a folder that hold clouds by their suffix and were not chosen.

    Text files may hold anything, and results of coframe are named elsewhere.
    """
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in (*SCANS, *MESHES, *IMAGES)
        and path not in chosen
        and path.is_file()
        and not path.name.startswith(".")
        and path.name not in own_files(folder)
    )


def by_name(path: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """A sort key for files: by name, then by folder, scan2 before scan10."""
    return natural(path.name), natural(str(path))


def open_all(
    arguments: Iterable[str | os.PathLike[str]],
    *,
    samples: int | None = None,
    intrinsics: Intrinsics | None = None,
    on_file: Callable[[int, int, str], object] = lambda number, total, name: None,
) -> tuple[list[Scan], list[Path]]:
    """Read all scans of the files that the arguments name, without the rays that have no return.

    Scans are called as their files are, without suffix; where names would repeat, with as much of
    the path, and the scan's own name, as it takes.

    Parameters
    ----------
    arguments : iterable of path
        Files, folders and patterns.
    samples, intrinsics
        As in `read_all`.
    on_file : callable, optional
        Called before each file with its number from 1, the number of files, its name.

    Returns
    -------
    scans : list of Scan
    files : list of Path
        The file of each scan.

    Raises
    ------
    InputError
        If a file cannot be read or has no points.
    """
    paths = expand(arguments)
    found = []
    for number, path in enumerate(paths, 1):
        on_file(number, len(paths), path.name)
        found.append(read_all(path, samples=samples, intrinsics=intrinsics))
    names, files = titles(paths, [[scan.name for scan in scans] for scans in found])
    measured = [scan.measured() for scans in found for scan in scans]
    for scan, rest, file in zip(
        [scan for scans in found for scan in scans], measured, files, strict=True
    ):
        if len(rest) == 0 < len(scan):
            raise InputError(
                f"{file}: expected points, found {len(scan)} rows of NaN and nothing else; leave"
                " the file out"
            )
    return [replace(scan, name=name) for scan, name in zip(measured, names, strict=True)], files


def titles(paths: Sequence[Path], names: Sequence[Sequence[str]]) -> tuple[list[str], list[Path]]:
    """The names of the scans of all files, from the names in the files, and the file of each.

    What is no text in a name becomes an escape.
    """
    files = [path for path, several in zip(paths, names, strict=True) for _ in several]
    own = [
        visible(path.stem if len(several) == 1 else f"{path.stem}/{name}")
        for path, several in zip(paths, names, strict=True)
        for name in several
    ]
    return distinct(own, files), files


def names_of(paths: Sequence[Path]) -> list[str]:
    """What to call the scans of each file; files that may hold several are read for it."""
    return named_files(paths)[0]


def named_files(paths: Sequence[Path]) -> tuple[list[str], list[Path]]:
    """What to call the scans of each file, and the file of each scan."""
    return titles(paths, [_own_names(path) for path in paths])


def _own_names(path: Path) -> list[str]:
    if not path.is_file() or kind_of(path) not in ("e57", "ptx", "npz", "pts"):
        return [path.stem]
    path, kind = _checked(path)
    with _reading(path, kind):
        if kind == "e57":
            return [name for name, _ in e57.named_poses(path)]
        if kind == "ptx":
            return ptx.names(path)
    return [scan.name for scan in read_all(path)]


def poses_inside(paths: Sequence[Path]) -> dict[str, Pose]:
    """The poses that files hold of their own scans, by the names that scans get here.

    E57, PTX and PCD (its viewpoint) hold poses; scans of other formats, and scans whose pose is
    that of a file without any, the identity, are left out. Points are not read.

    Parameters
    ----------
    paths : sequence of Path

    Returns
    -------
    dict of str to array (4, 4)

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    names, poses = _named_poses(paths)
    return {name: pose for name, pose in zip(names, poses, strict=True) if pose is not None}


def poses_of_scans(paths: Sequence[Path]) -> list[Pose | None]:
    """As `poses_inside`, of each scan in the order in which the files hold them."""
    if not any(kind_of(path) in HOLD_POSES for path in paths):
        return [None] * len(paths)
    return _named_poses(paths)[1]


def _named_poses(paths: Sequence[Path]) -> tuple[list[str], list[Pose | None]]:
    found = [_own_poses(path) for path in paths]
    names, _ = titles(paths, [[name for name, _ in own] for own in found])
    poses = [pose for own in found for _, pose in own]
    unlike = [pose is not None and not np.array_equal(pose, np.eye(4)) for pose in poses]
    return names, [pose if other else None for pose, other in zip(poses, unlike, strict=True)]


def count_poses_inside(paths: Sequence[Path]) -> int:
    """How many scans have a pose of their own in their file; files that cannot be read count 0."""
    found = []
    for path in paths:
        with suppress(InputError, OSError):
            if kind_of(path) in HOLD_POSES:
                found += [pose for _, pose in _own_poses(path)]
    return sum(pose is not None and not np.array_equal(pose, np.eye(4)) for pose in found)


def _own_poses(path: Path) -> list[tuple[str, Pose | None]]:
    """The scans of a file that have points, each with its pose."""
    path, kind = _checked(path)
    if kind not in HOLD_POSES:
        return [(name, None) for name in _own_names(path)]
    with _reading(path, kind):
        if kind == "pcd":
            return [(path.stem, pcd.read_pose(path))]
        if kind == "e57":
            return list(e57.named_poses(path))
        poses = ptx.read_poses(path)
    if len(poses) == 1:
        return list(poses.items())
    return [(name, poses[name]) for name in _own_names(path)]


def distinct(names: Sequence[str], files: Sequence[PurePath]) -> list[str]:
    """Names made different: with folders in front, then with the suffix, then with a number."""
    longest = max((len(path.parts) for path in files), default=0)
    tried = list(names)
    for depth in range(1, longest + 1):
        if len(set(tried)) == len(tried):
            return tried
        twice = {name for name in tried if tried.count(name) > 1}
        tried = [
            "/".join((*map(visible, path.parts[:-1][-depth:]), name))
            if current in twice
            else current
            for current, name, path in zip(tried, names, files, strict=True)
        ]
    twice = {name for name in tried if tried.count(name) > 1}
    tried = [
        name + visible(path.suffix) if name in twice else name
        for name, path in zip(tried, files, strict=True)
    ]
    return [
        name if tried.count(name) == 1 else f"{name} {tried[:j].count(name) + 1}"
        for j, name in enumerate(tried)
    ]


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts scan2 before scan10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part.lower())
        for part in re.split(r"(\d+)", name)
        if part
    ]


def kind_of(path: Path) -> str | None:
    """The format of a file by the mark at its beginning, else by its suffix; None if unknown."""
    with regular(path) as file:
        start = file.read(512)
    for mark, kind in MARKS.items():
        if start.startswith(mark):
            return kind
    if re.match(rb"ply[\r\n]", start):
        return "ply"
    if re.match(rb"(#[^\n]*\n|\s)*(# \.PCD|VERSION\s+\.?\d|FIELDS\s)", start) or start.startswith(
        b"# .PCD"
    ):
        return "pcd"
    if re.match(rb"(ST)?C?N?OFF\s", start):
        return "off"
    return KINDS.get(path.suffix.lower())


def _checked(path: str | os.PathLike[str]) -> tuple[Path, str]:
    path = as_path(path)
    try:
        kind = kind_of(path)
        empty = path.stat().st_size == 0
    except FileNotFoundError:
        raise InputError(f"{path}: expected a file, found nothing; check the path") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path}: expected a file that can be read, found one that cannot ({reason})"
        ) from None
    if empty:
        raise InputError(f"{path}: expected a cloud, found an empty file; leave it out")
    if kind is None:
        raise InputError(
            f"{path}: expected one of {', '.join(FORMATS)}, found {path.suffix or 'no suffix'};"
            " convert it, or give it the suffix of its format"
        )
    return path, kind


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever is wrong with a file becomes one sentence that names it."""
    try:
        yield
    except InputError as error:
        if visible(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from None
    except (*BAD_FILE, *BAD_ARCHIVE) as error:
        raise InputError(
            f"{path}: expected a cloud in {NAMES[kind]} format, found something else"
            f" ({one_line(error)})"
        ) from error


def _refuse_bad_name(path: Path) -> None:
    """Refuse a path that no file can have, or behind which nothing may be seen."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{str(path)[:300]}: expected the path of a file or a folder, found one that cannot be"
            f" used ({reason})"
        ) from None


def _without_own(
    files: Sequence[Path], on_left_out: Callable[[Path, list[str]], object]
) -> list[Path]:
    """Without what coframe wrote."""
    own = {folder: own_files(folder) for folder in {path.parent for path in files}}
    for folder, names in own.items():
        if left_out := sorted({path.name for path in files if path.parent == folder} & names):
            on_left_out(folder, left_out)
    return [path for path in files if path.name not in own[path.parent]]


def _clouds_of(folder: Path, on_left_out: Callable[[Path, list[str]], object]) -> list[Path]:
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    files = [path for path in files if path.suffix.lower() in FORMATS]
    files = _without_own(files, on_left_out)
    for suffixes in (SCANS, MESHES, TEXT, IMAGES):
        if found := [path for path in files if path.suffix.lower() in suffixes]:
            return found
    return []


def _has_more_than_vertices(path: Path) -> bool:
    with path.open("rb") as file:
        return any(
            element.count for element in ply.Header.read(file).elements if element.name != "vertex"
        )


READERS: dict[str, Callable[[Path], Scan]] = {
    "ply": ply.read_scan,
    "pcd": pcd.read_scan,
    "text": text.read_scan,
    "las": las.read_scan,
    "npy": npy.read_scan,
    "bin": kitti.read_scan,
    "vtk": vtk.read_scan,
}
STREAMS: dict[str, Callable[[Path, int], Iterator[Scan]]] = {
    "ply": ply.blocks,
    "pcd": pcd.blocks,
    "text": text.blocks,
    "las": las.blocks,
    "e57": e57.blocks,
    "ptx": ptx.blocks,
    "npy": npy.blocks,
    "bin": kitti.blocks,
}
COUNTS: dict[str, Callable[[Path], int]] = {
    "ply": ply.count,
    "las": las.count,
    "e57": e57_poses.count,
}
WRITERS: dict[str, Callable[[Path, Scan], None]] = {
    "ply": ply.write_scan,
    "pcd": pcd.write_scan,
    "text": text.write_scan,
    "las": las.write_scan,
    "npy": npy.write_scan,
    "bin": kitti.write_scan,
}
NAMES = {kind: kind.upper() for kind in KINDS.values()} | {
    "text": "text",
    "bin": "KITTI",
    "las": "LAS",
    "png": "depth image",
}
