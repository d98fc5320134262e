# SPDX-License-Identifier: MIT
"""Sequences of frames: TUM RGB-D folders, folders of depth images, folders of clouds, arrays.

Frames are read ahead of their use, never all at once.
"""

import os
import queue
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from coframe.errors import LARGEST_NUMBER, InputError, visible
from coframe.io import clouds as cloud_files
from coframe.io import depth, images
from coframe.io.depth import Intrinsics
from coframe.io.files import as_path, read_small
from coframe.io.scan import refuse_masked
from coframe.types import Array, Points

T = TypeVar("T")

# [format] Frames per second of sources that carry no times.
RATE = 30.0
# [size] Frames that wait for their use, at most.
AHEAD = 8
# [format] Endings of depth images.
IMAGES = (".png", ".pgm", ".tif", ".tiff")
# [m] Depths outside are left out: there, the noise of a structured-light camera is larger than what
# it shows. [0.1, unknown]
NEAR, FAR = 0.3, 4.0


@dataclass(frozen=True, eq=False)
class Frame:
    """What the sensor saw at one time, in its own frame."""

    time: float  # [s]
    points: Points
    weights: Float[Array, " N"]  # how much a point counts: 1 for a point at 1 m
    name: str

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A sequence of frames: names and times are known at once, each frame is read when it is asked
    for.

    Parameters
    ----------
    names
        One for each frame.
    times
        Times of the frames [s], rising.
    read
        Returns the frame of an index.
    settings
        What the frames depend on beside their files, by name: the camera and the like.

    Examples
    --------
    >>> source = coframe.open_frames("rgbd_dataset_freiburg1_desk")
    >>> len(source), source[0].points
    """

    names: tuple[str, ...]
    times: Float[Array, " N"]
    read: Callable[[int], Frame]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Frame:
        return self.read(index)

    def prepared(self, prepare: Callable[[int, Frame], T], start: int = 0) -> Generator[T]:
        """What `prepare` makes of the frames from `start` on, in a thread that is at most `AHEAD`
        frames ahead.
        """
        return _ahead(lambda: (prepare(i, self.read(i)) for i in range(start, len(self))), AHEAD)

    def __iter__(self) -> Iterator[Frame]:
        return self.prepared(lambda _, frame: frame)


def open_frames(
    source: str | os.PathLike[str],
    *,
    intrinsics: Intrinsics | str | os.PathLike[str] | None = None,
    step: int = 4,
    near: float = NEAR,
    far: float = FAR,
) -> FrameSource:
    """Open the frames of a folder; what it holds decides how it is read.

    A folder with depth.txt is a sequence of TUM RGB-D, its camera known by its name, else from
    `intrinsics` or intrinsics.json. A folder of images (PNG, PGM, TIFF) holds depth images, the
    camera in `intrinsics` or in intrinsics.json beside them. A folder of clouds (any format that is
    read) is one frame a file, in the order of the names, 30 a second.

    Parameters
    ----------
    source
        The folder.
    intrinsics
        The camera: one of the names in `coframe.io.depth.PRESETS`, a JSON file with fx, fy, cx, cy
        and scale, or an `Intrinsics`.
    step
        Every so many rows and columns of a depth image are used.
    near, far
        Depths [m] outside these are left out of depth images.

    Returns
    -------
    FrameSource
        Frames that are read when they are asked for.

    Raises
    ------
    InputError
        If the folder holds no sequence or the camera is not known.

    Examples
    --------
    >>> path = coframe.track(coframe.open_frames("rgbd_dataset_freiburg1_desk", step=2))
    """
    folder = as_path(source)
    if not isinstance(step, Integral) or isinstance(step, bool) or step < 1:
        raise InputError(f"step: expected a whole number of at least 1, found {step!r}")
    for name, value in (("near", near), ("far", far)):
        if not isinstance(value, Real) or not value >= 0:  # false for NaN
            raise InputError(f"{name}: expected a depth of at least 0, found {value!r}")
    if not folder.is_dir():
        raise InputError(
            f"{folder}: expected a folder with a sequence, found"
            f" {'a file' if folder.is_file() else 'nothing'}"
        )
    if (folder / "depth.txt").is_file():
        times, files = _tum_list(folder / "depth.txt")
        camera = _camera(folder, intrinsics, tum=True)
        return _image_source(files, times, camera, step, (near, far))
    files = sorted(
        (p for p in folder.iterdir() if p.is_file()), key=lambda p: cloud_files.natural(p.name)
    )
    pictures = [path for path in files if path.suffix.lower() in IMAGES]
    if pictures:
        camera = _camera(folder, intrinsics, tum=False)
        return _image_source(pictures, _times(pictures), camera, step, (near, far))
    files = [path for path in files if path.suffix.lower() in cloud_files.FORMATS]
    if not files:
        raise InputError(
            f"{folder}: expected depth.txt, depth images or clouds, found none of them"
        )

    def read(i: int) -> Frame:
        return _frame(cloud_files.read(files[i]), i / RATE, visible(files[i].name))

    return FrameSource(tuple(visible(path.name) for path in files), _times(files), read)


def from_arrays(clouds: Sequence[Any], times: Float[Array, " N"] | None = None) -> FrameSource:
    """Clouds in memory, (N, 3) arrays, as frames; without `times` [s], 30 a second."""
    stamps = np.arange(len(clouds)) / RATE if times is None else times

    def read(i: int) -> Frame:
        refuse_masked(f"frame {i}", clouds[i])
        try:
            points = np.asarray(clouds[i])
            if points.dtype.kind not in "fiub":
                raise TypeError
            points = np.asarray(points, float)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                f"frame {i}: expected points in space, shape (N, 3), found"
                f" {type(clouds[i]).__name__}"
            ) from None
        return _frame(points, float(stamps[i]), f"frame {i}")

    return FrameSource(tuple(f"frame {i}" for i in range(len(clouds))), stamps, read)


def by_depth(points: Float[Array, "N 3"]) -> Float[Array, " N"]:
    """Weights by the noise of a depth camera: a point at 1 m counts one, further ones less."""
    return np.minimum((depth.deviation(np.ones(1)) / depth.deviation(points[:, 2])) ** 2, 1.0)


def strided(frame: Frame, factor: int) -> Frame:
    """Every `factor`-th point, the paper's way (50 in its experiment)."""
    return Frame(frame.time, frame.points[::factor], frame.weights[::factor], frame.name)


