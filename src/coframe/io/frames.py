# SPDX-License-Identifier: MIT
"""Sequences of frames: folders of depth images or clouds, ROS bags, arrays, generators.

Frames are read ahead of their use, never all at once.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from coframe.errors import LARGEST_NUMBER, InputError, visible
from coframe.io import camera as cameras
from coframe.io import depth, images, layouts, lidar, rosbag
from coframe.io.depth import Intrinsics
from coframe.io.files import as_path
from coframe.io.layouts import Layout
from coframe.io.scan import of_columns, refuse_masked
from coframe.threads import available_cores
from coframe.types import Array, Points

T = TypeVar("T")

# [size] Frames that wait for their use, at most.
AHEAD = 8
# [m] Depths outside are left out: there, the noise of a structured-light camera is larger than what
# it shows. [0.1, unknown]
NEAR, FAR = 0.3, 4.0


class UnreadableFrameError(InputError):
    """A frame whose file is missing or damaged: it is skipped, and counted."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What the sensor saw at one time, in its own frame."""

    time: float  # [s]
    points: Points
    weights: Float[Array, " N"]  # how much a point counts: 1 for a point at 1 m
    name: str
    # [s] when each point was measured, after `time`; None if all were at once, or it is not known.
    offsets: Float[Array, " N"] | None = None
    problem: str = ""  # why there are no points, where the frame could not be read

    def __len__(self) -> int:
        return len(self.points)

    def subset(self, rows: Shaped[Array, " n"]) -> "Frame":
        """Some of its points."""
        offsets = None if self.offsets is None else self.offsets[rows]
        return Frame(self.time, self.points[rows], self.weights[rows], self.name, offsets)


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A sequence of frames: names and times are known at once, each frame is read when it is asked
    for.

    Parameters
    ----------
    names
        One for each frame.
    times
        Times of the frames [s], rising. Where the sequence has no times, numbers of frames.
    read
        Returns the frame of an index; raises `UnreadableFrameError` if its file is missing or
        damaged. Several threads call it at once.
    settings
        What the frames depend on beside their files, by name: the camera and the like.
    timed
        Whether `times` are times.
    stream
        Yields the frames from an index on, where that is quicker than `read`.

    Examples
    --------
    >>> source = coframe.open_frames("rgbd_dataset_freiburg1_desk")
    >>> len(source), source[0].points
    """

    names: tuple[str, ...]
    times: Float[Array, " N"]
    read: Callable[[int], Frame]
    settings: Mapping[str, Any] = field(default_factory=dict)
    timed: bool = True
    stream: Callable[[int], Iterator[Frame]] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Frame:
        return self.read(index)

    def each(self, start: int = 0, stop: int | None = None) -> Iterator[Frame]:
        """The frames from `start` to before `stop`; one that cannot be read has no points, and says
        why.
        """
        if self.stream is not None:
            yield from islice(self.stream(start), None if stop is None else stop - start)
            return
        for i in range(start, len(self) if stop is None else min(stop, len(self))):
            yield self._read_or_say_why(i)

    def _read_or_say_why(self, i: int) -> Frame:
        try:
            return self.read(i)
        except UnreadableFrameError as error:
            time, none = float(self.times[i]), np.zeros(0)
            return Frame(time, none.reshape(0, 3), none, self.names[i], problem=str(error))

    def prepared(
        self,
        prepare: Callable[[int, Frame], T],
        start: int = 0,
        stop: int | None = None,
        threads: int | None = None,
    ) -> Generator[T]:
        """What `prepare` makes of the frames from `start` on, in threads that are at most `AHEAD`
        frames ahead: so many, or as many as there are cores; of a stream, one.
        """
        if self.stream is not None:
            return _ahead(
                lambda: (prepare(i, frame) for i, frame in enumerate(self.each(start, stop), start))
            )
        return _ahead_in_threads(
            lambda i: prepare(i, self._read_or_say_why(i)),
            range(start, len(self) if stop is None else min(stop, len(self))),
            min(AHEAD, available_cores() if threads is None else threads),
        )

    def __iter__(self) -> Iterator[Frame]:
        return self.prepared(lambda _, frame: frame)


def open_frames(
    source: str | os.PathLike[str],
    *,
    intrinsics: Intrinsics | str | os.PathLike[str] | None = None,
    step: int = 4,
    near: float = NEAR,
    far: float = FAR,
    topic: str | None = None,
    spin: bool = False,
) -> FrameSource:
    """Open the frames of a folder or of a ROS bag; what it holds decides how it is read.

    Depth images: a folder of them (PNG, PGM, TIFF), one with such a folder in it, or one with a
    list of them (depth.txt of TUM RGB-D, associations.txt of ICL-NUIM). The camera is in
    `intrinsics`, in a file beside the images or a folder above (see `coframe.io.camera`), or known
    by the name of the data set. Clouds: any format that is read, one frame a file, in the order of
    the names. Times are those of the list, of times.txt or timestamps.txt, or of names that are
    times; where there are none, frames are numbered.

    Parameters
    ----------
    source
        The folder, or a bag: a folder with metadata.yaml, an .mcap, .db3 or .bag file.
    intrinsics
        The camera: one of the names in `coframe.io.depth.PRESETS`, a file with fx, fy, cx, cy and
        scale (see `coframe.io.camera.read`), or an `Intrinsics`.
    step
        Every so many rows and columns of a depth image are used.
    near, far
        Depths [m] outside these are left out of depth images.
    topic
        The topic of a bag, if it has several with frames.
    spin
        Whether the frames are turns of a spinning lidar whose points have no times of their own:
        each is measured when the sensor turns to it, in one time between frames, clockwise from
        behind. For frames that are not corrected for the sensor's motion.

    Returns
    -------
    FrameSource
        Frames that are read when they are asked for.

    Raises
    ------
    InputError
        If there is no sequence or more than one, or the camera is not known.

    Examples
    --------
    >>> path = coframe.track(coframe.open_frames("rgbd_dataset_freiburg1_desk", step=2))
    """
    path = as_path(source)
    if not isinstance(step, Integral) or isinstance(step, bool) or step < 1:
        raise InputError(f"step: expected a whole number of at least 1, found {step!r}")
    for name, value in (("near", near), ("far", far)):
        if not isinstance(value, Real) or not value >= 0:  # false for NaN
            raise InputError(f"{name}: expected a depth of at least 0, found {value!r}")
    pixels = _Pixels(int(step), float(near), float(far))
    if rosbag.is_bag(path):
        return _bag_source(path, rosbag.open_bag(path, topic), intrinsics, pixels)
    if topic is not None:
        raise InputError(f"topic: expected a ROS bag with it, found {path}; leave it out")
    if not path.is_dir():
        raise InputError(
            f"{path}: expected a folder with a sequence or a ROS bag, found"
            f" {'a file' if path.is_file() else 'nothing'}"
        )
    layout = layouts.find(path)
    if layout.kind == "depth":
        return _image_source(layout, _camera(path, layout, intrinsics), pixels)
    return _cloud_source(layout, spin=spin)


def from_arrays(clouds: Sequence[Any], times: Float[Array, " N"] | None = None) -> FrameSource:
    """Clouds in memory, (N, 3) arrays, as frames; without `times` [s], they are numbered."""
    stamps = np.arange(len(clouds), dtype=float) if times is None else times
    names = tuple(f"frame {i}" for i in range(len(clouds)))

    def read(i: int) -> Frame:
        return _of_item(i, clouds[i], float(stamps[i]))

    return FrameSource(names, stamps, read, timed=times is not None)


def from_iterator(clouds: Iterable[Any]) -> FrameSource:
    """Clouds that come one by one, none of which is kept: their number is not known, and they are
    read once. (N, 3) arrays, which are numbered, or pairs of a time [s] and an array.
    """
    items = enumerate(clouds)

    def stream(start: int) -> Iterator[Frame]:
        for i, item in items:
            if i >= start:
                yield _of_item(i, item, float(i))

    def read(i: int) -> Frame:
        raise InputError("frames: expected to be read in their order, found one asked for alone")

    return FrameSource((), np.zeros(0), read, timed=False, stream=stream)


def by_depth(points: Float[Array, "N 3"]) -> Float[Array, " N"]:
    """Weights by the noise of a depth camera: a point at 1 m counts one, further ones less."""
    return np.minimum((depth.deviation(np.ones(1)) / depth.deviation(points[:, 2])) ** 2, 1.0)


def strided(frame: Frame, factor: int) -> Frame:
    """Every `factor`-th point, the paper's way (50 in its experiment)."""
    return frame.subset(np.arange(0, len(frame), factor))


