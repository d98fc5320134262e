# SPDX-License-Identifier: MIT
"""What several test modules share: random poses, scenes with a known truth, a scan for the tests of
files, and the command line.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import oracle
import pytest

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.em.estep import Cloud, Sweep
from coframe.em.joint import DenseEquations, System
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL
from coframe.io.scan import Scan

# Poses


def random_poses(rng, M, D, degrees=180.0, shift=1.0):
    """Turned by up to so many degrees; each coordinate of the translation is normal."""
    turns = np.array([geometry.random_rotation(rng, D, degrees) for _ in range(M)])
    return geometry.pose(turns, rng.normal(scale=shift, size=(M, D)))


def disturbed(
    poses: np.ndarray, rng: np.random.Generator, degrees: float = 5.0, shift: float = 0.03
) -> np.ndarray:
    """Each pose turned by up to so many degrees and shifted by up to so much along each axis."""
    D = poses.shape[1] - 1
    turns = np.array([geometry.random_rotation(rng, D, degrees) for _ in poses])
    return geometry.pose(turns, rng.uniform(-shift, shift, (len(poses), D))) @ poses


# Points of a mixture that is known


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
    """Clouds V[j] in their own frames, their poses, and a mixture in the common frame."""

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
    """Clouds whose points scatter around overlapping components; `outliers` is a density."""
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


def views(D, *, sizes=(120, 100, 90), degrees=15.0, noise=0.005, seed=0):
    """Noisy samples of an asymmetric closed shape of size 2, in frames of their own; true poses."""
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
    """Tight clusters around landmarks that every cloud sees, with a rough start; true poses."""
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


def simulated_scans(
    views: int, points: int, degrees: float, seed: int = 0, **setting: Any
) -> simulate.SimulatedScene:
    """Scans of the simulated body in arbitrary poses."""
    rng = np.random.default_rng(seed)
    return simulate.scene(
        views,
        points,
        degrees=degrees,
        **({"motion_degrees": 180.0, "motion_shift": 2.0} | setting),
        rng=rng,
    )


class JointProblem:
    """Points with fixed posteriors: everything the joint step needs, and the brute-force way to
    each of its quantities.
    """

    def __init__(self, D: int, seed: int = 0, M: int = 4, K: int = 6, N: int = 30) -> None:
        rng = np.random.default_rng([seed, D])
        self.D, self.M, self.P = D, M, geometry.degrees_of_freedom(D)
        self.points = rng.normal(size=(M, N, D)) + 3
        self.alpha = rng.dirichlet(np.full(K, 0.3), size=(M, N)) * rng.uniform(size=(M, N, 1))
        self.means, self.centre = rng.normal(size=(K, D)) + 3, rng.normal(size=D)
        A = rng.normal(size=(K, D, D))
        self.precisions = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(D)
        y = self.points[:, :, None] - self.means
        self.moments = Moments(
            self.means,
            self.alpha.sum(1),
            np.einsum("jik,jikd->jkd", self.alpha, y),
            np.einsum("jik,jikd,jike->jkde", self.alpha, y, y),
            np.full(M, float(N)),
        )
        self.rng, self.poses = rng, geometry.identity(M, D)

    def system(
        self, constraints: Constraints = UNCONSTRAINED, moments: Moments | None = None
    ) -> System:
        moments = self.moments if moments is None else moments
        return System(moments, self.precisions, self.centre, self.poses, constraints)

    def residuals(self, points: np.ndarray) -> np.ndarray:
        """sqrt(alpha) L^T (x - m_k) for every point and component, m_k the best mean given the
        points.
        """
        best = np.einsum("jik,jid->kd", self.alpha, points) / self.alpha.sum((0, 1))[:, None]
        L = np.linalg.cholesky(self.precisions)
        return (
            np.sqrt(self.alpha)[..., None]
            * np.einsum("kde,jikd->jike", L, points[:, :, None] - best)
        ).ravel()

    def moved(self, twists: np.ndarray) -> np.ndarray:
        motions = geometry.about(geometry.exp(twists.reshape(self.M, self.P)), self.centre)
        return np.array(
            [geometry.transform(T, x) for T, x in zip(motions, self.points, strict=True)]
        )


def dense_equations(
    moments: Moments, precisions: np.ndarray, centre: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and gradient of the dense system, in a row."""
    M, D = len(moments.mass), len(centre)
    system = System(
        moments, precisions, centre, geometry.identity(M, D), recipe=replace(MODEL, sparse=False)
    )
    assert isinstance(system.equations, DenseEquations)
    return system.equations.H, system.gradient.ravel()


