# SPDX-License-Identifier: MIT
"""The last step of a registration: all poses together, against the surface that all clouds share.

A component of the mixture is a plane with a thickness. Where the surface bends inside it, and its
clouds see different parts, the bend looks like a shift; where noise is as large as a limb, points
of the front meet the back. Both leave a bias that more iterations do not remove. Here

- a patch is some dozen points of several clouds, which are neighbours by their tangential position
  alone (noise along the normal chooses no company) and face the same way (`orient`);
- heights over a patch are a plane of unknown height and tilt, a random surface with the covariance
  |u - u'|^3 (the smooth surface that bends as little as its points allow), and noise;
- how rough and how noisy a patch is, is estimated from all patches: a distribution over pairs of
  variances, of which each patch has its own posterior. On an edge the surface is rough, and says
  little; on a noisy surface curvature is not believed;
- plane and surface are eliminated, so a cloud is compared with what the others say, and all poses
  follow from one system of equations, as in `coframe.em.joint`;
- the fitted surface bends a little towards the noise of a cloud's own points, which would draw the
  cloud along it: how far on average is known, and taken off.

The inverse of that system is the covariance of the poses. Clouds in the plane, clouds without a
surface, and scenes with a view of which it is not known which way it faces stay as they are.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.align import sampling, surface_kernels
from coframe.align.covariance import about_clouds
from coframe.align.level import Run
from coframe.align.recipe import AlignRecipe, DenoiseRecipe, EvidenceRecipe, SurfaceRecipe
from coframe.em import joint_sparse, loop
from coframe.em.constraints import Constraints
from coframe.em.joint import DenseEquations
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.source import Rows, Source
from coframe.nearest import neighbours
from coframe.threads import available_cores, quiet_blas
from coframe.types import Array, Points, Poses

# [size] Parts of the work, at most: the sums do not depend on how many threads share them.
PARTS = 16
# [size] Numbers in the matrices of all parts.
NUMBERS = 20_000_000
# [size] Passes that estimate how variances are distributed over patches; that find the half space
# which all normals of a view lie in.
PASSES = 20
# [limit] Steps. Most clouds need one.
STEPS = 20
# [size] Patches, about, beyond which points belong to fewer of them: bounds the time.
PATCHES = 6000
# [size] Near points for each member of a patch, of which some face otherwise.
CANDIDATES = 4
# [size] Factors of four by which noise and roughness of patches may be below the typical ones, and
# at most above: as far above as the heights of a patch are. Were the largest variance smaller than
# the square of a step in the surface, patches across the step would count as if they were exact.
BELOW, ABOVE = 4, 16
# [limit] Shared patches per cloud, at least.
MIN_PATCHES = 10
# [limit] Cosine of the angle between normals of points that face about alike, by the rough normals
# that one cloud alone has.
ALIKE = 0.5
# [guard] Squared heights: points on one plane to the last bit have no typical one.
SMALLEST = 1e-30
# [guard] Share of the information of each twist that regularises clouds that share no patch.
LEAST = 1e-9


@dataclass(frozen=True)
class Surface:
    """Points of a cloud, with what the cloud itself says about the surface that they lie on."""

    points: Points
    weights: Float[Array, " N"]
    feet: Points  # the points, moved along their normals onto the plane of their neighbours
    normals: Points
    flatness: float  # typical thickness of a patch over its width
    noisy: bool


@dataclass(frozen=True)
class Refined:
    """Poses, and the covariance of each pose's error (see `covariance`)."""

    poses: Poses
    covariance: Float[Array, "M 6 6"]


def refine(run: Run, poses: Poses, count: int) -> Refined | None:
    """The poses that the clouds' common surface asks for, of at most `count` points of each cloud.

    None where the clouds have no common surface, where it is not known how they face, and where
    targets tie them, which the step does not know.
    """
    recipe = run.recipe.surface
    M, D = len(poses), poses.shape[1] - 1
    if D != 3 or M < 2 or joint_sparse.pays(M, run.last.components) or run.constraints.targets:
        return None
    rows = [sampling.draw_rows(available, count, run.rng) for available in run.counts]
    shuffles = [np.random.default_rng(seed) for seed in run.rng.integers(2**63, size=M)]
    surfaces = run.clouds.map(
        find_surface, rows, run.frames.each(), shuffles, shared=(run.recipe.denoise,)
    )
    if np.median([each.flatness for each in surfaces]) > recipe.max_flatness:
        return None
    return refine_surfaces(surfaces, poses, run.constraints, run.recipe, run.threads)