@dataclass(frozen=True)
class _Pixels:
    """Which pixels of depth images are used."""

    step: int
    near: float  # [m]
    far: float  # [m]

    def frame(
        self, values: Shaped[Array, "H W"], camera: Intrinsics, time: float, name: str
    ) -> Frame:
        points = depth.points(values, camera, step=self.step)
        points = points[(points[:, 2] > self.near) & (points[:, 2] < self.far)]
        return Frame(time, points, by_depth(points), name)


def _image_source(layout: Layout, camera: Intrinsics, pixels: _Pixels) -> FrameSource:
    times, timed = _numbered(layout.times, len(layout.files))
    names = _names(layout.files)

    def read(i: int) -> Frame:
        return pixels.frame(_image(layout.files[i]), camera, float(times[i]), names[i])

    settings = {"intrinsics": asdict(camera), **asdict(pixels)}
    return FrameSource(names, times, read, settings, timed)


def _cloud_source(layout: Layout, *, spin: bool) -> FrameSource:
    times, timed = _numbered(layout.times, len(layout.files))
    names = _names(layout.files)
    period = float(np.median(np.diff(times))) if len(times) > 1 else 0.0

    def read(i: int) -> Frame:
        try:
            scan = lidar.read(layout.files[i])
        except (InputError, OSError) as error:
            raise UnreadableFrameError(str(error)) from None
        turn = period if spin else 0.0
        return _frame(scan.points, scan.columns, float(times[i]), names[i], turn, timed=timed)

    return FrameSource(names, times, read, {"spin": spin} if spin else {}, timed)


