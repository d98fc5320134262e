# SPDX-License-Identifier: MIT
"""The structure as sites: a mixture of isotropic Gaussians, the noise of every point known.

A localisation is a point of a site plus noise: x = R^T (y - t) + e with y ~ N(mu_k, s_k^2 I) and
e ~ N(0, diag(sigma_n^2)) along the particle's own axes. The noise-free point y is latent, so that
s_k is the size of the site without the blur of the measurement. Given y, all updates are closed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add, sub
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import maximum_filter

from coframe.particles import density_kernels as kernels
from coframe.particles.recipe import FuseRecipe
from coframe.particles.search import Found, Level, Motions, Particles
from coframe.threads import pool
from coframe.types import Array

# [size] Blocks of particles whose sums are added in order, for any number of threads.
BLOCKS = 16
# [guard] Squared radii: a site is never sharper than this.
FLOOR = 1e-8
# [guard] Share of outliers at least.
FEWEST_OUTLIERS = 1e-3
# [size] Iterations of EM for the sites.
ITERATIONS = 40


@dataclass(frozen=True)
class Sites:
    """Sites in the frame of the model, in radii.

    Attributes
    ----------
    means : array (K, 3)
    variances : array (K,)
        Without the noise of the points.
    priors : array (K,)
        Share of points of each; the rest are outliers.
    volume : float
        In which outliers lie evenly.
    """

    means: Float[Array, "K 3"]
    variances: Float[Array, " K"]
    priors: Float[Array, " K"]
    volume: float

    @property
    def outlier(self) -> float:
        """Share of outliers over their volume."""
        return max(1 - float(self.priors.sum()), FEWEST_OUTLIERS) / self.volume


@dataclass(frozen=True)
class Sums:
    """What the points of particles add to the sites; those of several particles add up.

    Attributes
    ----------
    seen : array (K,)
        Posterior mass.
    precision : array (K, 3, 3)
    pulled : array (K, 3)
        Points times precision.
    scatter : array (K,)
    count : float
        Points.
    """

    seen: Float[Array, " K"]
    precision: Float[Array, "K 3 3"]
    pulled: Float[Array, "K 3"]
    scatter: Float[Array, " K"]
    count: float

    def __add__(self, other: "Sums") -> "Sums":
        return self._combined(other, add)

    def __sub__(self, other: "Sums") -> "Sums":
        return self._combined(other, sub)

    def _combined(self, other: "Sums", operation: Callable[[Any, Any], Any]) -> "Sums":
        names = [field.name for field in fields(self)]
        return Sums(*(operation(getattr(self, n), getattr(other, n)) for n in names))

    def kept(self) -> Bool[Array, " K"]:
        """Sites of at least one point."""
        kept: Bool[Array, " K"] = self.seen > 1
        kept[np.argmax(self.seen)] = True
        return kept

    def sites(self, dimension: int, volume: float) -> Sites:
        """The M-step."""
        kept = self.kept()
        D, seen = dimension, self.seen[kept]
        precision, pulled = self.precision[kept][:, :D, :D], self.pulled[kept][:, :D, None]
        means = np.zeros((len(seen), 3))
        means[:, :D] = np.linalg.solve(precision, pulled)[..., 0]
        variances = np.maximum(self.scatter[kept] / seen, FLOOR)
        return Sites(means, variances, seen / self.count, volume)


def peaks(density: Float[Array, "X Y Z"], level: Level, share: float) -> Float[Array, "K 3"]:
    """Local maxima of a density, above a share of the largest, largest first."""
    size = tuple(min(3, n) for n in density.shape)
    highest = (maximum_filter(density, size=size) == density) & (density > share * density.max())
    at = np.argwhere(highest)
    order = np.argsort(-density[tuple(at.T)], kind="stable")
    found: Float[Array, "K 3"] = level.origin + level.cell * at[order]
    return found


def find_sites(
    particles: Particles,
    motions: Motions,
    symmetry: Motions,
    recipe: FuseRecipe,
    radius: float,
    threads: int,
) -> Sites:
    """Sites at the peaks of the density, then EM with the poses given."""
    level = Level(particles, recipe.site_blur, recipe, radius)
    means = peaks(level.density(motions, symmetry), level, recipe.min_peak)
    K, D = len(means), particles.dimension
    volume = float((2 * np.abs(level.origin[:D])).prod())
    # Even odds that a point is an outlier, until EM knows better.
    sites = Sites(means, np.full(K, recipe.site_blur**2), np.full(K, 0.5 / K), volume)
    for _ in range(ITERATIONS):
        sites = sums_of(particles, motions, symmetry, sites, threads).sites(D, volume)
    return sites


def sums_of(
    particles: Particles, motions: Motions, symmetry: Motions, sites: Sites, threads: int
) -> Sums:
    """The E-step over all particles."""
    M = len(particles)

    def block(b: int) -> Sums:
        begin, end = b * M // BLOCKS, (b + 1) * M // BLOCKS
        return _sums_of(particles, range(begin, end), motions, symmetry, sites)

    return reduce(add, pool(threads).map(block, range(BLOCKS)))


def _sums_of(
    particles: Particles, chosen: Iterable[int], motions: Motions, symmetry: Motions, sites: Sites
) -> Sums:
    K = len(sites.means)
    sums = np.zeros(K), np.zeros((K, 3, 3)), np.zeros((K, 3)), np.zeros(K)
    count = 0
    for j in chosen:
        rows = particles.rows(j)
        for S, s in zip(symmetry.R, symmetry.t, strict=True):
            count += rows.stop - rows.start
            kernels.gather(
                particles.points[rows],
                particles.variances[rows],
                S @ motions.R[j],
                S @ motions.t[j] + s,
                sites.means,
                sites.variances,
                sites.priors,
                sites.outlier,
                particles.dimension,
                *sums,
            )
    return Sums(*sums, float(count))


def rank(
    level: Level,
    found: Sequence[Found],
    members: Bool[Array, " M"],
    symmetry: Motions,
    sites: Sites,
    threads: int,
) -> list[Found]:
    """Refine the poses found for each particle by the sites that all *others* show.

    The scores are log-likelihoods: the noise of each localisation is known, the error of the sites
    counts as noise, and localisations of one spot count as one, since they are of one label.

    Parameters
    ----------
    level
        All particles, at the fine blur.
    found
        Poses of each; the best of the members made the sites.
    members
        Particles that made the sites.
    """
    particles, D = level.particles, level.particles.dimension
    best = Motions(np.array([f.R[0] for f in found]), np.array([f.t[0] for f in found]))
    own = np.flatnonzero(members)
    whole = sums_of(particles.subset(own), best.subset(own), symmetry, sites, threads)
    spots = kernels.crowding(particles.points, particles.first, level.blur)

    def one(j: int) -> Found:
        sums = whole
        if members[j]:
            sums = whole - _sums_of(particles, [j], best, symmetry, sites)
        others = sums.sites(D, sites.volume)
        error = D / np.trace(sums.precision[sums.kept()], axis1=1, axis2=2)
        rows = particles.rows(j)
        climbed = [
            kernels.climb_sites(
                particles.points[rows],
                particles.variances[rows],
                1 / spots[rows],
                R,
                t,
                others.means,
                others.variances + error,
                others.priors,
                others.outlier,
                D,
                level.blur / 2,
                level.blur / 4,
            )
            for R, t in zip(found[j].R, found[j].t, strict=True)
        ]
        scores = np.array([score for score, _, _ in climbed])
        order = np.argsort(-scores, kind="stable")
        return Found(
            np.array([climbed[c][1] for c in order]),
            np.array([climbed[c][2] for c in order]),
            scores[order],
        )

    return list(pool(threads).map(one, range(len(particles))))