def find_surface(
    cloud: Source,
    rows: Rows,
    frame: Normalisation,
    rng: np.random.Generator,
    recipe: DenoiseRecipe,
) -> Surface:
    """Some points of a cloud that count, in internal coordinates and random order."""
    some = cloud.counted().take(rows)
    order = rng.permutation(len(some.points))
    points = frame.enter([some.points])[0][order]
    weights = np.ones(len(points)) if some.weights is None else some.weights[order]
    return surface_of(points, weights / weights.mean(), recipe)


def surface_of(points: Points, weights: Float[Array, " N"], recipe: DenoiseRecipe) -> Surface:
    """Normals and feet by each point's own neighbours: few, or more where the cloud is noisy."""
    tree = cKDTree(points)
    some = sampling.patches(tree, points[: sampling.SAMPLE], recipe)
    noisy = sampling.noisy(some, recipe)
    wide = sampling.axes(some)[0]
    flatness = float(np.median(wide[:, 0] / np.maximum(wide[:, 1], np.finfo(float).tiny)))
    count = recipe.neighbours if noisy else recipe.inner
    near = sampling.every_patch(tree, replace(recipe, neighbours=count))
    normals = np.ascontiguousarray(sampling.axes(near)[1][:, :, 0])
    height = ((points - near.mean(1)) * normals).sum(1)
    return Surface(points, weights, points - height[:, None] * normals, normals, flatness, noisy)


def orient(normals: Points, points: Points, centre: Float[Array, " 3"]) -> tuple[Points, float]:
    """Normals of one view turned to the side that it was taken from, and how well that is known.

    A view is taken from one side, so all normals lie in one half space; which of the two, follows
    from the body, whose surface faces away from the centre of the scene: 1 where all of it does, 0
    where that decides nothing, as on a flat wall. The other answer would be as good if it were the
    same for all clouds.
    """
    axis = np.linalg.eigh(normals.T @ normals)[1][:, 2]
    away = normals @ axis < 0
    for _ in range(PASSES):
        axis = (normals * np.where(away, -1.0, 1.0)[:, None]).sum(0)
        before, away = away, normals @ axis < 0
        if (away == before).all():
            break
    turned = normals * np.where(away, -1.0, 1.0)[:, None]
    outward = ((points - centre) * turned).sum(1)
    decided = float(outward.mean() / max(np.abs(outward).mean(), np.finfo(float).tiny))
    return turned * (1.0 if decided >= 0 else -1.0), abs(decided)


@dataclass(frozen=True)
class Scene:
    """All clouds under their poses."""

    points: Points
    feet: Points
    normals: Points
    weights: Float[Array, " N"]
    cloud: Int[Array, " N"]
    # Which clouds have normals that are turned to the sensor; others may face either way.
    oriented: Bool[Array, " M"]

    @classmethod
    def of(cls, surfaces: Sequence[Surface], poses: Poses, recipe: EvidenceRecipe) -> "Scene":
        """Move the clouds, and orient the normals of each as far as it alone can tell."""
        each = list(zip(surfaces, poses, strict=True))
        points = [geometry.transform(T, one.points) for one, T in each]
        # Each cloud counts alike: where it has few points, it is no less a part of the scene.
        centre = np.mean([cloud.mean(0) for cloud in points], axis=0)
        turned = [
            orient(one.normals @ geometry.rotation(T).T, cloud, centre)
            for (one, T), cloud in zip(each, points, strict=True)
        ]
        return cls(
            np.concatenate(points),
            np.concatenate([geometry.transform(T, one.feet) for one, T in each]),
            np.concatenate([normals for normals, _ in turned]),
            np.concatenate([one.weights for one in surfaces]),
            np.repeat(np.arange(len(surfaces)), [len(one.points) for one in surfaces]),
            np.array([known > recipe.sideways for _, known in turned]),
        )

    def facing_alike(
        self, rows: Int[Array, " N"], near: Int[Array, "N k"], recipe: SurfaceRecipe
    ) -> "Scene | None":
        """The scene with views turned so that neighbours face alike, where the centre cannot tell.

        `near` are the neighbours of the points in `rows`.
        What the centre says is not believed where neighbours of different clouds do not mostly face
        alike: scans from within a place look all around. Clouds of which the centre cannot tell,
        and whose own neighbours face away from each other, were seen from all around, too: they are
        not oriented. None where views disagree however they are turned, as they do on both sides of
        a sheet.
        """
        M = len(self.oriented)
        alike = np.einsum("nki,ni->nk", self.normals[near], self.normals[rows]).ravel()
        pair = (self.cloud[rows, None] * M + self.cloud[near]).ravel()
        signed = np.bincount(pair, alike, M * M).reshape(M, M)
        total = np.bincount(pair, np.abs(alike), M * M).reshape(M, M)
        across = self.oriented[:, None] & self.oriented & ~np.eye(M, dtype=bool)
        # One if all face as their surface does, zero by chance: it is nearer to chance.
        if 2 * signed[across].sum() < total[across].sum():
            return replace(self, oriented=np.zeros(M, bool))
        own = np.diagonal(signed) > recipe.min_agreement * np.diagonal(total)
        if (self.oriented | ~own).all():
            return self
        between = own[:, None] & own & ~np.eye(M, dtype=bool)
        signed, total = np.where(between, signed + signed.T, 0), np.where(between, total, 0)
        side = np.where(np.linalg.eigh(signed)[1][:, -1] < 0, -1.0, 1.0)
        if side @ signed @ side < 2 * recipe.min_agreement * total.sum():
            return None
        return replace(self, normals=self.normals * side[self.cloud][:, None], oriented=own)


