# SPDX-License-Identifier: MIT
"""Real scans as scenes: the sets under COFRAME_DATA, with the poses that their publishers give.

docs/data.md says what the sets are and where they come from. A set that is not on disk is left out.

The halves never share a shape. Sets on which numbers of coframe were chosen before (bunny, dragon,
armadillo, lucy) are "tune"; the others are divided so that a family has both halves where it has
several scenes. Poses of real sets are somebody's estimates, good to some centimetres or some tenths
of a degree: they decide between right and wrong, not between good and best.

The views of the time-of-flight camera (`tof`) have no poses and are left out.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe import geometry
from coframe.data import datasets
from coframe.data.simulate import Scans
from coframe.io import clouds as cloud_files
from coframe.types import Array
from proving.families import Make, Scene
from proving.problem import Half

# [size] Points of a cloud, at most, so that a problem takes seconds.
POINTS = 3000
# [size] Points of a cloud of sensors that see far: most of them lie near the sensor.
POINTS_FAR = 20_000
# [format] Standard deviation of a point in `exact`, of bodies whose longest side is 1.
EXACT_SIGMA = 0.0008
# [format] [m] Points of `kinect_loop` farther from the camera are too noisy to compare.
KINECT_REACH = 2.5
# [format] [m] Farther points of the street are left out: 5 % of what is left, which decides between
# right and wrong, is 2.2 m, less than the car drives in four frames.
STREET_REACH = 25.0
# [format] Which pairs of frames and which longer lists of frames of the street.
STREET = ((0, 4), (0, 6), (0, 9), (0, 4, 8), (0, 3, 6, 9), tuple(range(10)))
# [format] Numbers of range pairs by shape: a bust and the bunny to tune on; dancing children, a
# dragon and an angel to judge by. Clean and noisy take turns.
PAIRS_TUNE = (1, 3, 5, 21, 23, 25)
PAIRS_JUDGE = (7, 9, 11, 13, 17, 19)
# [size] Scans of a stretch of the floor, and every which one is used.
FLOOR_SCANS, FLOOR_STEP = 16, 8
# [format] First scans of the stretches: two ends of one floor.
FLOOR_TUNE, FLOOR_JUDGE = (0, 160), (640, 960)
# [size] Windows cut from a terrain, and the share of its length that each covers.
STRIPS, STRIP_SHARE = 4, 0.4
# [m] By how much strips that are nearly in place are off.
STRIP_SHIFT = 0.5
# [size] Particles that are registered together.
PARTICLES = 20
# [format] Turns about its axis after which a nuclear pore looks the same.
PORE_SYMMETRY = 8
# [deg], [m] Carries room_scan2 into the frame of room_scan1. Its publisher gives none. Point-to-
# plane ICP of all points from the guess of his tutorial, thinned to 4, 6 and 10 cm, with and
# without a robust loss, agrees to 4 mm and 0.1 degrees; from a second start, without a robust
# loss, too. Of the points of the second scan 70 % have a neighbour within 10 cm (36 % at the guess,
# 40 % as they are).
ROOM_TURN = (-0.40, 1.37, 40.83)
ROOM_SHIFT = (1.972, 0.058, 0.028)

# Conditions that most scenes of a kind are run under.
NOTHING = ("nothing",)
STARTS = ("nothing", "near")
OWN_FRAME = ("in_own_frame",)


def scenes() -> list[Scene]:
    """All scenes whose sets are on disk; one line to the standard error names the other sets."""
    absent = missing()
    if absent:
        print(f"left out, not in {datasets.root()}: {', '.join(absent)}", file=sys.stderr)
    return [scene for path, scene in _listed() if path not in absent]


def missing() -> list[str]:
    """Files and folders of sets that are not on disk."""
    wanted = dict.fromkeys(path for path, _ in _listed())
    return [path for path in wanted if not (datasets.root() / path).exists()]


# Reading


def some(cloud: Float[Array, "N D"], rng: np.random.Generator, points: int) -> Float[Array, "n D"]:
    """Random points of a cloud, at most so many."""
    return np.asarray(cloud[rng.permutation(len(cloud))[:points]], float)


def nearer(cloud: Float[Array, "N D"], reach: float) -> Float[Array, "n D"]:
    """Points that are nearer to the sensor, which is at the origin."""
    return cloud[np.linalg.norm(cloud, axis=1) < reach]


def _exact(name: str, rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "exact" / f"{name}.npz") as file:
        poses = file["poses"]
        clouds = [some(file[f"scan_{j:02d}"], rng, POINTS) for j in range(len(poses))]
    sigma = [np.full(len(cloud), EXACT_SIGMA) for cloud in clouds]
    return Scans(name, clouds, poses, sigma=sigma, unit="")


def _turntable(name: str, step: int, rng: np.random.Generator) -> Scans:
    found = datasets.load(name)
    assert found.poses is not None
    clouds = [some(cloud_files.read(path), rng, POINTS) for path in found.paths[::step]]
    return Scans(name, clouds, found.poses[::step], exact=False)


def _range_pair(name: str, rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "range_pairs" / f"{name}.npz") as file:
        clouds = [some(file[key], rng, POINTS) for key in ("a", "b")]
        poses = np.array([np.eye(4), file["T_a_b"]])
    return Scans(name, clouds, poses, unit="")


def _street(frames: Sequence[int], rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "kitti_street" / "frames.npz") as file:
        poses = file["poses"][list(frames)]
        scans = [nearer(file[f"scan_{j:02d}"], STREET_REACH) for j in frames]
    return Scans("street", [some(scan, rng, POINTS_FAR) for scan in scans], poses, exact=False)


def _college(rng: np.random.Generator) -> Scans:
    folder = datasets.root() / "newer_college"
    clouds = [
        some(np.fromfile(path, np.float32).reshape(-1, 3), rng, POINTS_FAR)
        for path in sorted(folder.glob("planes_*.bin"))
    ]
    rows = np.loadtxt(folder / "graph.txt", usecols=range(1, 8))
    poses = geometry.pose(Rotation.from_quat(rows[:, 3:]).as_matrix(), rows[:, :3])
    return Scans("college", clouds, poses, exact=False)


def _kinect(rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "kinect_loop" / "kinect2_17.npz") as file:
        poses = file["poses"]
        scans = [nearer(file[f"scan_{j:02d}"], KINECT_REACH) for j in range(len(poses))]
    return Scans("room", [some(scan, rng, POINTS) for scan in scans], poses, exact=False)


def _room_pair(rng: np.random.Generator) -> Scans:
    folder = datasets.root() / "room_pair"
    clouds = [some(cloud_files.read(folder / f"room_scan{k}.pcd"), rng, POINTS_FAR) for k in (1, 2)]
    turn = Rotation.from_rotvec(ROOM_TURN, degrees=True).as_matrix()
    poses = np.array([np.eye(4), geometry.pose(turn, np.array(ROOM_SHIFT))])
    return Scans("two scans of a room", clouds, poses, exact=False)


def _strips(file: str, shift: float, rng: np.random.Generator) -> Scans:
    """Windows along the longest side; neighbours have no point in common. The first one stays, the
    others are moved sideways by `shift` in random directions, and the true poses move them back.
    """
    points = np.unique(cloud_files.read(datasets.root() / "terrain" / file), axis=0)
    along = points[:, int(np.ptp(points, axis=0).argmax())]
    position = (along - along.min()) / np.ptp(along)
    turn = rng.permutation(len(points)) % 2
    clouds, poses = [], geometry.identity(STRIPS, 3)
    for j, low in enumerate(np.linspace(0, 1 - STRIP_SHARE, STRIPS)):
        inside = (position >= low) & (position <= low + STRIP_SHARE) & (turn == j % 2)
        angle = rng.uniform(0, 2 * np.pi)
        moved = shift * (j > 0) * np.array([np.cos(angle), np.sin(angle), 0.0])
        clouds.append(some(points[inside], rng, POINTS_FAR) + moved)
        poses[j, :3, 3] = -moved
    return Scans(Path(file).stem, clouds, poses, exact=False)


def _floor(first: int, rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "laser2d" / "freiburg079.npz") as file:
        ends = np.cumsum(file["counts"])
        all_points = np.split(file["points"], ends[:-1])
        x, y, theta = file["poses"].T
    chosen = first + FLOOR_STEP * np.arange(FLOOR_SCANS)
    turns = geometry.exp_rotation(theta[chosen][:, None])
    poses = geometry.pose(turns, np.stack([x, y], 1)[chosen])
    return Scans("floor", [some(all_points[j], rng, POINTS) for j in chosen], poses, exact=False)


def _particles(file: str, unit: str, exact: bool, rng: np.random.Generator) -> Scans:
    with np.load(datasets.root() / "microscopy" / file) as stored:
        chosen = np.sort(rng.permutation(len(stored["poses"]))[:PARTICLES])
        clouds = [np.asarray(stored[f"particle_{j:03d}"], float) for j in chosen]
        return Scans(Path(file).stem, clouds, stored["poses"][chosen], exact=exact, unit=unit)


# Listing


def _listed() -> Iterator[tuple[str, Scene]]:
    """Every scene, with the file or folder that it needs."""
    make: Make
    conditions: tuple[str, ...] = (*STARTS, "true")
    for name in ("armadillo", "lucy"):
        make = partial(_exact, name)
        yield f"exact/{name}.npz", Scene("real objects", name, "tune", make, conditions=conditions)
    turntables: tuple[tuple[str, str, Half, tuple[str, ...]], ...] = (
        ("bunny", "bunny", "tune", STARTS),
        ("dragon", "dragon_stand", "tune", (*STARTS, "noise")),
        ("happy buddha", "happy_stand", "judge", (*STARTS, "far", "true", "noise", "wrong_start")),
    )
    for name, folder, half, conditions in turntables:
        make = partial(_turntable, name, 1)
        yield (
            f"stanford/{folder}",
            Scene("real objects", name, half, make, conditions=conditions),
        )
    for name, folder, half, _ in turntables[1:]:
        make = partial(_turntable, name, 3)  # views 72 degrees apart: neighbours alone overlap
        title = f"{name}, few views"
        yield f"stanford/{folder}", Scene("real objects", title, half, make, conditions=NOTHING)

    pairs: tuple[tuple[Half, tuple[int, ...]], ...] = (
        ("tune", PAIRS_TUNE),
        ("judge", PAIRS_JUDGE),
    )
    for half, numbers in pairs:
        for k, number in enumerate(numbers):
            name = f"{('clean', 'noisy')[k % 2]}_{number:02d}"
            make = partial(_range_pair, name)
            title = name.replace("_", " ")
            yield (
                f"range_pairs/{name}.npz",
                Scene("range pairs", title, half, make, conditions=NOTHING),
            )

    yield "newer_college", Scene("real lidar", "college", "tune", _college, conditions=STARTS)
    for frames in STREET:
        name = f"street {' '.join(map(str, frames))}" if len(frames) < 10 else "street, all frames"
        make = partial(_street, frames)
        yield (
            "kitti_street/frames.npz",
            Scene("real lidar", name, "judge", make, conditions=OWN_FRAME),
        )

    conditions = ("nothing", *OWN_FRAME)
    yield "room_pair", Scene("real rooms", "room pair", "tune", _room_pair, conditions=conditions)
    yield (
        "kinect_loop/kinect2_17.npz",
        Scene("real rooms", "kinect loop", "judge", _kinect, conditions=STARTS),
    )

    terrains: tuple[tuple[str, Half], ...] = (("CSite1.pcd", "tune"), ("CSite2.pcd", "judge"))
    for file, half in terrains:
        for name, shift in (("in place", 0.0), ("nearly in place", STRIP_SHIFT)):
            make = partial(_strips, file, shift)
            title = f"{Path(file).stem} {name}"
            yield (
                f"terrain/{file}",
                Scene("real terrain", title, half, make, in_place=True, conditions=OWN_FRAME),
            )

    stretches: tuple[tuple[Half, tuple[int, ...]], ...] = (
        ("tune", FLOOR_TUNE),
        ("judge", FLOOR_JUDGE),
    )
    for half, firsts in stretches:
        for first in firsts:
            make = partial(_floor, first)
            title = f"scans from {first}"
            yield (
                "laser2d/freiburg079.npz",
                Scene("real floors", title, half, make, conditions=NOTHING),
            )

    conditions = ("nothing", "true")
    make = partial(_particles, "tud_logo_2d.npz", "nm", False)
    yield (
        "microscopy/tud_logo_2d.npz",
        Scene("real particles", "logos", "tune", make, conditions=conditions),
    )
    make = partial(_particles, "nuclear_pore_3d.npz", "", True)
    yield (
        "microscopy/nuclear_pore_3d.npz",
        Scene(
            "real particles",
            "nuclear pores",
            "judge",
            make,
            symmetry=PORE_SYMMETRY,
            conditions=conditions,
        ),
    )
