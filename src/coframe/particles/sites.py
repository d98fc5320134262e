# SPDX-License-Identifier: MIT
"""The structure as sites: a mixture of isotropic Gaussians, the noise of every point known.

A localisation is a point of a site plus noise: x = R^T (y - t) + e with y ~ N(mu_k, s_k^2 I) and
e ~ N(0, diag(sigma_n^2)) along the particle's own axes. The noise-free point y is latent, so that
s_k is the size of the site without the blur of the measurement. Given y, all updates are closed.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.ndimage import maximum_filter

from coframe.particles import density_kernels as kernels
from coframe.particles.recipe import FuseRecipe
from coframe.particles.search import Level, Motions, Particles
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
    """

    means: Float[Array, "K 3"]
    variances: Float[Array, " K"]
    priors: Float[Array, " K"]


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
    sites = Sites(means, np.full(K, recipe.site_blur**2), np.full(K, 0.5 / K))
    for _ in range(ITERATIONS):
        outlier = max(1 - float(sites.priors.sum()), FEWEST_OUTLIERS) / volume
        sites = _step(particles, motions, symmetry, sites, outlier, threads)
    return sites


def _step(
    particles: Particles,
    motions: Motions,
    symmetry: Motions,
    sites: Sites,
    outlier: float,
    threads: int,
) -> Sites:
    K, D, M = len(sites.means), particles.dimension, len(particles)

    def block(b: int) -> tuple[Array, Array, Array, Array]:
        sums = np.zeros(K), np.zeros((K, 3, 3)), np.zeros((K, 3)), np.zeros(K)
        for j in range(b * M // BLOCKS, (b + 1) * M // BLOCKS):
            rows = particles.rows(j)
            for S, s in zip(symmetry.R, symmetry.t, strict=True):
                kernels.gather(
                    particles.points[rows],
                    particles.variances[rows],
                    S @ motions.R[j],
                    S @ motions.t[j] + s,
                    sites.means,
                    sites.variances,
                    sites.priors,
                    outlier,
                    D,
                    *sums,
                )
        return sums

    parts = list(pool(threads).map(block, range(BLOCKS)))
    seen, precision, pulled, scatter = (
        np.sum(np.stack(part), axis=0) for part in zip(*parts, strict=True)
    )
    kept = seen > 1
    kept[np.argmax(seen)] = True
    means = np.zeros((int(kept.sum()), 3))
    means[:, :D] = np.linalg.solve(precision[kept][:, :D, :D], pulled[kept][:, :D, None])[..., 0]
    variances = np.maximum(scatter[kept] / seen[kept], FLOOR)
    return Sites(means, variances, seen[kept] / (len(particles.points) * len(symmetry.t)))