# Registration, quickly

FAST = coframe.Options(components=100, points=500, iterations=3)


def registered(clouds: list[np.ndarray], **arguments: Any) -> coframe.Registration:
    with unchecked():
        return coframe.register(clouds, options=FAST, **arguments)


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("these clouds are not matched")


def bits(*arrays):
    """What two runs must share to be called the same."""
    return [np.ascontiguousarray(a).tobytes() for a in arrays]


@contextmanager
def unchecked() -> Iterator[None]:
    """Without checks of shapes, which take most of the time of a test and which no user has."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


# Command line


def run_cli(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coframe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


# Names that a page or a terminal must show as text.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"'><b onmouseover=alert(1)>&amp;",
    "$title ${style} {0} %s",
    "line\u2028separator\u2029, null \0, byte \udcff, mirrored \u202e txt.exe",
]


# One small scan with everything that formats can keep

_RNG = np.random.default_rng(0)
POINTS = _RNG.normal(size=(7, 3)) + np.array([4.4e6, 5e5, 100])  # survey coordinates
NEAR = _RNG.normal(size=(7, 3)).astype("f4").astype(float)  # representable as 32-bit floats
COLOURS = _RNG.integers(0, 256, (7, 3), dtype=np.uint8)
NORMALS = np.linalg.qr(_RNG.normal(size=(7, 3, 3)))[0][:, 0]
INTENSITY = _RNG.integers(2, 60000, 7).astype("f8")
POSE = geometry.exp(np.array([0.3, -0.2, 0.5, 10.0, -20.0, 3.0]))
FULL = Scan(POINTS, COLOURS, NORMALS, INTENSITY, {"time": np.arange(7.0)}, POSE, "scan")
LIBRARIES = {
    ".las": "laspy",
    ".laz": "laspy",
    ".e57": "pye57",
    ".obj": "trimesh",
    ".stl": "trimesh",
    ".off": "trimesh",
}


def needs(suffix: str) -> None:
    """Skip where the library of a format is absent."""
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])


# A turntable: its axis is neither vertical nor near the origin.
AXIS = np.array([0.1, 0.9, 0.3]) / np.linalg.norm([0.1, 0.9, 0.3])
BESIDE = np.array([3.0, -1.0, 6.0])


def on_turntable(
    step: float, views: int, points: int, *, surface: simulate.SampledSurface | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Views of a body that turns before the sensor, and their poses in the frame of the first."""
    scene = simulate.scene(
        views,
        points,
        degrees=step * (views - 1),
        noise_db=50.0,
        surface=surface,
        rng=np.random.default_rng(3),
    )
    turns = geometry.exp_rotation(np.radians(step) * np.arange(views)[:, None] * AXIS)
    truth = geometry.pose(turns, BESIDE - turns @ BESIDE)
    upright = geometry.pose(_onto(np.array([0.0, 1, 0]), AXIS), BESIDE)
    clouds = [
        geometry.transform(geometry.inverse(T) @ upright @ pose, cloud)
        for T, pose, cloud in zip(truth, scene.poses, scene.clouds, strict=True)
    ]
    return clouds, truth


def _onto(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rotation that carries one direction onto another."""
    axis = np.cross(a, b)
    angle = np.arctan2(np.linalg.norm(axis), a @ b)
    return geometry.exp_rotation(angle * axis / np.linalg.norm(axis))
