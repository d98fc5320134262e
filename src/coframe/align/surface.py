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
  follow from one system of equations, as in `coframe.em.joint`.

Clouds in the plane, clouds without a surface, and scenes with a view of which it is not known which
way it faces stay as they are. `SurfaceRecipe` says which clouds take the step.
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
from coframe.align.level import Run
from coframe.align.recipe import DenoiseRecipe, SurfaceRecipe
from coframe.em import joint_sparse, loop
from coframe.em.constraints import Constraints
from coframe.em.joint import DenseEquations
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.source import Rows, Source
from coframe.threads import available_cores, quiet_blas
from coframe.types import Array, Points, Poses

# [size] Parts of the work, at most: the sums do not depend on how many threads share them.
PARTS = 16
# [size] Numbers in the matrices of all parts.
NUMBERS = 20_000_000
# [size] Passes that estimate how variances are distributed over patches.
PASSES = 20
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


def refine(run: Run, poses: Poses, count: int) -> Poses:
    """The poses that the clouds' common surface asks for, of at most `count` points of each cloud.

    The same poses where the clouds have no common surface.
    """
    recipe = run.recipe.surface
    M, D = len(poses), poses.shape[1] - 1
    if D != 3 or not (recipe.noisy or recipe.clean) or joint_sparse.pays(M, run.last.components):
        return poses
    rows = [sampling.draw_rows(available, count, run.rng) for available in run.counts]
    shuffles = [np.random.default_rng(seed) for seed in run.rng.integers(2**63, size=M)]
    surfaces = run.clouds.map(
        find_surface, rows, run.frames.each(), shuffles, shared=(run.recipe.denoise,)
    )
    if np.median([each.flatness for each in surfaces]) > recipe.max_flatness:
        return poses
    noisy = np.median([each.noisy for each in surfaces]) > 0.5
    if not (recipe.noisy if noisy else recipe.clean):
        return poses
    return refine_surfaces(surfaces, poses, run.constraints, recipe, run.threads)


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
    near = sampling.patches(tree, points, replace(recipe, neighbours=count))
    normals = np.ascontiguousarray(sampling.axes(near)[1][:, :, 0])
    height = ((points - near.mean(1)) * normals).sum(1)
    return Surface(points, weights, points - height[:, None] * normals, normals, flatness, noisy)


def orient(
    normals: Points, points: Points, centre: Float[Array, " 3"], recipe: SurfaceRecipe
) -> tuple[Points, bool]:
    """Normals of one view turned to the side that it was taken from, and whether that is known.

    A view is taken from one side, so all normals lie in one half space; which of the two, follows
    from the body, whose surface faces away from the centre of the scene. Where that is hardly
    decided, as on a flat wall, it is not known. The other answer would be as good if it were
    the same for all clouds.
    """
    axis = np.linalg.eigh(normals.T @ normals)[1][:, 2]
    for _ in range(recipe.orientations):
        axis = (normals * np.where(normals @ axis < 0, -1.0, 1.0)[:, None]).sum(0)
    turned = normals * np.where(normals @ axis < 0, -1.0, 1.0)[:, None]
    outward = ((points - centre) * turned).sum(1)
    decided = float(outward.mean() / max(np.abs(outward).mean(), np.finfo(float).tiny))
    return turned * (1.0 if decided >= 0 else -1.0), abs(decided) > recipe.min_outward


@dataclass(frozen=True)
class Scene:
    """All clouds under their poses."""

    points: Points
    feet: Points
    normals: Points
    weights: Float[Array, " N"]
    cloud: Int[Array, " N"]
    oriented: Bool[Array, " M"]

    @classmethod
    def of(cls, surfaces: Sequence[Surface], poses: Poses, recipe: SurfaceRecipe) -> "Scene":
        """Move the clouds, and orient their normals."""
        each = list(zip(surfaces, poses, strict=True))
        points = [geometry.transform(T, one.points) for one, T in each]
        # Each cloud counts alike: where it has few points, it is no less a part of the scene.
        centre = np.mean([cloud.mean(0) for cloud in points], axis=0)
        turned = [
            orient(one.normals @ geometry.rotation(T).T, cloud, centre, recipe)
            for (one, T), cloud in zip(each, points, strict=True)
        ]
        return cls(
            np.concatenate(points),
            np.concatenate([geometry.transform(T, one.feet) for one, T in each]),
            np.concatenate([normals for normals, _ in turned]),
            np.concatenate([one.weights for one in surfaces]),
            np.repeat(np.arange(len(surfaces)), [len(one.points) for one in surfaces]),
            np.array([known for _, known in turned]),
        )