@dataclass(frozen=True)
class Solved:
    """Normal equations of all clouds' twists about the centre."""

    equations: DenseEquations
    centre: Float[Array, " 3"]

    def twists(self, poses: Poses, constraints: Constraints) -> Float[Array, "M 6"]:
        """The step, priors included."""
        H, g = self.equations.H.copy(), self.equations.gradient.copy()
        equations = DenseEquations(H, g)
        for prior in constraints.priors:
            equations.add(prior.cloud, *prior.normal_equations(poses[prior.cloud], self.centre))
        extra = np.full(g.shape, LEAST * np.diagonal(H).mean())
        allowed = constraints.allowed(len(poses), 3)
        found = equations.solve(-g, extra, allowed, constraints.gauge_free)
        return found - found.mean(0) if constraints.gauge_free else found

    def chance(self, twists: Float[Array, "M 6"], constraints: Constraints) -> float:
        """The squared length of a step in standard deviations, per degree of freedom."""
        x = twists.ravel()
        return float(x @ self.equations.H @ x / self.freedom(constraints))

    def freedom(self, constraints: Constraints) -> int:
        """Degrees of freedom of a step, at least one."""
        allowed = constraints.allowed(len(self.equations.gradient), 3)
        return max(int(allowed.sum()) - 6 * constraints.gauge_free, 1)

    def covariance(
        self, poses: Poses, constraints: Constraints, bias: Float[Array, "M 6"]
    ) -> Float[Array, "M 6 6"]:
        """Of each pose's error: chance, and a bias of unknown sign."""
        H, g = self.equations.H.copy(), self.equations.gradient.copy()
        equations = DenseEquations(H, g)
        for prior in constraints.priors:
            equations.add(prior.cloud, *prior.normal_equations(poses[prior.cloud], self.centre))
        found = equations.covariances(constraints.allowed(len(poses), 3), constraints.gauge_free)
        return about_clouds(found + bias[:, :, None] * bias[:, None], self.centre, poses)


@quiet_blas()
def refine_surfaces(
    surfaces: Sequence[Surface],
    poses: Poses,
    constraints: Constraints,
    recipe: AlignRecipe,
    threads: int | None = None,
) -> Refined | None:
    """Steps of all poses, while they are longer than chance makes them: mostly one.

    Another step from the end of one chooses patches and variances by its own outcome, which is
    worse than one step, unless that one was too short: a body that has slid along itself meets new
    surface on its way back. Then the next step is clearly longer than chance, too. With chi^2 its
    squared length in standard deviations, per degree of freedom, that is one on average without
    errors, and its variance is 2 over the degrees of freedom.

    EM's poses are another estimate from the same points. Where the two differ by no more than
    chance, half of their difference counts as an error of unknown sign in the covariance; where
    they differ by more, EM's have a bias, and it is 1/2 / chi^2 of the difference.
    """
    noisy = bool(np.median([one.noisy for one in surfaces]) > 0.5)
    found = None
    for _ in range(STEPS):
        now = equations_of(surfaces, poses, noisy, recipe, threads)
        if now is None:
            break
        twists = now.twists(poses, constraints)
        if loop.largest_step(twists, RADIUS) > recipe.distinct:
            break  # another place: far more than a last step
        chance = now.chance(twists, constraints)
        clear = chance > 1 + recipe.evidence.clear * np.sqrt(2 / now.freedom(constraints))
        if found is not None and not clear:
            break
        doubt = 0.5 / max(chance, 1.0) * twists
        poses = geometry.about(geometry.exp(twists), now.centre) @ poses
        found = Refined(poses, now.covariance(poses, constraints, doubt))
        if not clear:
            break
    return found