def _bag_source(
    path: Path,
    bag: rosbag.Bag,
    intrinsics: Intrinsics | str | os.PathLike[str] | None,
    pixels: _Pixels,
) -> FrameSource:
    names = tuple(f"{visible(bag.topic)} {i}" for i in range(len(bag.times)))
    settings: dict[str, Any] = {"topic": bag.topic}
    camera = None
    if bag.kind == rosbag.IMAGE:
        camera = bag.camera if intrinsics is None else _given_camera(intrinsics)
        if camera is None:
            raise InputError(
                f"{path}: expected the camera of {bag.topic} in a topic of {rosbag.CAMERA}, found"
                " none beside it; give it with --intrinsics, in Python intrinsics=..."
            )
        settings |= {"intrinsics": asdict(camera), **asdict(pixels)}

    def stream(start: int) -> Iterator[Frame]:
        for i, message in enumerate(bag.messages(start), start):
            time = float(bag.times[i])
            if camera is not None:
                yield pixels.frame(rosbag.pixels(message), camera, time, names[i])
            else:
                scan = of_columns(rosbag.columns(message))
                yield _frame(scan.points, scan.columns, time, names[i])

    def read(i: int) -> Frame:
        return next(iter(stream(range(len(names))[i])))

    return FrameSource(names, bag.times, read, settings, stream=stream)


def _numbered(times: Float[Array, " N"] | None, count: int) -> tuple[Float[Array, " N"], bool]:
    """Times, or the numbers of the frames where there are none; and whether they are times."""
    return (np.arange(count, dtype=float), False) if times is None else (times, True)


