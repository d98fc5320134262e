# SPDX-License-Identifier: MIT
"""Where frames come from:

TUM RGB-D folders, folders of depth images, folders of clouds. Read ahead, never all at once.
"""

import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from coframe.errors import LARGEST_NUMBER, InputError
from coframe.io import clouds as cloud_files
from coframe.io import depth
from coframe.io.depth import Intrinsics
from coframe.io.images import read_depth
from coframe.io.images import read_intrinsics as read_intrinsics  # for those who open sequences
from coframe.types import Array

T = TypeVar("T")

RATE = 30.0  # frames per second of sources that carry no times
NEAR, FAR = 0.3, 4.0  # m: outside, a depth camera's noise is larger than what it shows
AHEAD = 8  # frames that wait, at most
IMAGES = (".png", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True)
class Frame:
    """What the sensor saw at one time, in its own frame; `weights` say how much a point counts, one
    for a point at 1 m.
    """

    time: float  # s
    points: Float[Array, "N D"]
    weights: Float[Array, " N"]
    name: str

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True)
class FrameSource:
    """A source of frames: names and times are known at once, each frame is read when it is asked
    for.
    """

    names: tuple[str, ...]
    times: Float[Array, " N"]
    read: Callable[[int], Frame]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Frame:
        return self.read(index)

    def prepared(self, prepare: Callable[[int, Frame], T], start: int = 0) -> Iterator[T]:
        """What `prepare` makes of the frames from `start` on, in a thread that is at most `AHEAD`
        frames ahead.
        """
        return _ahead(lambda: (prepare(i, self.read(i)) for i in range(start, len(self))), AHEAD)

    def __iter__(self) -> Iterator[Frame]:
        return self.prepared(lambda _, frame: frame)


def open_frames(
    source: str | os.PathLike[str], *, intrinsics: Intrinsics | str | None = None, step: int = 4
) -> FrameSource:
    """The frames of a folder; what it holds decides how it is read.

    A folder with depth.txt: a sequence of TUM RGB-D, its camera known by its name, else as
    `intrinsics` or intrinsics.json say. A folder of images (PNG, PGM, TIFF): depth images, the
    camera in intrinsics.json beside them or in `intrinsics`. A folder of clouds (any format that is
    read): one frame a file, in the order of the names, 30 a second. `intrinsics` may be one of the
    names in `coframe.depth.PRESETS`. `step`: every so many rows and columns of an image.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: expected a folder with a sequence, found"
            f" {'a file' if folder.is_file() else 'nothing'}"
        )
    if (folder / "depth.txt").is_file():
        times, files = _tum_list(folder / "depth.txt")
        return _images(files, times, _camera(folder, intrinsics, preset=True), step)
    files = sorted(
        (p for p in folder.iterdir() if p.is_file()), key=lambda p: cloud_files.natural(p.name)
    )
    images = [path for path in files if path.suffix.lower() in IMAGES]
    if images:
        return _images(images, _times(images), _camera(folder, intrinsics, preset=False), step)
    files = [path for path in files if path.suffix.lower() in cloud_files.FORMATS]
    if not files:
        raise InputError(
            f"{folder}: expected depth.txt, depth images or clouds, found none of them"
        )
    return FrameSource(
        tuple(path.name for path in files), _times(files), lambda i: _cloud(files[i], i / RATE)
    )


def from_arrays(
    clouds: Sequence[Float[Array, "_ D"]], times: Float[Array, " N"] | None = None
) -> FrameSource:
    """Clouds in memory as frames; without `times`, 30 a second."""
    stamps = np.arange(len(clouds)) / RATE if times is None else times
    return FrameSource(
        tuple(f"frame {i}" for i in range(len(clouds))),
        stamps,
        lambda i: _frame(np.asarray(clouds[i], float), float(stamps[i]), f"frame {i}"),
    )


def by_depth(points: Float[Array, "N 3"]) -> Float[Array, " N"]:
    """Weights by the noise of a depth camera: a point at 1 m counts one, further ones less."""
    return np.minimum((depth.deviation(np.ones(1)) / depth.deviation(points[:, 2])) ** 2, 1.0)


def strided(frame: Frame, factor: int) -> Frame:
    """Every `factor`-th point, the paper's way (50 in its experiment)."""
    return Frame(frame.time, frame.points[::factor], frame.weights[::factor], frame.name)


def _images(
    files: Sequence[Path], times: Float[Array, " N"], camera: Intrinsics, step: int
) -> FrameSource:
    def read(i: int) -> Frame:
        points = depth.points(_image(files[i]), camera, step=step)
        points = points[(points[:, 2] > NEAR) & (points[:, 2] < FAR)]
        return Frame(float(times[i]), points, by_depth(points), files[i].name)

    return FrameSource(tuple(path.name for path in files), times, read)


def _image(path: Path) -> Shaped[Array, "H W"]:
    try:
        return read_depth(path)
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


def _cloud(path: Path, time: float) -> Frame:
    return _frame(cloud_files.read(path), time, path.name)


def _frame(points: Float[Array, "..."], time: float, name: str) -> Frame:
    """Without points that are no places."""
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(
            f"{name}: expected points in space, shape (N, 3), found shape {points.shape}"
        )
    points = points[(np.abs(points) <= LARGEST_NUMBER).all(1)]  # false for NaN
    return Frame(time, points, np.ones(len(points)), name)


def _tum_list(path: Path) -> tuple[Float[Array, " N"], list[Path]]:
    try:
        text = path.read_text(encoding="utf-8")
        rows = [
            line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")
        ]
        times = np.array([float(time) for time, _ in rows])
        if not (np.abs(times) <= LARGEST_NUMBER).all():
            raise ValueError
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


def _camera(folder: Path, intrinsics: Intrinsics | str | None, *, preset: bool) -> Intrinsics:
    if isinstance(intrinsics, Intrinsics):
        return intrinsics
    if isinstance(intrinsics, str):
        if intrinsics not in depth.PRESETS:
            raise InputError(
                f"intrinsics: expected one of {', '.join(depth.PRESETS)}, found {intrinsics!r}"
            )
        return depth.PRESETS[intrinsics]
    for path in (folder / "intrinsics.json", folder.parent / "intrinsics.json"):
        if path.is_file():
            return read_intrinsics(path)
    named = [camera for name, camera in depth.PRESETS.items() if name in folder.resolve().name]
    if preset:
        return named[0] if named else depth.PRESETS["kinect"]
    raise InputError(
        f"{folder}: expected the camera in intrinsics.json (fx, fy, cx, cy, scale), found no such"
        " file"
    )


def _ahead(source: Callable[[], Iterator[T]], limit: int) -> Iterator[T]:
    """The items of an iterator that runs in a thread, at most `limit` ahead; its exceptions are
    raised here, in their place.
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
