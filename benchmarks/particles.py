# SPDX-License-Identifier: MIT
"""Particles: `fuse` on simulated and measured copies of a structure, and beside other methods.

`python -m benchmarks.particles`: four tables. `simulated` has letters and pores with exact truth;
`logos` and `pores` have all particles of TU Delft under COFRAME_DATA; `methods` compares few.
`paper.batch` gets 20 random starts, of which the likeliest counts. All-to-all places every particle
on every other one and averages the relative poses; with sweeps from there on, these are the steps
of Heydarian et al. (Nature Methods 2018), on the kernels of `fuse`.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

import coframe
from benchmarks import record
from coframe import geometry, paper
from coframe.data.simulate.particles import SYMMETRY, particles
from coframe.particles import density_kernels as kernels
from coframe.particles.fuse import (
    MIN_MARGIN,
    _best,
    _checked,
    _prepare,
    _settle,
    halves,
)
from coframe.particles.recipe import PLANE, SPACE
from coframe.particles.resolution import resolution
from coframe.particles.search import Level, Motions, no_symmetry, place
from coframe.threads import available_cores

# [size] Random starts of `paper.batch`, its components and its iterations.
STARTS, COMPONENTS, ITERATIONS = 20, 40, 100
# [format] A particle within this of its true pose is right [deg, radii of the structure].
DEGREES, RADII = 10.0, 0.2
# [format] A measured one [deg, nm].
LOGO, PORE = (10.0, 5.0), (5.0, 5.0)
# [format] Unit of the file of pores, a camera pixel [nm], and a site counts as found within [nm].
PIXEL, SITE = 130.0, 2.0
# [size] Parts of a particle, each of which is held out once.
PARTS = 5
# [format] Field of the Fourier ring correlation of the logos [nm].
EXTENT = 300.0
TUD, PORES = "microscopy/tud_logo_2d.npz", "microscopy/nuclear_pore_3d.npz"
TABLES = ("simulated", "logos", "pores", "methods")
# Structure, particles, share of sites with a label, precision [nm], seeds.
SIMULATED = (
    ("letters", 30, 0.8, 1.0, 3),
    ("letters", 30, 0.8, 5.0, 3),
    ("letters", 100, 0.5, 3.0, 3),
    ("letters", 100, 0.4, 3.0, 3),
    ("letters", 100, 0.3, 1.0, 3),
    ("letters", 500, 0.3, 1.0, 1),
    ("letters", 500, 0.5, 3.0, 1),
    ("letters", 500, 0.8, 3.0, 1),
    ("grid", 100, 0.5, 3.0, 3),
    ("pore", 30, 0.8, 3.0, 2),
    ("pore", 30, 0.5, 3.0, 2),
)


@dataclass(frozen=True)
class Problem:
    """Particles with true poses, known up to turns about z, and sites where they are known."""

    name: str
    clouds: list[np.ndarray]
    sigma: list[np.ndarray]
    truth: np.ndarray
    order: int = 1
    sites: np.ndarray | None = None

    def group(self, *, flips: bool = False) -> np.ndarray:
        """Turns about z that carry the structure onto itself.

        `flips`: with half turns about the axis across z that carries the sites onto themselves.
        """
        D = self.truth.shape[1] - 1
        turns = np.tile(np.eye(D + 1), (self.order, 1, 1))
        angles = 2 * np.pi * np.arange(self.order) / self.order
        turns[:, 0, 0] = turns[:, 1, 1] = np.cos(angles)
        turns[:, 1, 0] = np.sin(angles)
        turns[:, 0, 1] = -np.sin(angles)
        if not flips or self.sites is None:
            return turns
        best, flip = np.inf, np.eye(4)
        for angle in np.linspace(0, 2 * np.pi / self.order, 1000, endpoint=False):
            c, s = np.cos(angle), np.sin(angle)
            half_turn = np.array([[c, s, 0, 0], [s, -c, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1.0]])
            moved = geometry.transform(half_turn, self.sites)
            off = np.linalg.norm(moved[:, None] - self.sites, axis=2).min(1).max()
            if off < best:
                best, flip = off, half_turn
        return np.concatenate([turns, turns @ flip])


def radius_of(problem: Problem) -> float:
    """Root of the median squared distance of points from the centre of their particle."""
    squares = [((cloud - cloud.mean(0)) ** 2).sum(1) for cloud in problem.clouds]
    return float(np.sqrt(np.median(np.concatenate(squares))))


def right(
    problem: Problem,
    poses: np.ndarray,
    group: np.ndarray,
    within: tuple[float, float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Which particles are right after the common motion that makes most of them right, and it.

    `within`: degrees and length; default: `DEGREES` and `RADII`.
    """
    degrees, length = within or (DEGREES, RADII * radius_of(problem))
    truth = problem.truth
    centres = np.array([cloud.mean(0) for cloud in problem.clouds])
    D = centres.shape[1]
    there = np.einsum("jde,je->jd", truth[:, :D, :D], centres) + truth[:, :D, D]
    inverse = np.linalg.inv(truth)
    best = np.zeros(len(poses), bool), np.eye(D + 1)
    for j in range(len(poses)):
        common = truth[j] @ np.linalg.inv(poses[j])
        good = np.zeros(len(poses), bool)
        for S in group:
            off = S @ common @ poses @ inverse
            turn = np.degrees(geometry.angle(off[:, :D, :D]))
            shift = np.einsum("jde,je->jd", off[:, :D, :D], there) + off[:, :D, D] - there
            good |= (turn < degrees) & (np.linalg.norm(shift, axis=1) < length)
        if good.sum() > best[0].sum():
            best = good, common
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


