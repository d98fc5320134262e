# SPDX-License-Identifier: MIT
"""`fuse`: many sparse copies of one structure, without a template."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.geometry import pose, transform
from coframe.particles.recipe import FuseRecipe
from coframe.particles.resolution import fourier_correlation, resolution
from coframe.particles.search import (
    Found,
    Level,
    Motions,
    Particles,
    no_symmetry,
    place,
    sample,
    sweep,
)
from coframe.particles.sites import find_sites
from coframe.particles.symmetry import find_symmetry, imposed_symmetry
from coframe.threads import available_cores, pool, quiet_blas
from coframe.types import Array, Points, Poses

RECIPE = FuseRecipe()
# [limit] Particles that a structure can be fused from.
FEWEST_PARTICLES = 4
# [limit] Points of a particle.
FEWEST_POINTS = 3
# [limit] Orders of symmetry that are looked for.
ORDERS = tuple(range(2, 13))


@dataclass(frozen=True)
class Fit:
    """How well one particle fits the structure made of all others.

    Attributes
    ----------
    verdict : str
        "aligned", "weak" or "failed".
    reason : str
        Why, in a sentence.
    margin : float
        Log odds of its pose over the best pose that differs, apart from the symmetry found.
    misfit : float
        Robust standard deviations by which it fits worse than is typical.
    """

    verdict: str
    reason: str
    margin: float
    misfit: float


@dataclass(frozen=True, eq=False, repr=False)
class Fusion:
    """Particles in one frame, and the structure.

    Attributes
    ----------
    poses : array (M, D+1, D+1)
        Pose j carries particle j into the common frame, x = R v + t.
    verdicts : tuple of Fit
        One a particle.
    mixture : Mixture
        The sites: means, and covariances without the noise of the localisations.
    visibility : array (M, K)
        Share of each particle's localisations that belong to each site.
    resolution : float
        Length at which the Fourier correlation of two halves falls below 1/7 [unit].
    correlation : array (F, 2)
        Spatial frequency [1 / unit] and Fourier ring (shell) correlation.
    symmetry : int
        Order that was imposed; 1 is none.
    symmetry_found : int
        Highest order of a turn that carries the structure onto itself; 1 is none.
    symmetries : array (G, D+1, D+1)
        Motions that carry the structure onto itself. The pose of a particle is known up to these.
    scores : array
        Score of each random start on particles left out.
    seed : int
    warnings : tuple of str
    """

    poses: Poses
    verdicts: tuple[Fit, ...]
    mixture: Mixture
    visibility: Float[Array, "M K"]
    resolution: float
    correlation: Float[Array, "F 2"]
    symmetry: int
    symmetry_found: int
    symmetries: Float[Array, "G D1 D1"]
    scores: Float[Array, " S"]
    seed: int
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{sum(fit.verdict == word for fit in self.verdicts)} {word}"
            for word in ("aligned", "weak", "failed")
        )
        return (
            f"Fusion({len(self.poses)} particles: {counts}; {len(self.mixture.means)} sites,"
            f" resolution {self.resolution:.3g}, symmetry found {self.symmetry_found})"
        )

    def merged(self, particles: Sequence[Array]) -> Points:
        """All localisations of particles that did not fail, in the common frame."""
        return np.concatenate(
            [
                transform(T, np.asarray(points, float))
                for T, points, fit in zip(self.poses, particles, self.verdicts, strict=True)
                if fit.verdict != "failed"
            ]
        )

    def save(self, folder: str | Path) -> None:
        """Write `fusion.json` (verdicts and figures) and `fusion.npz` (arrays) into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "format": "coframe-fusion/1",
            "particles": [
                {
                    "pose": T.tolist(),
                    "verdict": fit.verdict,
                    "reason": fit.reason,
                    # Null: no other pose was found.
                    "margin": fit.margin if np.isfinite(fit.margin) else None,
                    "misfit": fit.misfit,
                }
                for T, fit in zip(self.poses, self.verdicts, strict=True)
            ],
            "resolution": self.resolution,
            "symmetry": self.symmetry,
            "symmetry_found": self.symmetry_found,
            "seed": self.seed,
            "warnings": list(self.warnings),
        }
        (folder / "fusion.json").write_text(json.dumps(content, indent=1) + "\n")
        np.savez_compressed(
            folder / "fusion.npz",
            poses=self.poses,
            sites=self.mixture.means,
            covariances=self.mixture.covariances,
            weights=self.mixture.weights,
            visibility=self.visibility,
            correlation=self.correlation,
            symmetries=self.symmetries,
        )


