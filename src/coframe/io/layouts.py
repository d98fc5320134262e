# SPDX-License-Identifier: MIT
"""Where data sets keep the frames of a sequence, and the times of these frames."""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from coframe.errors import LARGEST_NUMBER, InputError, one_line
from coframe.io import clouds, images
from coframe.io.files import read_small
from coframe.io.manifest import own_files
from coframe.types import Array

Kind = Literal["depth", "clouds"]

# [format] Endings of depth images.
IMAGES = (".png", ".pgm", ".tif", ".tiff")
# [format] Lists of frames: of TUM RGB-D, and of ICL-NUIM and others that give colour and depth.
LISTS = ("depth.txt", "associations.txt", "association.txt", "associate.txt", "associated.txt")
# [format] Files of times, one a line.
TIMES = ("times.txt", "timestamps.txt", "timestamps.csv")
# [format] Text files that are no clouds, by their stems.
ABOUT = (
    *("times", "timestamps", "calib", "calibration", "groundtruth", "poses", "pose"),
    *("trajectory", "traj", "rgb", "accelerometer", "imu", "readme", "intrinsics", "intrinsic"),
    *("camera", "camera-intrinsics", "camera_intrinsics", "gt", "k"),
)
# [format] Names that are times: a pattern, and what its groups are counted in [s].
STAMPS: tuple[tuple[str, tuple[float, ...]], ...] = (
    (r"\d+\.\d+", ()),  # seconds, as TUM has them
    (r"\d+-(\d{9,})", (1e-6,)),  # Redwood: number and microseconds
    (r"\D*(\d{10})[._](\d{9})", (1.0, 1e-9)),  # seconds and nanoseconds, as ROS has them
    (r"\D*(\d{19})", (1e-9,)),
    (r"\D*(\d{16})", (1e-6,)),
    (r"\D*(\d{13})", (1e-3,)),
)
# [size] Folders below the given one in which frames are looked for.
DEPTH_OF_SEARCH = 2
# [limit] Names of folders in a message.
LISTED = 4


@dataclass(frozen=True, eq=False)
class Layout:
    """The files of a sequence."""

    kind: Kind
    files: tuple[Path, ...]
    times: Float[Array, " N"] | None  # [s]; None where the data set has none
    folders: tuple[Path, ...]  # where the camera may be described, nearest first
    is_tum: bool = False


def find(folder: Path) -> Layout:
    """The sequence in a folder, or in one below it.

    Raises
    ------
    InputError
        If there is none, or more than one.
    """
    for name in LISTS:
        if (folder / name).is_file():
            times, files = _read_list(folder / name)
            around = _around(files[0].parent, folder)
            return Layout("depth", tuple(files), times, around, name == LISTS[0])
    own = _frames_in(folder)
    if own is not None:
        return _layout(folder, folder, *own)
    found = [
        (below, frames) for below in _below(folder) if (frames := _frames_in(below, sniff=True))
    ]
    # Several kinds of frames: depth images first, by their names.
    named = [each for each in found if re.search("depth", each[0].name, re.IGNORECASE)]
    found = named if len(named) == 1 else found
    if len(found) > 1:
        shown = ", ".join(str(below) for below, _ in found[:LISTED])
        more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise InputError(
            f"{folder}: expected one sequence, found {len(found)} ({shown}{more}); give one of them"
        )
    if not found:
        raise InputError(
            f"{folder}: expected depth.txt, depth images or clouds, found none of them, nor in the"
            " folders below; give the folder of the frames"
        )
    below, (kind, files) = found[0]
    return _layout(folder, below, kind, files)


def _layout(given: Path, folder: Path, kind: Kind, files: Sequence[Path]) -> Layout:
    return Layout(kind, tuple(files), _times(files, folder), _around(folder, given))


def _around(folder: Path, given: Path) -> tuple[Path, ...]:
    """The folder of the frames, the given one, and the ones above both."""
    near = (folder, given, folder.absolute().parent, given.absolute().parent)
    return tuple(dict.fromkeys(near))


