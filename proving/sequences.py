# SPDX-License-Identifier: MIT
"""Sequences as scenes of kind "track": successive frames of one sensor, each in its own frame.

Simulated: a depth camera on its way through a room, a lidar on a car around a block; no room and no
street is in both halves. Real: stretches of the desk of TUM RGB-D, on which numbers of `track` were
chosen ("tune"), of the kitchen of 7-Scenes and a street of KITTI ("judge"). Depth images become
points as `coframe.open_frames` has them, from 0.3 to 4 m.
"""

import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

import coframe
from coframe.data import datasets
from coframe.data.simulate import Scans, places
from coframe.io import trajectory
from proving.families import Make, Scene
from proving.problem import Half
from proving.real import nearer, some

# [size] Points of a frame, at most: several times what trackers use of it.
POINTS = 8000
# [size] Frames of a path through a room, about half a turn, and of a way through streets.
ROOM_FRAMES, STREET_FRAMES = 80, 40
# [size] Simulated paths of each kind and half.
PATHS = 3
# [size] Images of a stretch of a real sequence.
IMAGES = 80
# [format] First images of the stretches: of the desk, where the camera moves fastest, and of the
# kitchen.
DESK, KITCHEN = (100, 300), (0, 160)
# [format] [m] Of a frame of the street: points that are nearer.
STREET_REACH = 60.0
# [format] Frames per second of the kitchen, whose images have no times; its true trajectory has.
RATE = 30.0
# [format] Frames are given as they are, without poses.
CONDITIONS = ("in_own_frame",)


def scenes() -> list[Scene]:
    """All sequences; one line to the standard error names the sets that are not on disk."""
    found = list(_simulated())
    absent = []
    for path, scene in _real():
        if (datasets.root() / path).exists():
            found.append(scene)
        elif path not in absent:
            absent.append(path)
    if absent:
        print(f"left out, not in {datasets.root()}: {', '.join(absent)}", file=sys.stderr)
    return found


def _simulated() -> Iterator[Scene]:
    halves: tuple[Half, ...] = ("tune", "judge")
    kinds: tuple[tuple[str, Make], ...] = (("room path", _room), ("street path", _street))
    for family, make in kinds:
        for half in halves:
            for number in range(1, PATHS + 1):
                name = f"{family} {number}"
                yield Scene(family, name, half, make, kind="track", conditions=CONDITIONS)


def _real() -> Iterator[tuple[str, Scene]]:
    """Every real sequence, with the file or folder that it needs."""
    images: tuple[tuple[str, str, Half, tuple[int, ...]], ...] = (
        ("desk", "tum_freiburg1_desk", "tune", DESK),
        ("kitchen", "seven_scenes_kitchen", "judge", KITCHEN),
    )
    for name, folder, half, firsts in images:
        for first in firsts:
            make: Make = partial(_depth_images, folder, first)
            title = f"{name} from {first}"
            yield (
                folder,
                Scene("real paths", title, half, make, kind="track", conditions=CONDITIONS),
            )
    yield (
        "kitti_street/frames.npz",
        Scene("real paths", "street", "judge", _kitti, kind="track", conditions=CONDITIONS),
    )


def _room(rng: np.random.Generator) -> Scans:
    return places.scanned(places.room_path(rng, ROOM_FRAMES), rng, points=POINTS)


def _street(rng: np.random.Generator) -> Scans:
    return places.scanned(places.street_path(rng, STREET_FRAMES), rng, points=POINTS)


def _depth_images(folder: str, first: int, rng: np.random.Generator) -> Scans:
    """So many successive images, without those that the true trajectory has no pose for."""
    path = datasets.root() / folder
    camera = "freiburg1" if "freiburg1" in folder else None
    frames = coframe.open_frames(path, intrinsics=camera)
    stamps = frames.times if frames.timed else frames.times / RATE
    truth = trajectory.read_tum(path / "groundtruth.txt")
    chosen = np.arange(first, min(first + IMAGES, len(frames)))
    times = stamps[chosen]
    known = (times >= truth.times[0]) & (times <= truth.times[-1])
    clouds = [some(frames[int(i)].points, rng, POINTS) for i in chosen[known]]
    return Scans(folder, clouds, truth.at(times[known]), exact=False)


def _kitti(rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "kitti_street" / "frames.npz") as file:
        poses = file["poses"]
        frames = [nearer(file[f"scan_{j:02d}"], STREET_REACH) for j in range(len(poses))]
    return Scans("street", [some(frame, rng, POINTS) for frame in frames], poses, exact=False)