class Levels:
    """Particles at the two blurs of `fuse`."""

    def __init__(self, problem: Problem) -> None:
        checked = _checked(problem.clouds, problem.sigma)
        self.recipe = PLANE if problem.clouds[0].shape[1] == 2 else SPACE
        self.given, self.centres, self.unit = _prepare(*checked, self.recipe)
        self.radius = float(np.quantile(np.linalg.norm(self.given.points, axis=1), 0.99))
        self.thin = self.given.thinned(200, np.random.default_rng(0))

    def of(self, chosen: np.ndarray) -> tuple[Level, Level]:
        return (
            Level(self.thin.subset(chosen), self.recipe.coarse_blur, self.recipe, self.radius),
            Level(self.given.subset(chosen), self.recipe.fine_blur, self.recipe, self.radius),
        )

    def poses(self, motions: Motions) -> np.ndarray:
        D = self.given.dimension
        R = motions.R[:, :D, :D]
        turned = np.einsum("jde,je->jd", R, self.centres)
        return geometry.pose(R, self.unit * motions.t[:, :D] - turned)

    def places(self, poses: np.ndarray) -> np.ndarray:
        """Where the poses carry the centres of the particles."""
        D = self.given.dimension
        return np.einsum("jde,je->jd", poses[:, :D, :D], self.centres) + poses[:, :D, D]

    def motions(self, poses: np.ndarray, origin: np.ndarray) -> Motions:
        D = self.given.dimension
        R, t = np.tile(np.eye(3), (len(poses), 1, 1)), np.zeros((len(poses), 3))
        R[:, :D, :D] = poses[:, :D, :D]
        t[:, :D] = (self.places(poses) - origin) / self.unit
        return Motions(R, t)


def all_to_all(levels: Levels) -> Motions:
    """Every particle placed on every other one; rotations averaged by their leading eigenvectors,
    shifts by least squares.
    """
    M, D = len(levels.given), levels.given.dimension
    coarse, fine = levels.of(np.arange(M))
    relative = np.zeros((M, M, D, D))
    shifts = np.zeros((M, M, D))
    for i in range(M):
        model = (*levels.of(np.array([i])), no_symmetry())
        rng = np.random.default_rng(i)
        found = place(coarse, fine, model, levels.recipe, rng, available_cores())
        relative[i] = [f.R[0, :D, :D] for f in found]
        shifts[i] = [f.t[0, :D] for f in found]
    both = (relative + relative.transpose(1, 0, 3, 2)) / 2
    blocks = both.transpose(0, 2, 1, 3).reshape(M * D, M * D)
    leading = np.linalg.eigh(blocks)[1][:, -D:].reshape(M, D, D)
    if sum(np.linalg.det(block) < 0 for block in leading) > M / 2:
        leading = leading[:, :, [1, 0, *range(2, D)]]
    averaged = Motions(np.tile(np.eye(3), (M, 1, 1)), np.zeros((M, 3)))
    averaged.R[:, :D, :D] = geometry.nearest_rotation(leading).transpose(0, 2, 1)
    # x = R_i (P_ij v + s_ij) = R_j v + t_j - t_i, with the mean of all shifts zero.
    averaged.t[:, :D] = np.einsum("ide,ije->jd", averaged.R[:, :D, :D], shifts) / M
    return averaged