def fuse(
    particles: Sequence[Array],
    sigma: Sequence[Array] | float | None = None,
    symmetry: int = 1,
    *,
    seed: int = 0,
    threads: int | None = None,
) -> Fusion:
    """Fuse many sparse, noisy copies of one structure, without a template.

    Each particle may be turned and shifted arbitrarily and may miss labels. Random starts are
    sampled on few particles and judged on others; then all particles are searched against the
    structure made of all others, until it no longer changes.

    Parameters
    ----------
    particles : sequence of arrays (N_j, D)
        Localisations, D = 2 or 3.
    sigma : float or sequence of arrays, optional
        Standard deviation of each localisation in the particles' unit: a number for all, or an
        array for each particle: (N_j,), (N_j, 1), (N_j, D) along its axes, or in space (N_j, 2),
        lateral and axial. None: unknown; sites then include the noise.
    symmetry : int, optional
        Impose turns of this order about an axis that is found. 1: none; a symmetry is then reported
        and not imposed.
    seed : int, optional
        Of everything that is drawn at random.
    threads : int, optional
        None: all cores. The result does not depend on it.

    Returns
    -------
    Fusion

    Raises
    ------
    InputError
        If particles are too few, too small, of different dimension or not finite.

    Examples
    --------
    >>> scans = coframe.simulate.particles(np.random.default_rng(0), kind="letters")
    >>> fusion = coframe.fuse(scans.clouds, scans.sigma)
    >>> fusion.poses.shape
    (50, 3, 3)
    """
    clouds, noise = _checked(particles, sigma)
    if symmetry not in (1, *ORDERS):
        raise InputError(f"symmetry: expected 1 to {ORDERS[-1]}, found {symmetry}")
    threads = threads or available_cores()
    with quiet_blas():
        return _fuse(clouds, noise, symmetry, seed, threads, RECIPE)


def _checked(
    particles: Sequence[Array], sigma: Sequence[Array] | float | None
) -> tuple[list[Float[Array, "_ D"]], list[Float[Array, "_ D"]]]:
    """Points and standard deviations along the axes, in double precision."""
    clouds = [np.asarray(points, float) for points in particles]
    if len(clouds) < FEWEST_PARTICLES:
        raise InputError(
            f"particles: expected at least {FEWEST_PARTICLES}, found {len(clouds)}; for few clouds"
            " use register"
        )
    for j, points in enumerate(clouds):
        if points.ndim != 2 or points.shape[1] not in (2, 3) or len(points) < FEWEST_POINTS:
            raise InputError(
                f"particle {j}: expected at least {FEWEST_POINTS} rows of 2 or 3 coordinates, found"
                f" shape {points.shape}; leave it out"
            )
        if points.shape[1] != clouds[0].shape[1]:
            raise InputError(
                f"particle {j}: expected {clouds[0].shape[1]} coordinates as in particle 0, found"
                f" {points.shape[1]}"
            )
        if not np.isfinite(points).all():
            raise InputError(f"particle {j}: coordinates are not finite; leave those rows out")
    if sigma is None or isinstance(sigma, int | float):
        return clouds, [np.full(points.shape, float(sigma or 0)) for points in clouds]
    if len(sigma) != len(clouds):
        raise InputError(
            f"sigma: expected {len(clouds)} arrays, one a particle, found {len(sigma)}"
        )
    noise = []
    for j, (points, given) in enumerate(zip(clouds, sigma, strict=True)):
        values = np.asarray(given, float)
        values = (
            values.reshape(len(values), -1) if values.ndim else np.full((len(points), 1), values)
        )
        if points.shape[1] == 3 and values.shape[1] == 2:
            values = values[:, [0, 0, 1]]
        if len(values) != len(points) or values.shape[1] not in (1, points.shape[1]):
            raise InputError(
                f"sigma of particle {j}: expected one value, or one an axis, for each of"
                f" {len(points)} points, found shape {np.shape(given)}"
            )
        if not (np.isfinite(values) & (values >= 0)).all():
            raise InputError(f"sigma of particle {j}: expected finite values that are not negative")
        noise.append(np.broadcast_to(values, points.shape))
    return clouds, noise