def _image_source(
    files: Sequence[Path],
    times: Float[Array, " N"],
    camera: Intrinsics,
    step: int,
    depths: tuple[float, float],
) -> FrameSource:
    near, far = depths

    def read(i: int) -> Frame:
        points = depth.points(_image(files[i]), camera, step=step)
        points = points[(points[:, 2] > near) & (points[:, 2] < far)]
        return Frame(float(times[i]), points, by_depth(points), visible(files[i].name))

    settings = {"intrinsics": asdict(camera), "step": step, "near": near, "far": far}
    return FrameSource(tuple(visible(path.name) for path in files), times, read, settings)


def _image(path: Path) -> Shaped[Array, "H W"]:
    try:
        return images.read_depth(path)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        found = (
            "nothing"
            if not _exists(path)
            else f"something else ({' '.join(str(error).split())[:200]})"
        )
        raise InputError(f"{path}: expected a depth image, found {found}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # a name with a zero byte in it
        return False


def _frame(points: Float[Array, "..."], time: float, name: str) -> Frame:
    """Without points whose coordinates are NaN or out of range."""
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(
            f"{name}: expected points in space, shape (N, 3), found shape {points.shape}"
        )
    points = points[(np.abs(points) <= LARGEST_NUMBER).all(1)]  # false for NaN
    return Frame(time, points, np.ones(len(points)), name)


def _tum_list(path: Path) -> tuple[Float[Array, " N"], list[Path]]:
    try:
        text = read_small(path).decode("utf-8")
        rows = [
            line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")
        ]
        times = np.array([float(time) for time, _ in rows])
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
    return times, [path.parent / name for _, name in rows]


def _times(files: Sequence[Path]) -> Float[Array, " N"]:
    """Times from names that are numbers of seconds (as 1305031453.374112.png), else 30 frames a
    second.
    """
    if all(re.fullmatch(r"\d+\.\d+", path.stem) for path in files):
        times = np.array([float(path.stem) for path in files])
        if (np.diff(times) > 0).all():
            return times
    return np.arange(len(files)) / RATE


def _camera(
    folder: Path, intrinsics: Intrinsics | str | os.PathLike[str] | None, *, tum: bool
) -> Intrinsics:
    if isinstance(intrinsics, Intrinsics):
        return intrinsics
    if intrinsics is not None:
        if Path(intrinsics).suffix == ".json":
            return images.read_intrinsics(intrinsics)
        if str(intrinsics) not in depth.PRESETS:
            raise InputError(
                f"intrinsics: expected a .json file or one of {', '.join(depth.PRESETS)}, found"
                f" {str(intrinsics)!r}"
            )
        return depth.PRESETS[str(intrinsics)]
    beside = images.intrinsics_of_folder(folder)
    if beside is not None:
        return beside
    if not tum:
        raise InputError(
            f"{folder}: expected the camera in intrinsics.json (fx, fy, cx, cy, scale), found no"
            " such file"
        )
    named = [camera for name, camera in depth.PRESETS.items() if name in folder.resolve().name]
    return named[0] if named else depth.PRESETS["kinect"]


def _ahead(source: Callable[[], Iterator[T]], limit: int) -> Generator[T]:
    """The items of an iterator that runs in a thread, at most `limit` ahead; its exceptions are
    raised here, in their order.
    """
    waiting: queue.Queue[T | BaseException | None] = queue.Queue(limit)
    stop = threading.Event()

    def put(item: T | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in source():
                if not put(item):
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="coframe-frames", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
