# SPDX-License-Identifier: MIT
"""How a mixture begins, and what keeps it regular: rounding, priors, the uniform class."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coframe.em import kernels
from coframe.em.mixture import Mixture
from coframe.em.recipe import MODEL, ModelRecipe
from coframe.types import Array, Points


def seed(
    points: Points,
    clouds: int,
    components: int,
    floor: float,
    turn: Float[Array, "D D"],
    recipe: ModelRecipe = MODEL,
) -> Mixture:
    """A mixture of about `components` Gaussians, one per cell of a balanced tree over the points.

    The tree cuts along the axes of the points turned by `turn`: other turns, other cells.
    """
    N, D = points.shape
    leaf = max(recipe.min_points, -(-N // components))
    order = kernels.kd_order(points @ turn.T, leaf)
    starts = np.arange(0, N, leaf)
    count = np.diff(np.append(starts, N))[:, None]
    means = np.add.reduceat(points[order], starts) / count
    d = points[order] - np.repeat(means, count[:, 0], axis=0)
    scatter = np.add.reduceat(d[:, :, None] * d[:, None, :], starts) / count[..., None]
    covariances = scatter + floor * np.eye(D)
    covariances = round_covariances(covariances, recipe.pseudo_points, count[:, 0].astype(float))
    visibility = np.full((clouds, len(means)), (1 - recipe.outlier_share) / len(means))
    mixture = Mixture(means, covariances, visibility[0], 0.0, visibility)
    mean_log_density = float(np.mean(np.log(mixture.weights) + mixture.log_peaks)) - D / 2
    return replace(mixture, outlier_density=outlier_density(mean_log_density, recipe))


def round_covariances(
    covariances: Float[Array, "K D D"], pseudo_points: float, mass: Float[Array, " K"]
) -> Float[Array, "K D D"]:
    """Covariances drawn towards spheres of the same trace, as by so many extra points."""
    D = covariances.shape[1]
    spheres = (np.trace(covariances, axis1=1, axis2=2) / D)[:, None, None] * np.eye(D)
    if np.isinf(pseudo_points):
        return covariances + 1.0 * (spheres - covariances)
    share = (pseudo_points / (mass + pseudo_points))[:, None, None]
    return covariances + share * (spheres - covariances)


def cloud_priors(
    mass: Float[Array, "M K"], *, common: bool = False, recipe: ModelRecipe = MODEL
) -> Float[Array, "M K"]:
    """p_jk: what each cloud sees of the model, from its own posterior masses.

    With one p_k for all clouds (`common`), the likelihood rewards clouds for piling onto each
    other, and partial views slide.
    """
    if common:
        mass = np.broadcast_to(mass.mean(0), mass.shape)
    smoothed = mass + recipe.pseudo_points
    return smoothed / smoothed.sum(1, keepdims=True) * (1 - recipe.outlier_share)


def log_visibility_prior(mixture: Mixture, recipe: ModelRecipe = MODEL) -> float:
    """The logarithm of the Dirichlet prior behind `cloud_priors`, up to a constant."""
    if mixture.visibility is None:
        return 0.0
    return recipe.pseudo_points * float(np.log(mixture.visibility).sum())


def outlier_density(log_density: float, recipe: ModelRecipe = MODEL) -> float:
    """The density of the uniform class, from the mean log-density of the points.

    Its share over a volume: that of a uniform distribution with the same entropy, a thin shell
    around the surface. In the box around the points the density would be too low ever to explain
    one.
    """
    return float(recipe.outlier_share * np.exp(log_density))


def typical_log_density(log_likelihood: Float[Array, " M"], points: Float[Array, " M"]) -> float:
    """The mean log-density of a cloud's points, in the median over clouds.

    A cloud that does not belong to the scene changes it little.
    """
    return float(np.median(log_likelihood / points))