def by_all_to_all(problem: Problem) -> np.ndarray:
    levels = Levels(problem)
    return levels.poses(all_to_all(levels))


def by_all_to_all_and_sweeps(problem: Problem) -> np.ndarray:
    levels = Levels(problem)
    motions = all_to_all(levels)
    both = levels.of(np.arange(len(problem.clouds)))
    found, _ = _settle(
        *both,
        levels.recipe,
        np.random.default_rng(0),
        available_cores(),
        [motions],
        np.zeros(len(motions.t), int),
        [no_symmetry()],
    )
    return levels.poses(_best(found[0]))


METHODS: dict[str, Callable[[Problem], np.ndarray]] = {
    "fuse": by_fuse,
    f"paper.batch, best of {STARTS}": by_batch,
    "all-to-all, averaged": by_all_to_all,
    "all-to-all, averaged, then sweeps": by_all_to_all_and_sweeps,
}


def simulate(kind: str, count: int, labelled: float, sigma: float, seed: int = 0) -> Problem:
    rng = np.random.default_rng([1, seed])
    scans = particles(rng, kind=kind, count=count, labelled=labelled, sigma=sigma)
    name = f"{kind}, {labelled:.0%} labelled, {sigma:g} nm"
    return Problem(name, list(scans.clouds), list(scans.sigma or ()), scans.poses, SYMMETRY[kind])


def load(name: str, file: str, order: int = 1, count: int | None = None) -> Problem | None:
    """Particles of a file under COFRAME_DATA, all or the first so many; None: no such file."""
    path = Path(os.environ.get("COFRAME_DATA", ".")) / file
    if not path.exists():
        return None
    with np.load(path) as stored:
        truth = stored["poses"][:count]
        clouds = [stored[f"particle_{j:03d}"].astype(float) for j in range(len(truth))]
        sigma = [stored[f"sigma_{j:03d}"].astype(float) for j in range(len(truth))]
        sites = stored["model"].astype(float) if "model" in stored else None
    return Problem(name, clouds, sigma, truth, order, sites)


def verdicts(fusion: coframe.Fusion) -> np.ndarray:
    return np.array([fit.verdict == "aligned" for fit in fusion.verdicts])


def table_simulated() -> list[list[str]]:
    rows = []
    totals = np.zeros(4, int)
    for kind, count, labelled, sigma, seeds in SIMULATED:
        counts = np.zeros(4, int)
        seconds = 0.0
        for seed in range(seeds):
            problem = simulate(kind, count, labelled, sigma, seed)
            began = time.perf_counter()
            fusion = coframe.fuse(problem.clouds, problem.sigma)
            seconds += time.perf_counter() - began
            good, _ = right(problem, fusion.poses, problem.group())
            aligned = verdicts(fusion)
            counts += [count, good.sum(), (aligned & good).sum(), (aligned & ~good).sum()]
        totals += counts
        particles_of = f"{count}, {seeds} seeds" if seeds > 1 else str(count)
        figures = map(str, counts[1:])
        rows.append([problem.name, particles_of, *figures, f"{seconds / seeds:.0f} s"])
        print(*rows[-1], sep="  ", flush=True)
    rows.append(["all", *map(str, totals), ""])
    return rows


def table_logos(seeds: int) -> list[list[str]]:
    """`fuse` on all logos, for several seeds, beside the poses of TU Delft."""
    logos = load("logos", TUD)
    if logos is None:
        sys.exit(f"no {TUD}: set COFRAME_DATA to the folder of the measured particles")
    theirs = resolution(*halves(logos.clouds, logos.truth, 0, EXTENT))
    rows = [["TU Delft's poses", "", "", "", f"{theirs:.2f} nm", "", "", ""]]
    for seed in range(seeds):
        clock = Clock()
        fusion = coframe.fuse(logos.clouds, logos.sigma, seed=seed)
        spent = clock.read()
        good, common = right(logos, fusion.poses, logos.group(), LOGO)
        aligned = verdicts(fusion)
        length = resolution(*halves(logos.clouds, fusion.poses, 0, EXTENT))
        counts = [
            f"{ours}, {others}"
            for ours, others in (
                likelier(logos, common @ fusion.poses, good),
                held_out(logos, common @ fusion.poses, good),
            )
        ]
        rows.append(
            [
                f"seed {seed}",
                f"{good.sum()} of {good.size}",
                str(aligned.sum()),
                str((good & aligned).sum()),
                f"{length:.2f} nm",
                *counts,
                spent,
            ]
        )
        print(*rows[-1], sep="  ", flush=True)
    return rows