@dataclass(frozen=True)
class Solved:
    """Normal equations of all clouds' twists about the centre, and robust weights of the points."""

    equations: DenseEquations
    centre: Float[Array, " 3"]
    weights: Float[Array, " N"]
    patches: int

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

    def gain(self, twists: Float[Array, "M 6"]) -> float:
        """By how much a step raises the log-likelihood."""
        x, g = twists.ravel(), self.equations.gradient.ravel()
        return -float(g @ x + 0.5 * x @ self.equations.H @ x)


@quiet_blas()
def refine_surfaces(
    surfaces: Sequence[Surface],
    poses: Poses,
    constraints: Constraints,
    recipe: SurfaceRecipe,
    threads: int | None = None,
) -> Poses:
    """Gauss-Newton steps of all poses; the same poses where it is not known how clouds face."""
    found, weights = poses, None
    for _ in range(recipe.iterations):
        now = equations_of(surfaces, found, weights, recipe, threads)
        if now is None:
            return poses
        weights = now.weights
        twists = now.twists(found, constraints)
        if loop.largest_step(twists, RADIUS) > recipe.max_step:
            return poses  # far more than a last step: not what it is made for
        found = geometry.about(geometry.exp(twists), now.centre) @ found
        if now.gain(twists) < recipe.min_gain * recipe.coverage * twists.size / 2:
            break
    return found


def equations_of(
    surfaces: Sequence[Surface],
    poses: Poses,
    robust: Float[Array, " N"] | None,
    recipe: SurfaceRecipe,
    threads: int | None,
) -> Solved | None:
    """The normal equations at given poses; None where hardly any patch is shared."""
    scene = Scene.of(surfaces, poses, recipe)
    M, N = len(surfaces), len(scene.points)
    if not scene.oriented.all():
        return None
    noisy = np.median([one.noisy for one in surfaces]) > 0.5
    size = recipe.noisy_size if noisy else recipe.size
    near = recipe.candidates * size
    if near > N:
        return None
    weights = scene.weights if robust is None else robust
    # Points are in random order, so every so many of them are random ones of each cloud.
    at = np.arange(0, N, max(1, size // recipe.coverage))
    tree = cKDTree(scene.feet)
    cores = available_cores() if threads is None else threads
    nearest = tree.query(scene.feet[at], near, workers=cores)[1]
    P, G = len(at), recipe.grid
    rows, normal = np.full((P, size), -1), np.zeros((P, 3))
    width = np.zeros(P)
    parts = max(1, min(PARTS, NUMBERS // (6 * M) ** 2))

    def share(kernel: Callable[..., Any], count: int, *before: Any, after: Any = None) -> None:
        cuts = np.linspace(0, count, parts + 1).astype(int)
        with ThreadPoolExecutor(min(cores, parts)) as pool:
            list(
                pool.map(
                    lambda part: kernel(
                        *before, cuts[part], cuts[part + 1], *(after(part) if after else ())
                    ),
                    range(parts),
                )
            )

    share(
        surface_kernels.choose_members,
        P,
        *(nearest, scene.feet, scene.points, scene.normals, scene.oriented, scene.cloud, at),
        recipe.min_cosine,
        after=lambda part: (rows, normal, width),
    )
    kept = (rows[:, 0] >= 0) & (width > 0)
    if kept.sum() < recipe.min_patches * M:
        return None
    rows, normal, width, at = rows[kept], normal[kept], width[kept], at[kept]
    P = len(rows)
    A, D = np.empty((P, size - 3, size)), np.empty((P, size - 3))
    height, where = np.empty((P, size)), np.empty((P, size, 2))
    share(
        surface_kernels.decompose,
        P,
        *(rows, normal, width, scene.feet, at, scene.points, weights),
        after=lambda part: (A, D, height, where),
    )
    typical = np.median(np.einsum("pkq,pq->pk", A, height) ** 2)
    steps = 4.0 ** np.arange(-G, G + 1)
    noise, rough = (each.ravel() * typical for each in np.meshgrid(steps, 4 * steps))
    likelihood = np.empty((P, len(noise)))
    share(
        surface_kernels.evidence,
        P,
        *(A, D, height, noise, rough),
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
    squared, count = np.zeros((parts, N)), np.zeros((parts, N))
    share(
        lambda *given: surface_kernels.normal_equations(*given[:-6], weights, *given[-6:]),
        P,
        *(A, D, height, where, rows, normal, width, posterior, noise, rough, scene.cloud),
        *(scene.points, centre),
        after=lambda part: (H[part], g[part], squared[part], count[part]),
    )
    z = squared.sum(0) / np.maximum(count.sum(0), 1)
    tails = recipe.tails
    return Solved(
        DenseEquations(H.sum(0), g.sum(0).reshape(M, 6)),
        centre,
        scene.weights * (tails + 1) / (tails + z),
        P,
    )