def _below(folder: Path, depth: int = DEPTH_OF_SEARCH) -> Iterator[Path]:
    try:
        inner = sorted(
            (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")),
            key=lambda p: clouds.natural(p.name),
        )
    except OSError:
        return
    for each in inner:
        yield each
        if depth > 1:
            yield from _below(each, depth - 1)


def _frames_in(folder: Path, *, sniff: bool = False) -> tuple[Kind, list[Path]] | None:
    """The frames that lie in a folder itself; with `sniff`, images only if the first is of
    depths.
    """
    try:
        written = own_files(folder)
        files = [p for p in folder.iterdir() if p.is_file() and p.name not in written]
    except OSError:
        return None
    files = [path for path in files if not path.name.startswith(".")]
    files.sort(key=lambda path: clouds.natural(path.name))
    pictures = [path for path in files if path.suffix.lower() in IMAGES]
    # Beside colour, as in 7-Scenes (frame-000000.depth.png) and Replica (depth000000.png).
    marked = [path for path in pictures if re.search("depth", path.name, re.IGNORECASE)]
    pictures = marked or pictures
    if pictures and (not sniff or _is_depth(pictures)):
        return "depth", pictures
    for suffixes in (clouds.SCANS, clouds.MESHES, clouds.TEXT):
        scans = [path for path in files if path.suffix.lower() in suffixes]
        scans = [path for path in scans if path.stem.lower() not in ABOUT]
        if scans:
            return "clouds", scans
    return None


def _is_depth(pictures: Sequence[Path]) -> bool:
    """Whether the first image that can be read holds more than 8 bits in one channel."""
    for path in pictures:
        try:
            return images.read_depth(path).dtype.itemsize > 1
        except InputError:
            raise
        except (OSError, ValueError) as error:
            if "channels" in str(error):
                return False
    return False


def _read_list(path: Path) -> tuple[Float[Array, " N"], list[Path]]:
    """Times and files of a list: `time file` a line, or two such pairs, of which one is of depth
    images.
    """
    try:
        text = read_small(path).decode("utf-8")
        rows = [
            line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")
        ]
        widths = {len(row) for row in rows}
        if rows and widths not in ({2}, {4}):
            raise ValueError
        second = widths == {4} and all("depth" in row[3] for row in rows)
        pairs = [row[2:] if second else row[:2] for row in rows]
        times = np.array([float(time) for time, _ in pairs])
        if not (np.abs(times) <= LARGEST_NUMBER).all():
            raise ValueError
    except InputError:
        raise
    except ValueError:
        raise InputError(
            f"{path}: expected a time and a file name a line, found something else"
        ) from None
    if not len(rows) or not (np.diff(times) > 0).all():
        raise InputError(
            f"{path}: expected rising times, found {'others' if len(rows) else 'no line'}"
        )
    return times, [path.parent / name for _, name in pairs]


def _times(files: Sequence[Path], folder: Path) -> Float[Array, " N"] | None:
    """Times from a file of them beside the frames or above, else from names that are times."""
    for place in (folder, folder.absolute().parent):
        for name in TIMES:
            if (place / name).is_file():
                return _of_frames(_read_times(place / name), files, place / name)
    return _times_of_names([path.name.removesuffix(path.suffix) for path in files])


def _of_frames(times: Float[Array, " N"], files: Sequence[Path], path: Path) -> Float[Array, " n"]:
    """The times of these files: one for each; or files that are numbered, some of them missing."""
    chosen = times
    if len(times) != len(files):
        stems = [path.stem for path in files]
        numbers = [int(stem) for stem in stems if stem.isdecimal()]
        if len(numbers) != len(files) or max(numbers) >= len(times):
            raise InputError(
                f"{path}: expected {len(files)} times, one for each frame, found {len(times)};"
                " correct the file, or move it away to go on without times"
            )
        chosen = times[numbers]
    if not (np.diff(chosen) > 0).all():
        raise InputError(
            f"{path}: expected rising times, found others; correct the file, or move it away to go"
            " on without times"
        )
    return chosen


def _read_times(path: Path) -> Float[Array, " N"]:
    """One a line, the first number of it: seconds, nanoseconds or microseconds since 1970, or a
    date as KITTI writes it.
    """
    try:
        lines = [line.strip() for line in read_small(path).decode("utf-8-sig").splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        dates = [re.fullmatch(r"(\d{4}-\d\d-\d\d[ T][\d:]{8})(\.\d+)?", line) for line in lines]
        if lines and all(dates):
            return np.array(
                [
                    datetime.datetime.fromisoformat(date[1] + "+00:00").timestamp()
                    + float(date[2] or 0)
                    for date in dates
                    if date is not None
                ]
            )
        first = [re.split(r"[\s,;]+", line)[0] for line in lines]
        if first and not re.match(r"[-+.\d]", first[0]):
            first = first[1:]  # the heading of a table
        times = np.array([float(each) for each in first])
        if not times.size or not (np.abs(times) <= LARGEST_NUMBER).all():
            raise ValueError("no numbers")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: expected a time a line, found something else ({one_line(error)})"
        ) from None
    for unit in (1e-9, 1e-6, 1e-3):
        # Since 1970, in seconds, times of this century have ten digits.
        if 1e9 <= times[0] * unit < 1e10:
            return times * unit
    return times


def _times_of_names(stems: Sequence[str]) -> Float[Array, " N"] | None:
    for pattern, units in STAMPS:
        matches = [re.fullmatch(pattern, stem) for stem in stems]
        if not stems or not all(matches):
            continue
        if units:
            times = np.array(
                [
                    sum(unit * int(part) for unit, part in zip(units, match.groups(), strict=True))
                    for match in matches
                    if match is not None
                ]
            )
        else:
            times = np.array([float(stem) for stem in stems])
        if (np.diff(times) > 0).all():
            return times
    return None
