# SPDX-License-Identifier: MIT
"""Particles: `fuse` beside JRMPC from many random starts and beside all-to-all registration.

`python -m benchmarks.particles`: simulated letters and rings with the truth, and the logos and
pores under COFRAME_DATA. `paper.batch` gets 20 random starts, of which the likeliest counts.
All-to-all places every particle on every other one and averages the relative poses.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import coframe
from benchmarks import record
from coframe import geometry, paper
from coframe.data.simulate.particles import SYMMETRY, particles
from coframe.particles.fuse import RECIPE, _checked, _prepare
from coframe.particles.search import Level, no_symmetry, place
from coframe.threads import available_cores

# [size] Random starts of `paper.batch`, its components and its iterations.
STARTS, COMPONENTS, ITERATIONS = 20, 40, 100
# [format] A particle within this of its true pose is right [deg, radii of the structure].
DEGREES, RADII = 10.0, 0.2
TUD, PORES = "microscopy/tud_logo_2d.npz", "microscopy/nuclear_pore_3d.npz"


@dataclass(frozen=True)
class Problem:
    """Particles with true poses, known up to turns about z, and up to `flips` across it."""

    name: str
    clouds: list[np.ndarray]
    sigma: list[np.ndarray]
    truth: np.ndarray
    order: int = 1
    flips: bool = False

    def group(self) -> np.ndarray:
        """Turns about z that carry the structure onto itself; for flips see `flipped`."""
        D = self.truth.shape[1] - 1
        turns = np.tile(np.eye(D + 1), (self.order, 1, 1))
        angles = 2 * np.pi * np.arange(self.order) / self.order
        turns[:, 0, 0] = turns[:, 1, 1] = np.cos(angles)
        turns[:, 1, 0] = np.sin(angles)
        turns[:, 0, 1] = -np.sin(angles)
        return turns


def right(problem: Problem, poses: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Which particles are right after the common motion that makes most of them right."""
    truth = problem.truth
    centres = np.array([cloud.mean(0) for cloud in problem.clouds])
    D = centres.shape[1]
    radius = np.sqrt(
        np.median(
            np.concatenate(
                [((c - m) ** 2).sum(1) for c, m in zip(problem.clouds, centres, strict=True)]
            )
        )
    )
    there = np.einsum("jde,je->jd", truth[:, :D, :D], centres) + truth[:, :D, D]
    inverse = np.linalg.inv(truth)
    best = np.zeros(len(poses), bool)
    for j in range(len(poses)):
        moved = truth[j] @ np.linalg.inv(poses[j]) @ poses
        good = np.zeros(len(poses), bool)
        for S in group:
            off = S @ moved @ inverse
            turn = np.degrees(geometry.angle(off[:, :D, :D]))
            shift = np.einsum("jde,je->jd", off[:, :D, :D], there) + off[:, :D, D] - there
            good |= (turn < DEGREES) & (np.linalg.norm(shift, axis=1) < RADII * radius)
        if good.sum() > best.sum():
            best = good
    return best


def by_fuse(problem: Problem) -> np.ndarray:
    return coframe.fuse(problem.clouds, problem.sigma).poses


def by_batch(problem: Problem) -> np.ndarray:
    """The likeliest of random starts of JRMPC as published."""
    rng = np.random.default_rng(0)
    D = problem.clouds[0].shape[1]
    centred = [cloud - cloud.mean(0) for cloud in problem.clouds]
    best: tuple[float, np.ndarray] = (-np.inf, geometry.identity(len(centred), D))
    everything = np.concatenate(centred)
    for _ in range(STARTS):
        start = geometry.identity(len(centred), D)
        start[:, :D, :D] = [geometry.random_rotation(rng, D) for _ in centred]
        means = everything[rng.permutation(len(everything))[:COMPONENTS]]
        found = paper.batch(centred, means, poses=start, iterations=ITERATIONS)
        likelihood = found.history[-1].log_likelihood
        if likelihood > best[0]:
            best = (likelihood, found.poses)
    back = geometry.identity(len(centred), D)
    back[:, :D, D] = [-cloud.mean(0) for cloud in problem.clouds]
    return best[1] @ back


