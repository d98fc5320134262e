# SPDX-License-Identifier: MIT
"""Real sets as their owners have them, and windows of built places: no option, all points.

    python -m benchmarks.real_sets [--sets street floors ...]

A scan is right if its points lie, root mean square, within the set's tolerance of where the
published poses put them, after one common motion of its group. The worst is a scan that is wrong
and called aligned. Sets that are not under COFRAME_DATA are left out and named.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

import coframe
from benchmarks import record
from coframe import geometry
from coframe.data import datasets
from coframe.data.simulate import Scans
from coframe.types import Array, Poses
from proving import conditions, families, real

# [format] Seeds of scattered poses of a set that is scattered more than once.
DRAWS = range(8)
# [format] Families of built places.
BUILT = ("corridor", "hall", "stairs", "facade")
# [size] Points by which a scan's error is measured.
HANDLES = 500


@dataclass(frozen=True)
class Case:
    """Scans with their poses, and how far [unit] a scan that is right may be off."""

    name: str
    scans: Scans
    tolerance: float
    start: Poses | None = None


def street() -> Iterator[Case]:
    """Lidar frames in the sensor's own frame: all pairs, and two longer lists."""
    with np.load(datasets.root() / "kitti_street" / "frames.npz") as file:
        poses = file["poses"]
        frames = [np.asarray(file[f"scan_{j:02d}"], float) for j in range(len(poses))]
    lists = [*itertools.combinations(range(len(frames)), 2), (0, 4, 8), (0, 3, 6, 9)]
    for chosen in map(list, lists):
        scans = Scans("street", [frames[j] for j in chosen], poses[chosen], exact=False)
        yield Case(f"frames {' '.join(map(str, chosen))}", scans, 0.15)


def floors() -> Iterator[Case]:
    """Every eighth of 256 scans of a floor, scattered."""
    with np.load(datasets.root() / "laser2d" / "freiburg079.npz") as file:
        clouds = np.split(np.asarray(file["points"], float), np.cumsum(file["counts"])[:-1])
        x, y, theta = file["poses"].T
    poses = geometry.pose(geometry.exp_rotation(theta[:, None]), np.stack([x, y], 1))
    for first in range(0, len(clouds) - 255, 256):
        chosen = list(range(first, first + 256, 8))
        scans = Scans("floor", [clouds[j] for j in chosen], poses[chosen], exact=False)
        yield Case(f"scans from {first}", scattered(scans, 0), 0.3)


def college() -> Iterator[Case]:
    """Lidar submaps, scattered."""
    scans = real._college(np.random.default_rng(0))
    for seed in DRAWS:
        yield Case(f"draw {seed}", scattered(scans, seed), 1.0)


def kinect() -> Iterator[Case]:
    """Views once around a room, scattered."""
    scans = real._kinect(np.random.default_rng(0))
    for seed in DRAWS[:2]:
        yield Case(f"draw {seed}", scattered(scans, seed), 0.25)


def rooms() -> Iterator[Case]:
    """Two scans of a room in their own frames, and scattered."""
    scans = real._room_pair(np.random.default_rng(0))
    yield Case("own frames", scans, 0.15)
    for seed in DRAWS[:3]:
        yield Case(f"draw {seed}", scattered(scans, seed), 0.15)


def terrain() -> Iterator[Case]:
    """Strips in UTM, in place and nearly so."""
    for file, shift in itertools.product(("CSite1.pcd", "CSite2.pcd"), (0.0, 0.5)):
        for seed in range(2):
            scans = real._strips(file, shift, np.random.default_rng(seed))
            yield Case(f"{file} {shift} m off, draw {seed}", scans, 0.5)


def range_pairs() -> Iterator[Case]:
    """Pairs of synthetic range images, clean and noisy, in arbitrary poses."""
    for number, kind in itertools.product(range(1, 26, 2), ("clean", "noisy")):
        with np.load(datasets.root() / "range_pairs" / f"{kind}_{number:02d}.npz") as file:
            clouds = [np.asarray(file[key], float) for key in ("a", "b")]
            poses = np.array([np.eye(4), file["T_a_b"]])
        scans = Scans("pair", clouds, poses, unit="")
        yield Case(f"{kind} {number:02d}", scans, 0.02 * geometry.extent(clouds[0]))


def windows() -> Iterator[Case]:
    """Four windows of a corridor, a hall, stairs or a facade; the true poses are given."""
    yield from _windows(0.0)


def near_windows() -> Iterator[Case]:
    """The same with start poses 5 cm off."""
    yield from _windows(0.05)