def _fuse(
    clouds: list[Float[Array, "_ D"]],
    noise: list[Float[Array, "_ D"]],
    symmetry: int,
    seed: int,
    threads: int,
    recipe: FuseRecipe,
) -> Fusion:
    rng = np.random.default_rng(seed)
    given, centres, unit = _prepare(clouds, noise)
    radius = float(np.quantile(np.linalg.norm(given.points, axis=1), 0.99))
    thin = given.thinned(recipe.search_points, rng)
    motions, scores = _start(given, thin, radius, recipe, rng, threads)
    coarse = Level(thin, recipe.coarse_blur, recipe, radius)
    fine = Level(given, recipe.fine_blur, recipe, radius)
    group = no_symmetry()
    for number in range(recipe.sweeps):
        if symmetry > 1 and number == recipe.sweeps // 2:
            group, agreement = imposed_symmetry(fine, motions, symmetry, recipe)
        found = sweep(coarse, fine, motions, group, recipe, rng, threads)
        motions = _best(found)
    order, motion_group, _ = find_symmetry(fine, motions, recipe, ORDERS)
    if symmetry > 1:
        motion_group = group
    warnings = []
    if symmetry > 1 and agreement < recipe.min_symmetry:
        warnings.append(
            f"symmetry {symmetry} was imposed, but the structure without it agrees with it only to"
            f" {agreement:.0%}; compare with symmetry=1"
        )
    if symmetry == 1 and order > 1:
        warnings.append(
            f"the structure is carried onto itself by turns of order {order}: each pose is one of"
            f" {len(motion_group.t)} that fit equally; give symmetry={order} to impose it"
        )
    fits = _judge(fine, found, motion_group, recipe)
    used = np.array([fit.verdict != "failed" for fit in fits])
    kept = given.subset(np.flatnonzero(used)) if used.any() else given
    chosen = used if used.any() else ~used
    sites = find_sites(
        kept, Motions(motions.R[chosen], motions.t[chosen]), group, recipe, radius, threads
    )
    D = given.dimension
    poses = pose(
        motions.R[:, :D, :D],
        unit * motions.t[:, :D] - np.einsum("jde,je->jd", motions.R[:, :D, :D], centres),
    )
    frequencies, correlations = halves(clouds, poses, seed, 4 * unit * radius)
    variances = unit**2 * sites.variances
    mixture = Mixture.spheres(
        unit * sites.means[:, :D],
        variances,
        sites.priors,
        recipe.outliers / (2 * unit * radius) ** D,
    )
    return Fusion(
        poses=poses,
        verdicts=fits,
        mixture=mixture,
        visibility=_visibility(clouds, noise, poses, mixture),
        resolution=resolution(frequencies, correlations),
        correlation=np.stack([frequencies, correlations], 1),
        symmetry=symmetry,
        symmetry_found=order,
        symmetries=pose(motion_group.R[:, :D, :D], unit * motion_group.t[:, :D]),
        scores=scores,
        seed=seed,
        warnings=tuple(warnings),
    )


def _prepare(
    clouds: list[Float[Array, "_ D"]], noise: list[Float[Array, "_ D"]]
) -> tuple[Particles, Float[Array, "M D"], float]:
    """Particles about their centres in radii; the centres and the radius.

    Points that are localised worse than the particle is wide count little for its centre.
    """
    D = clouds[0].shape[1]
    centres = np.zeros((len(clouds), D))
    for j, (points, sigma) in enumerate(zip(clouds, noise, strict=True)):
        middle = np.median(points, axis=0)
        spread = np.median(((points - middle) ** 2).sum(1))
        weights = spread / (spread + (sigma**2).sum(1)) if spread > 0 else np.ones(len(points))
        centres[j] = np.average(points - middle, axis=0, weights=weights) + middle
    local = np.concatenate([p - c for p, c in zip(clouds, centres, strict=True)])
    unit = float(np.sqrt(np.median((local**2).sum(1))))
    if unit == 0:
        raise InputError("particles: all points of most particles coincide; give localisations")
    padded, variances = np.zeros((len(local), 3)), np.zeros((len(local), 3))
    padded[:, :D] = local / unit
    variances[:, :D] = (np.concatenate(noise) / unit) ** 2
    first = np.concatenate([[0], np.cumsum([len(points) for points in clouds])])
    return Particles(padded, variances, first, D), centres, unit


def _best(found: list[Found]) -> Motions:
    return Motions(np.array([f.R[0] for f in found]), np.array([f.t[0] for f in found]))