def table_pores() -> list[list[str]]:
    """`fuse` on all pores, without and with the symmetry."""
    pores = load("pores", PORES, 8)
    if pores is None or pores.sites is None:
        sys.exit(f"no {PORES}: set COFRAME_DATA to the folder of the measured particles")
    rows = []
    within = PORE[0], PORE[1] / PIXEL
    turns, both = pores.group(), pores.group(flips=True)
    for symmetry in (1, 8):
        clock = Clock()
        fusion = coframe.fuse(pores.clouds, pores.sigma, symmetry)
        spent = clock.read()
        good, common = right(pores, fusion.poses, both, within)
        upright = right(pores, fusion.poses, turns, within)[0]
        off = PIXEL * off_sites(geometry.transform(common, fusion.mixture.means), pores.sites)
        rows.append(
            [
                f"symmetry={symmetry}",
                f"{good.sum()} of {good.size}",
                f"{upright.sum()} of {good.size}",
                str(verdicts(fusion).sum()),
                f"{fusion.symmetry_found}, {len(fusion.structures[0].symmetries)} motions",
                f"{(off < SITE).sum()} of {off.size}",
                f"{np.sqrt((off**2).mean()):.2f} nm, {off.max():.2f} nm",
                spent,
            ]
        )
        print(*rows[-1], sep="  ", flush=True)
    return rows


class Clock:
    """Time since it was made, by the clock and of all cores together."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> str:
        clock, cores = self.began
        return f"{time.perf_counter() - clock:.0f} s, {time.process_time() - cores:.0f} s"


def off_sites(found: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Distance of each true site from the nearest found one, after the motion that fits them best.

    The common motion of one particle's pose is as inaccurate as that pose.
    """
    for _ in range(5):
        nearest = found[np.linalg.norm(sites[:, None] - found, axis=2).argmin(1)]
        centre, goal = nearest.mean(0), sites.mean(0)
        R = geometry.nearest_rotation((sites - goal).T @ (nearest - centre))
        found = (found - centre) @ R.T + goal
    return np.asarray(np.linalg.norm(sites[:, None] - found, axis=2).min(1))


@dataclass(frozen=True)
class Rivals:
    """Two poses of the particles that are not agreed on, on the density of those that are.

    The density is of the agreed particles at the *truth's* poses, so that neither pose of the
    others has a part in it.
    """

    level: Level
    table: np.ndarray
    poses: tuple[Motions, Motions]
    disputed: np.ndarray

    @classmethod
    def of(cls, problem: Problem, poses: np.ndarray, agreed: np.ndarray) -> "Rivals":
        levels = Levels(problem)
        origin = np.median(levels.places(problem.truth), axis=0)
        ours, truth = (levels.motions(each, origin) for each in (poses, problem.truth))
        level = levels.of(np.arange(len(poses)))[1]
        table = level.table(level.density(truth, no_symmetry(), agreed), float(agreed.sum()))
        return cls(level, table, (ours, truth), np.flatnonzero(~agreed))

    def climbed(
        self, j: int, which: int, chosen: np.ndarray
    ) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        """Score and pose at the nearest maximum for some points of a particle."""
        level, at = self.level, self.poses[which]
        rows = level.particles.rows(j)
        points, weights = level.particles.points[rows][chosen], level.weights[rows][chosen]
        frame = level.origin, level.cell
        value, R, t = kernels.climb(
            self.table, points, weights, at.R[j], at.t[j], *frame, level.blur, level.cell
        )
        return value, (R, t)

    def scored(self, j: int, pose: tuple[np.ndarray, np.ndarray], chosen: np.ndarray) -> float:
        level = self.level
        rows = level.particles.rows(j)
        points, weights = level.particles.points[rows][chosen], level.weights[rows][chosen]
        return float(kernels.score(self.table, points, weights, *pose, level.origin, level.cell))


def likelier(problem: Problem, poses: np.ndarray, agreed: np.ndarray) -> tuple[int, int]:
    """How many disputed particles each method's pose explains better, at odds of 200 to 1.

    Both poses climb to their nearest maximum.
    """
    rivals = Rivals.of(problem, poses, agreed)
    ahead = []
    for j in map(int, rivals.disputed):
        every = np.ones(len(problem.clouds[j]), bool)
        ahead.append(rivals.climbed(j, 0, every)[0] - rivals.climbed(j, 1, every)[0])
    return _counted(np.array(ahead))