def scattered_windows() -> Iterator[Case]:
    """The same, scattered and without start poses."""
    yield from _windows(None)


def _windows(shift: float | None) -> Iterator[Case]:
    for scene in families.places_of_all_kinds():
        if scene.family not in BUILT or scene.half != "judge" or scene.conditions:
            continue
        # Other random shapes than those of the proving ground.
        rng = np.random.default_rng(families.seed_of("windows", scene.family, scene.name))
        scans = conditions.windows(scene.make(rng), rng, 0.6)
        tolerance = 0.02 * float(np.median([geometry.extent(v) for v in scans.clouds]))
        name = f"{scene.family}, {scene.name}"
        if shift is None:
            yield Case(name, conditions.scattered(scans, rng), tolerance)
            continue
        start = scans.poses.copy()
        away = rng.normal(size=(len(start), 3))
        start[:, :3, 3] += shift * away / np.linalg.norm(away, axis=1, keepdims=True)
        yield Case(name, scans, tolerance, start)


SETS: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "street": ("kitti_street", street),
    "floors": ("laser2d", floors),
    "college": ("newer_college", college),
    "kinect": ("kinect_loop", kinect),
    "rooms": ("room_pair", rooms),
    "terrain": ("terrain", terrain),
    "range pairs": ("range_pairs", range_pairs),
    "windows": ("", windows),
    "windows, near": ("", near_windows),
    "windows, scattered": ("", scattered_windows),
}


def scattered(scans: Scans, seed: int) -> Scans:
    """Each scan moved by a random rigid motion."""
    return conditions.scattered(scans, np.random.default_rng(seed))


def errors(
    scans: Scans, poses: Poses, groups: Sequence[Sequence[int]], tolerance: float
) -> Float[Array, " M"]:
    """How far each scan's points are off [unit]; NaN for a scan without another of its group.

    After the common motion of its group that makes most scans right: that of one of them.
    """
    found = np.full(len(poses), np.nan)
    some = [cloud[:: max(1, len(cloud) // HANDLES)] for cloud in scans.clouds]
    for group in groups:
        best = np.full(len(group), np.inf)
        for j in group if len(group) > 1 else ():
            common = scans.poses[j] @ geometry.inverse(poses[j])
            ends = [
                geometry.transform(common @ poses[i], some[i])
                - geometry.transform(scans.poses[i], some[i])
                for i in group
            ]
            off = np.array([np.sqrt((each**2).sum(1).mean()) for each in ends])
            merits = [((each <= tolerance).sum(), -np.median(each)) for each in (off, best)]
            best = off if merits[0] > merits[1] else best
        right = best <= tolerance
        if len(group) > 1:
            found[list(group)] = np.where(right & (right.sum() < 2), np.inf, best)
    return found


def measured(cases: Iterator[Case]) -> list[str]:
    """One row: scans, right and placed, right but not aligned, wrong and aligned."""
    counts = np.zeros(5, int)
    worst = 0.0
    for case in cases:
        result = coframe.register(case.scans.clouds, case.start)
        off = errors(case.scans, result.poses, result.groups, case.tolerance)
        verdicts = np.array([each.verdict for each in result.verdicts])
        right, aligned = off <= case.tolerance, verdicts == "aligned"
        silent = int((aligned & ~right).sum())
        counts += (
            len(off),
            int((right & (verdicts != "failed")).sum()),
            int((right & ~aligned).sum()),
            silent,
            silent * (not result.warnings),
        )
        worst = max([worst, *off[right & aligned]])
        print(
            f"  {case.name}: {right.sum()} of {len(off)} right, {aligned.sum()} aligned, {silent}"
            f" of these wrong; {result.start}, {len(result.warnings)} warnings",
            flush=True,
        )
    return [*map(str, counts), f"{worst:.3g}"]


COLUMNS = (
    "set",
    "scans",
    "right",
    "right, not aligned",
    "wrong, aligned",
    "without a warning",
    "largest error of an aligned one",
)


def main() -> None:
    """Measure the sets and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    record.add_option(parser)
    options = parser.parse_args()
    rows = []
    for name in options.sets:
        folder, cases = SETS[name]
        if not (datasets.root() / folder).exists():
            print(f"left out, not in {datasets.root()}: {folder}", file=sys.stderr)
            continue
        print(name, flush=True)
        rows.append([f"{name}: {cases.__doc__}", *measured(cases())])
        print("  " + ", ".join(rows[-1]), flush=True)
    what = "Real sets with all their points, no option; numbers of scans over all problems."
    record.save("real_sets", what, COLUMNS, rows, folder=options.records)


if __name__ == "__main__":
    main()
