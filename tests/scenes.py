# SPDX-License-Identifier: MIT
"""Small scenes for tests: points drawn from a known mixture, and views of one shape to be
registered.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jaxtyping
import numpy as np
import oracle

from coframe import geometry
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture


@dataclass(frozen=True)
class Truth:
    """What the oracle says of a scene, cloud by cloud."""

    alpha: list  # (N, K+1) posteriors
    density: list  # (N,) of the whole mixture
    log_likelihood: np.ndarray
    points: np.ndarray  # N, weighted
    A: np.ndarray  # the sums over i
    b: np.ndarray
    C: np.ndarray


@dataclass(frozen=True)
class Scene:
    """Clouds V[j] in their own frames, the poses that carry them into the common one, and a mixture
    there.
    """

    clouds: list
    poses: np.ndarray
    mixture: Mixture

    @property
    def R(self):
        return geometry.rotation(self.poses)

    @property
    def t(self):
        return geometry.translation(self.poses)

    def sweep(self, point_weights=None, **options):
        weights = point_weights or [None] * len(self.clouds)
        return Sweep([Cloud.of(V, w) for V, w in zip(self.clouds, weights, strict=True)], **options)

    def oracle(self, priors=None, w=None):
        """The E-step by the paper's loops, in true densities: the paper's lack (2 pi)^(-D/2)."""
        m = self.mixture
        spheres = np.array(
            [np.array_equal(S, S[0, 0] * np.eye(m.dimension)) for S in m.covariances]
        ).all()
        sigma = m.covariances[:, 0, 0] if spheres else m.covariances
        factor = (2 * np.pi) ** (m.dimension / 2)
        c = m.outlier_density * factor
        beta = oracle.beta(
            self.clouds, self.R, self.t, m.weights if priors is None else priors, m.means, sigma
        )
        alpha = oracle.alpha(beta, c)
        points = np.array(
            [
                len(V) if w is None else w_j.sum()
                for V, w_j in zip(self.clouds, w or self.clouds, strict=True)
            ]
        )
        return Truth(
            alpha,
            [np.array([float(sum(b_i)) + c for b_i in b]) / factor for b in beta],
            oracle.log_likelihood(beta, c, w) - points * np.log(factor),
            points,
            *oracle.sums(self.clouds, self.R, self.t, m.means, alpha, w),
        )


def scene(D, *, K=12, full=False, outliers=0.05, sizes=(70, 33, 20), seed=0):
    """Clouds of the given sizes whose points scatter around overlapping components; `outliers` is
    the uniform density.
    """
    rng = np.random.default_rng([seed, D, K, full])
    means = rng.uniform(-1, 1, (K, D))
    weights = rng.dirichlet(np.full(K, 5.0)) * 0.9
    if full:
        turns = np.array([geometry.random_rotation(rng, D) for _ in range(K)])
        covariances = turns @ (
            rng.uniform(0.05, 0.6, (K, D))[:, :, None] ** 2 * np.swapaxes(turns, 1, 2)
        )
        mixture = Mixture(
            means, (covariances + np.swapaxes(covariances, 1, 2)) / 2, weights, outliers
        )
    else:
        mixture = Mixture.spheres(means, rng.uniform(0.1, 0.5, K) ** 2, weights, outliers)
    poses = random_poses(rng, len(sizes), D)
    clouds = []
    for pose, N in zip(poses, sizes, strict=True):
        inliers = means[rng.integers(K, size=N)] + rng.normal(scale=0.3, size=(N, D))
        points = np.where(rng.random((N, 1)) < 0.1, rng.uniform(-3, 3, (N, D)), inliers)
        clouds.append(geometry.transform(geometry.inverse(pose), points))
    return Scene(clouds, poses, mixture)


def random_poses(rng, M, D, degrees=180.0, shift=1.0):
    turns = np.array([geometry.random_rotation(rng, D, degrees) for _ in range(M)])
    return geometry.pose(turns, rng.normal(scale=shift, size=(M, D)))


def views(D, *, sizes=(120, 100, 90), degrees=15.0, noise=0.005, seed=0):
    """Noisy samples of one asymmetric closed shape of size 2, each in a frame of its own; and the
    true poses.
    """
    rng = np.random.default_rng([seed, D])
    poses = random_poses(rng, len(sizes), D, degrees, 0.05)
    clouds = []
    for pose, N in zip(poses, sizes, strict=True):
        u = rng.normal(size=(N, D))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        radius = 1 + 0.3 * u[:, 0] - 0.4 * u[:, 1] ** 2 + 0.3 * np.sin(3 * u[:, -1]) * u[:, 0]
        points = radius[:, None] * u * np.array([1.0, 0.7, 0.5])[:D] + rng.normal(
            scale=noise, size=(N, D)
        )
        clouds.append(geometry.transform(geometry.inverse(pose), points))
    return clouds, poses


def blobs(D, *, sizes=(120, 100, 90), K=6, noise=0.02, degrees=10.0, seed=0):
    """An easy scene, tight clusters around landmarks that every cloud sees, with a rough start; and
    the true poses.
    """
    rng = np.random.default_rng([seed, D])
    landmarks = rng.uniform(-1, 1, (K, D))
    truth = random_poses(rng, len(sizes), D, degrees, 0.05)
    clouds = []
    for pose, N in zip(truth, sizes, strict=True):
        points = landmarks[rng.integers(K, size=N)] + rng.normal(scale=noise, size=(N, D))
        clouds.append(geometry.transform(geometry.inverse(pose), points))
    mixture = Mixture.spheres(
        landmarks + rng.normal(scale=0.1, size=(K, D)),
        np.full(K, 0.1),
        np.full(K, 1 / 1.1 / K),
        0.01,
    )
    return Scene(clouds, geometry.identity(len(sizes), D), mixture), truth


def relative(poses):
    """Poses relative to the first: what registration is about, free of the choice of the common
    frame.
    """
    return geometry.inverse(poses[0]) @ poses


def bits(*arrays):
    """What two runs must share to be called the same."""
    return [np.ascontiguousarray(a).tobytes() for a in arrays]


@contextmanager
def unchecked() -> Iterator[None]:
    """Without shapes being checked: that takes most of the time, and users have no checker in front
    of the door.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