def _names(files: Sequence[Path]) -> tuple[str, ...]:
    return tuple(visible(path.name) for path in files)


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
        raise UnreadableFrameError(f"{path}: expected a depth image, found {found}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # a name with a zero byte in it
        return False


def _of_item(i: int, cloud: Any, time: float) -> Frame:
    """A frame as it is, a pair of a time and an array, or an array."""
    if isinstance(cloud, Frame):
        return cloud
    if isinstance(cloud, tuple) and len(cloud) == 2 and isinstance(cloud[0], Real):
        time, cloud = float(cloud[0]), cloud[1]
    refuse_masked(f"frame {i}", cloud)
    try:
        points = np.asarray(cloud)
        if points.dtype.kind not in "fiub":
            raise TypeError
        points = np.asarray(points, float)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"frame {i}: expected points in space, shape (N, 3), found {type(cloud).__name__}"
        ) from None
    return _frame(points, {}, time, f"frame {i}", timed=False)


def _frame(
    points: Float[Array, "..."],
    columns: Mapping[str, Shaped[Array, " N"]],
    time: float,
    name: str,
    turn: float = 0.0,
    *,
    timed: bool = True,
) -> Frame:
    """Without points whose coordinates are NaN or out of range; with the times of its points, or
    those by their azimuth where a `turn` of the sensor takes so long [s].
    """
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(
            f"{name}: expected points in space, shape (N, 3), found shape {points.shape}"
        )
    offsets = lidar.offsets(columns, time if timed else None)
    if offsets is not None and not timed:
        offsets /= np.ptp(offsets)  # frames are numbered, and a frame lasts from one to the next
    if offsets is None and turn:
        with np.errstate(invalid="ignore"):
            offsets = -turn * np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)
    good = (np.abs(points) <= LARGEST_NUMBER).all(1)  # false for NaN
    offsets = None if offsets is None else offsets[good]
    return Frame(time, points[good], np.ones(int(good.sum())), name, offsets)


def _given_camera(intrinsics: Intrinsics | str | os.PathLike[str]) -> Intrinsics:
    if isinstance(intrinsics, Intrinsics):
        return intrinsics
    if str(intrinsics) in depth.PRESETS:
        return depth.PRESETS[str(intrinsics)]
    if not Path(intrinsics).suffix:
        raise InputError(
            f"intrinsics: expected a .json, .yaml or .txt file or one of"
            f" {', '.join(depth.PRESETS)}, found {str(intrinsics)!r}"
        )
    return cameras.read(intrinsics)


def _camera(
    folder: Path, layout: Layout, intrinsics: Intrinsics | str | os.PathLike[str] | None
) -> Intrinsics:
    if intrinsics is not None:
        return _given_camera(intrinsics)
    found = cameras.find(layout.folders) or cameras.by_name(folder)
    if found is not None:
        return found
    if layout.is_tum:
        return depth.PRESETS["kinect"]
    raise InputError(
        f"{folder}: expected the camera in intrinsics.json (fx, fy, cx, cy, scale) or another file"
        f" of intrinsics, found none; write one, or give it with --intrinsics, in Python"
        " intrinsics=..."
    )


def _ahead_in_threads(make: Callable[[int], T], items: range, threads: int) -> Generator[T]:
    """`make` of each item, in their order, by so many threads, at most `AHEAD` items ahead;
    exceptions are raised here, in their order.
    """
    pool = ThreadPoolExecutor(threads, "coframe-frames")
    waiting: deque[Future[T]] = deque()
    try:
        for i in items:
            waiting.append(pool.submit(make, i))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(source: Callable[[], Iterator[T]]) -> Generator[T]:
    """The items of an iterator that runs in a thread, at most `AHEAD` ahead; its exceptions are
    raised here, in their order.
    """
    waiting: queue.Queue[T | BaseException | None] = queue.Queue(AHEAD)
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