def _start(
    given: Particles,
    thin: Particles,
    radius: float,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
) -> tuple[Motions, Float[Array, " S"]]:
    """Random starts on some particles, the best on others chosen; all particles placed on it."""
    M = len(given)
    count = min(recipe.start_particles, max(M - recipe.validation, (M + 1) // 2))
    seeds = rng.spawn(recipe.chains)
    mixed = rng.permutation(M)
    own, others = np.sort(mixed[:count]), np.sort(mixed[count:][: recipe.validation])
    chains = list(
        pool(threads).map(lambda s: sample(thin.subset(own), recipe, radius, s)[0], seeds)
    )
    levels = [
        (
            Level(thin.subset(chosen), recipe.coarse_blur, recipe, radius),
            Level(given.subset(chosen), recipe.fine_blur, recipe, radius),
        )
        for chosen in (own, others, np.arange(M))
    ]
    refined = []
    scores = []
    for chain in chains:
        motions = _best(sweep(*levels[0], chain, no_symmetry(), recipe, rng, threads))
        refined.append(motions)
        placed = place(*levels[1], (*levels[0], motions), recipe, rng, threads)
        scores.append(float(np.mean([f.scores[0] for f in placed])))
    model = refined[int(np.argmax(scores))]
    return _best(place(*levels[2], (*levels[0], model), recipe, rng, threads)), np.array(scores)


def _judge(fine: Level, found: list[Found], group: Motions, recipe: FuseRecipe) -> tuple[Fit, ...]:
    """A verdict per particle: does it fit as others do, and does its pose beat every other?"""
    particles = fine.particles
    fit = np.array(
        [f.scores[0] / fine.weights[particles.rows(j)].sum() for j, f in enumerate(found)]
    )
    typical = np.median(fit)
    spread = 1.4826 * np.median(np.abs(fit - typical)) + np.finfo(float).tiny
    verdicts = []
    for j, modes in enumerate(found):
        margin = margin_of(modes, group, recipe.coarse_blur)
        misfit = float((typical - fit[j]) / spread)
        if misfit > recipe.max_misfit:
            word, reason = "failed", "it fits the structure far worse than is typical here"
        elif margin < recipe.min_margin:
            word, reason = "weak", "another pose fits it about as well"
        else:
            word, reason = "aligned", "it fits the structure in this pose only"
        verdicts.append(Fit(word, reason, margin, misfit))
    return tuple(verdicts)


def margin_of(modes: Found, group: Motions, separation: float) -> float:
    """Log odds of the best mode over the best one that differs from it by more than a symmetry."""
    places_R = group.R @ modes.R[0]
    places_t = group.R @ modes.t[0] + group.t
    for R, t, score in zip(modes.R[1:], modes.t[1:], modes.scores[1:], strict=True):
        turns = Rotation.from_matrix(places_R @ R.T).magnitude()
        apart = np.maximum(turns, np.linalg.norm(places_t - t, axis=1))
        if apart.min() > separation:
            return float(modes.scores[0] - score)
    return float("inf")


def halves(
    clouds: Sequence[Float[Array, "_ D"]], poses: Poses, seed: int, extent: float
) -> tuple[Float[Array, " F"], Float[Array, " F"]]:
    """Fourier correlation of two random halves of the particles."""
    mixed = np.random.default_rng(seed).permutation(len(clouds))
    sets = [
        np.concatenate([transform(poses[j], clouds[j]) for j in np.sort(part)])
        for part in (mixed[::2], mixed[1::2])
    ]
    return fourier_correlation(sets[0], sets[1], extent)


def _visibility(
    clouds: list[Float[Array, "_ D"]],
    noise: list[Float[Array, "_ D"]],
    poses: Poses,
    mixture: Mixture,
) -> Float[Array, "M K"]:
    """Share of each particle's points that belong to each site; noise taken as isotropic."""
    D = mixture.dimension
    variances = mixture.covariances[:, 0, 0]
    shares = np.zeros((len(clouds), len(variances)))
    for j, (points, sigma) in enumerate(zip(clouds, noise, strict=True)):
        moved = transform(poses[j], points)
        square = ((moved[:, None] - mixture.means) ** 2).sum(2)
        whole = variances + (sigma**2).mean(1)[:, None]
        p = mixture.weights * np.exp(-square / (2 * whole)) / (2 * np.pi * whole) ** (D / 2)
        shares[j] = (p / (p.sum(1, keepdims=True) + mixture.outlier_density)).mean(0)
    return shares