def by_all_to_all(problem: Problem) -> np.ndarray:
    """Every particle placed on every other one; rotations averaged by their leading eigenvectors,
    shifts by least squares.
    """
    given, centres, unit = _prepare(*_checked(problem.clouds, problem.sigma), RECIPE)
    M, D = len(given), given.dimension
    radius = float(np.quantile(np.linalg.norm(given.points, axis=1), 0.99))
    thin = given.thinned(200, np.random.default_rng(0))
    coarse = Level(thin, RECIPE.coarse_blur, RECIPE, radius)
    fine = Level(given, RECIPE.fine_blur, RECIPE, radius)
    relative = np.zeros((M, M, D, D))
    shifts = np.zeros((M, M, D))
    for i in range(M):
        one = np.array([i])
        model = (
            Level(thin.subset(one), RECIPE.coarse_blur, RECIPE, radius),
            Level(given.subset(one), RECIPE.fine_blur, RECIPE, radius),
            no_symmetry(),
        )
        found = place(coarse, fine, model, RECIPE, np.random.default_rng(i), available_cores())
        relative[i] = [f.R[0, :D, :D] for f in found]
        shifts[i] = [f.t[0, :D] for f in found]
    both = (relative + relative.transpose(1, 0, 3, 2)) / 2
    blocks = both.transpose(0, 2, 1, 3).reshape(M * D, M * D)
    leading = np.linalg.eigh(blocks)[1][:, -D:].reshape(M, D, D)
    if sum(np.linalg.det(block) < 0 for block in leading) > M / 2:
        leading = leading[:, :, [1, 0, *range(2, D)]]
    R = geometry.nearest_rotation(leading).transpose(0, 2, 1)
    # x = R_i (P_ij v + s_ij) = R_j v + t_j - t_i, with the mean of all shifts zero.
    t = np.einsum("ide,ije->jd", R, shifts) / M
    local = geometry.pose(R, unit * t)
    back = geometry.identity(M, D)
    back[:, :D, D] = -centres
    return local @ back


METHODS: dict[str, Callable[[Problem], np.ndarray]] = {
    "fuse": by_fuse,
    f"paper.batch, best of {STARTS}": by_batch,
    "all-to-all, averaged": by_all_to_all,
}


def problems(count: int) -> list[Problem]:
    found = []
    for kind, labelled, sigma in (
        ("letters", 0.5, 3.0),
        ("letters", 0.8, 3.0),
        ("ring", 0.8, 3.0),
    ):
        scans = particles(
            np.random.default_rng(1), kind=kind, count=count, labelled=labelled, sigma=sigma
        )
        name = f"{kind}, {labelled:.0%} labelled, {sigma:g} nm"
        found.append(
            Problem(name, list(scans.clouds), list(scans.sigma or ()), scans.poses, SYMMETRY[kind])
        )
    folder = os.environ.get("COFRAME_DATA")
    for title, file, order in (("logos", TUD, 1), ("nuclear pores", PORES, 8)):
        if folder and (path := Path(folder) / file).exists():
            with np.load(path) as stored:
                M = min(len(stored["poses"]), count)
                clouds = [stored[f"particle_{j:03d}"].astype(float) for j in range(M)]
                sigma = [stored[f"sigma_{j:03d}"].astype(float) for j in range(M)]
                truth = stored["poses"][:M]
            found.append(Problem(title, clouds, sigma, truth, order, flips=order == 8))
    return found


def flipped(problem: Problem, poses: np.ndarray) -> np.ndarray:
    """The group of a problem, with the flips across its axis that make most particles right."""
    group = problem.group()
    if not problem.flips:
        return group
    best = group
    for angle in np.linspace(0, 2 * np.pi / problem.order, 90, endpoint=False):
        c, s = np.cos(angle), np.sin(angle)
        flip = np.array([[c, s, 0, 0], [s, -c, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]])
        both = np.concatenate([group, group @ flip])
        if right(problem, poses, both).sum() > right(problem, poses, best).sum():
            best = both
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, default=60, help="of each problem")
    parser.add_argument("--only", default="", help="problems whose names contain this")
    record.add_option(parser)
    arguments = parser.parse_args()
    rows = []
    for problem in problems(arguments.particles):
        if arguments.only not in problem.name:
            continue
        for name, method in METHODS.items():
            began = time.perf_counter()
            poses = method(problem)
            seconds = time.perf_counter() - began
            share = right(problem, poses, flipped(problem, poses)).mean()
            rows.append(
                [problem.name, str(len(problem.clouds)), name, f"{share:.0%}", f"{seconds:.0f} s"]
            )
            print(*rows[-1], sep="  ", flush=True)
    record.save(
        "particles",
        "share of particles within 10 degrees and 0.2 radii of the truth (logos: of TU Delft's"
        " poses), up to one common motion and the symmetry of the structure",
        ["particles", "count", "method", "right", "time"],
        rows,
        folder=arguments.records,
    )


if __name__ == "__main__":
    main()