def equations_of(
    surfaces: Sequence[Surface],
    poses: Poses,
    noisy: bool,
    recipe: AlignRecipe,
    threads: int | None,
) -> Solved | None:
    """The normal equations at given poses; None where hardly any patch is shared."""
    size = recipe.denoise.neighbours
    scene = Scene.of(surfaces, poses, recipe.evidence)
    M, N = len(surfaces), len(scene.points)
    pool = recipe.surface.noisy_pool * recipe.denoise.neighbours if noisy else recipe.denoise.inner
    if CANDIDATES * max(size, pool) > N:
        return None
    coverage = min(recipe.surface.coverage, max(1, PATCHES * size // N))
    # Points are in random order, so every so many of them are random ones of each cloud.
    at = np.arange(0, N, max(1, size // coverage))
    tree = cKDTree(scene.feet)
    # In the tree's order neighbours follow each other, here and below: what they need is at hand.
    at = tree.indices[np.isin(tree.indices, at)]
    cores = available_cores() if threads is None else threads
    parts = max(1, min(PARTS, NUMBERS // (6 * M) ** 2))

    def share(kernel: Callable[..., Any], count: int, *before: Any, after: Any = None) -> None:
        cuts = np.linspace(0, count, parts + 1).astype(int)
        with ThreadPoolExecutor(min(cores, parts)) as threads:
            list(
                threads.map(
                    lambda part: kernel(
                        *before, cuts[part], cuts[part + 1], *(after(part) if after else ())
                    ),
                    range(parts),
                )
            )

    # Of most points, nearly all of the nearest ones face alike.
    order = tree.indices
    near = neighbours(tree, pool + pool // 2, cores)
    facing = scene.facing_alike(order, near[:, 1 : recipe.denoise.inner], recipe.surface)
    if facing is None:
        return None
    scene = facing
    pooled, lacks = np.empty_like(scene.normals), np.ones(N, bool)

    def pool_normals(some: Int[Array, " n"], near: Int[Array, "n k"]) -> None:
        about = scene.points, scene.normals, scene.oriented, scene.cloud, pool, ALIKE
        before = some, near, *about
        share(surface_kernels.pool_normals, len(some), *before, after=lambda part: (pooled, lacks))

    pool_normals(order, near)
    rest = order[lacks[order]]
    if len(rest):
        pool_normals(rest, tree.query(scene.feet[rest], CANDIDATES * pool, workers=cores)[1])
    scene = replace(scene, normals=pooled)
    del near
    P = len(at)
    rows, normal = np.full((P, size), -1), np.zeros((P, 3))
    width = np.zeros(P)
    nearest = tree.query(scene.feet[at], CANDIDATES * size, workers=cores)[1]
    share(
        surface_kernels.choose_members,
        P,
        *(nearest, scene.feet, scene.points, scene.normals, scene.oriented, scene.cloud, at),
        geometry.ALIKE,
        after=lambda part: (rows, normal, width),
    )
    kept = (rows[:, 0] >= 0) & (width > 0)
    if kept.sum() < MIN_PATCHES * M:
        return None
    rows, normal, width, at = rows[kept], normal[kept], width[kept], at[kept]
    P = len(rows)
    A, D = np.empty((P, size - 3, size)), np.empty((P, size - 3))
    height, where = np.empty((P, size)), np.empty((P, size, 2))
    share(
        surface_kernels.decompose,
        P,
        *(rows, normal, width, scene.feet, at, scene.points, scene.weights),
        after=lambda part: (A, D, height, where),
    )
    squares = np.einsum("pkq,pq->pk", A, height) ** 2
    typical = max(float(np.median(squares)), SMALLEST)
    above = np.log(max(squares.mean(1).max() / typical, 1.0)) / np.log(4)
    steps = 4.0 ** np.arange(-BELOW, min(int(np.ceil(above)), ABOVE) + 1)
    noise, rough = (each.ravel() * typical for each in np.meshgrid(steps, 4 * steps))
    likelihood = np.empty((P, len(noise)))
    share(
        surface_kernels.evidence,
        P,
        *(A, D, height, noise, rough, typical),
        after=lambda part: (likelihood,),
    )
    likelihood = np.exp(likelihood - likelihood.max(1, keepdims=True))
    prior = np.full(len(noise), 1 / len(noise))
    posterior = likelihood
    for _ in range(PASSES):
        posterior = likelihood * prior
        posterior /= posterior.sum(1, keepdims=True)
        prior = posterior.mean(0)
    centre = scene.points.mean(0)
    H, g = np.zeros((parts, 6 * M, 6 * M)), np.zeros((parts, 6 * M))
    share(
        surface_kernels.normal_equations,
        P,
        *(A, D, height, where, rows, normal, width, posterior, noise, rough, scene.cloud),
        *(scene.points, centre, scene.weights),
        after=lambda part: (H[part], g[part]),
    )
    # Each point is in several patches, which say the same of it.
    return Solved(
        DenseEquations(H.sum(0) / coverage, g.sum(0).reshape(M, 6) / coverage),
        centre,
    )