def held_out(problem: Problem, poses: np.ndarray, agreed: np.ndarray) -> tuple[int, int]:
    """As `likelier`, by localisations that had no part in the climb.

    The spots of a particle are dealt into five parts; each part is scored where both poses come to
    by a climb with the other four.
    """
    rivals = Rivals.of(problem, poses, agreed)
    ahead = []
    for j in map(int, rivals.disputed):
        own = rivals.level.particles.points[rivals.level.particles.rows(j)]
        tree = cKDTree(own)
        spots = connected_components(tree.sparse_distance_matrix(tree, rivals.level.blur))[1]
        part = np.random.default_rng(j).permutation(spots.max() + 1)[spots] % PARTS
        gain = 0.0
        for k in range(PARTS):
            first, second = (
                rivals.scored(j, rivals.climbed(j, which, part != k)[1], part == k)
                for which in (0, 1)
            )
            gain += first - second
        ahead.append(gain)
    return _counted(np.array(ahead))


def _counted(ahead: np.ndarray) -> tuple[int, int]:
    return int((ahead > MIN_MARGIN).sum()), int((ahead < -MIN_MARGIN).sum())


def table_methods(count: int) -> list[list[str]]:
    rows = []
    compared = [
        simulate("letters", count, 0.5, 3.0),
        simulate("letters", count, 0.8, 3.0),
        simulate("ring", count, 0.8, 3.0),
        load("logos", TUD, count=count),
    ]
    for problem in filter(None, compared):
        for name, method in METHODS.items():
            began = time.perf_counter()
            poses = method(problem)
            seconds = time.perf_counter() - began
            share = right(problem, poses, problem.group())[0].mean()
            rows.append([problem.name, name, f"{share:.0%}", f"{seconds:.0f} s"])
            print(*rows[-1], sep="  ", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, default=40, help="of the table of methods")
    parser.add_argument("--seeds", type=int, default=5, help="of the table of logos")
    parser.add_argument(
        "--only", nargs="+", choices=TABLES, default=TABLES, help="tables that are made"
    )
    record.add_option(parser)
    arguments = parser.parse_args()
    if "simulated" in arguments.only:
        record.save(
            "particles-simulated",
            f"fuse with default options; right: within {DEGREES:g} degrees and {RADII:g} radii of"
            " the truth, up to one common motion and the turns of the structure; time: of one seed",
            ["particles", "count", "right", "of these aligned", "aligned, not right", "time"],
            table_simulated(),
            folder=arguments.records,
        )
    if "logos" in arguments.only:
        record.save(
            "particles-logos",
            "275 measured logos, default options; agree: within 10 degrees and 5 nm of TU Delft's"
            " poses, up to one common motion; likelier: of the others, so many poses of ours, and"
            " of TU Delft's, are ahead by odds of 200 to 1 after a climb from both, on the density"
            " of the particles that agree at TU Delft's poses; held out: the same by localisations"
            " that had no part in the climb; time: by the clock, of all cores",
            [
                "poses",
                "agree",
                "aligned",
                "of these agree",
                "FRC",
                "likelier",
                "held out",
                "time",
            ],
            table_logos(arguments.seeds),
            folder=arguments.records,
        )
    if "pores" in arguments.only:
        record.save(
            "particles-pores",
            "50 simulated pores of TU Delft; right: within 5 degrees and 5 nm of the truth up to"
            " the 16 motions of the sites; upright: up to the 8 turns; sites: true ones within 2"
            " nm of one that is found; off: RMS and greatest distance of these; time: by the"
            " clock, of all cores",
            [
                "options",
                "right",
                "upright",
                "aligned",
                "symmetry found",
                "sites",
                "off",
                "time",
            ],
            table_pores(),
            folder=arguments.records,
        )
    if "methods" in arguments.only:
        record.save(
            "particles-methods",
            f"share of {arguments.particles} particles within {DEGREES:g} degrees and {RADII:g}"
            " radii of the truth (logos: of TU Delft's poses), up to one common motion and the"
            " turns of the structure",
            ["particles", "method", "right", "time"],
            table_methods(arguments.particles),
            folder=arguments.records,
        )


if __name__ == "__main__":
    main()
