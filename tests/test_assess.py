# SPDX-License-Identifier: MIT
"""Verdicts and covariances from moments that were made by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scenes import JointProblem, dense_equations

from coframe import geometry
from coframe.align import covariance
from coframe.align.verdict import gaps, verdicts
from coframe.em.constraints import UNCONSTRAINED, Constraints, Prior
from coframe.em.joint import DenseEquations, System
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL

each_dimension = pytest.mark.parametrize("D", [2, 3])
PATCHES, POINTS, NOISE = 25, 200, 0.01


def hard_moments(clouds: list[tuple[np.ndarray, np.ndarray]], K: int) -> tuple[Moments, Mixture]:
    """Clouds of (points, labels): every point belongs to the component of its label, -1 to none."""
    points = np.concatenate([x[label >= 0] for x, label in clouds])
    labels = np.concatenate([label[label >= 0] for _, label in clouds])
    means = np.array([points[labels == k].mean(0) for k in range(K)])
    covariances = np.array([np.cov(points[labels == k].T, bias=True) for k in range(K)])
    M, D = len(clouds), points.shape[1]
    mass, first, second = np.zeros((M, K)), np.zeros((M, K, D)), np.zeros((M, K, D, D))
    for j, (x, label) in enumerate(clouds):
        for k in range(K):
            y = x[label == k] - means[k]
            mass[j, k], first[j, k], second[j, k] = len(y), y.sum(0), y.T @ y
    return (
        Moments(means, mass, first, second, np.array([float(len(x)) for x, _ in clouds])),
        Mixture(means, covariances, np.full(K, 0.9 / K), 0.1),
    )


def plane(
    rng: np.random.Generator, height: float = 0.0, seen: range = range(PATCHES)
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy points on patches of a plane, turned so that its normal is no axis."""
    labels = np.repeat(np.array(seen), POINTS)
    corner = np.stack([labels // 5, labels % 5], 1).astype(float)
    x = np.c_[
        corner + rng.uniform(size=corner.shape), height + NOISE * rng.normal(size=len(labels))
    ]
    return x @ geometry.exp_rotation(np.array([0.3, -0.8, 0.5])).T, labels


def test_the_gap_is_the_offset_along_the_normal() -> None:
    rng = np.random.default_rng(0)
    moments, mixture = hard_moments([plane(rng), plane(rng, 0.1)], PATCHES)
    gap, variance, weight = gaps(moments, mixture)
    np.testing.assert_allclose(np.abs(gap), 0.1, atol=5 * NOISE * np.sqrt(2 / POINTS))
    np.testing.assert_allclose(gap[0], -gap[1])
    # the offset does not count as noise
    np.testing.assert_allclose(np.median(variance), NOISE**2 * 2 / POINTS, rtol=0.1)
    np.testing.assert_allclose(weight, POINTS / 2)
    for verdict in verdicts(moments, mixture):
        assert verdict.residual == pytest.approx(0.1, rel=0.01)
        assert verdict.expected == pytest.approx(NOISE * np.sqrt(2 / POINTS), rel=0.2)


def test_the_gap_of_aligned_clouds_is_what_noise_leaves() -> None:
    rng = np.random.default_rng(0)
    moments, mixture = hard_moments([plane(rng) for _ in range(4)], PATCHES)
    for verdict in verdicts(moments, mixture):
        assert verdict.verdict == "aligned"
        assert verdict.residual == pytest.approx(verdict.expected, rel=0.5)
        assert verdict.overlap == verdict.inliers == 1


def test_a_cloud_beside_the_others_is_weak() -> None:
    rng = np.random.default_rng(0)
    moments, mixture = hard_moments([plane(rng, height) for height in (0, 0, 0, 0.05)], PATCHES)
    found = verdicts(moments, mixture)
    assert [v.verdict for v in found] == ["aligned"] * 3 + ["weak"]
    assert "as far" in found[3].reason


def test_a_cloud_without_overlap_fails() -> None:
    rng = np.random.default_rng(0)
    common, alone = range(15), range(15, 25)
    moments, mixture = hard_moments(
        [plane(rng, seen=common), plane(rng, seen=common), plane(rng, seen=alone)], PATCHES
    )
    found = verdicts(moments, mixture)
    assert [v.verdict for v in found] == ["aligned", "aligned", "failed"]
    assert [v.overlap for v in found] == [1, 1, 0]
    assert "0%" in found[2].reason


def test_a_cloud_of_outliers_fails() -> None:
    rng = np.random.default_rng(0)
    points, labels = plane(rng)
    lost = np.where(rng.uniform(size=len(labels)) < 0.8, -1, labels)
    moments, mixture = hard_moments([plane(rng), plane(rng), (points, lost)], PATCHES)
    verdict = verdicts(moments, mixture)[2]
    assert (verdict.verdict, verdict.inliers) == ("failed", pytest.approx(0.2, abs=0.02))
    assert "20%" in verdict.reason


class Assessed(JointProblem):
    """The joint step's problem, with a mixture and places."""

    def __init__(self, D: int) -> None:
        super().__init__(D)
        K = len(self.means)
        self.mixture = Mixture(self.means, np.linalg.inv(self.precisions), np.full(K, 0.9 / K), 0.1)
        self.places = self.points.mean(1)  # where the clouds' origins lie
        self.scene_centre = self.means.mean(0)
        mass = self.moments.mass.sum(0)
        self.certain = ((mass - D) / mass)[
            :, None, None
        ] * self.precisions  # a fitted plane took D of the points' freedom

    @property
    def placed(self) -> np.ndarray:
        return geometry.pose(np.tile(np.eye(self.D), (self.M, 1, 1)), self.places)

    def covariance(self, constraints: Constraints = UNCONSTRAINED) -> np.ndarray:
        return covariance.pose_covariance(self.moments, self.mixture, self.placed, constraints)

    def error_covariance(self, constraints: Constraints = UNCONSTRAINED) -> np.ndarray:
        return covariance.error_covariance(self.moments, self.mixture, self.placed, constraints)

    def at_places(self, whole: np.ndarray) -> np.ndarray:
        """The clouds' own blocks of a covariance of all twists, each moved from the scene's centre
        to its cloud's place.
        """
        blocks = [whole[self.P * j :, self.P * j :][: self.P, : self.P] for j in range(self.M)]
        levers = [geometry.lever(place - self.scene_centre) for place in self.places]
        return np.array([J @ block @ J.T for J, block in zip(levers, blocks, strict=True)])


Covariance = Callable[[Assessed, Constraints], np.ndarray]
each_covariance = pytest.mark.parametrize(
    "covariance", [Assessed.covariance, Assessed.error_covariance], ids=["chance", "error"]
)


@each_dimension
@each_covariance
@pytest.mark.parametrize(
    "constraints", [UNCONSTRAINED, Constraints(fixed=(2,))], ids=["free", "fixed"]
)
def test_covariance_is_symmetric_and_not_negative(
    D: int, covariance: Covariance, constraints: Constraints
) -> None:
    C = covariance(Assessed(D), constraints)
    np.testing.assert_allclose(C, C.swapaxes(1, 2), atol=1e-12 * np.abs(C).max())
    assert np.linalg.eigvalsh(C).min() > -1e-12 * np.abs(C).max()
    assert (np.linalg.eigvalsh(C).min(1) > 1e-9).sum() == 4 - len(constraints.fixed)
    for fixed in constraints.fixed:
        np.testing.assert_array_equal(C[fixed], 0)


@each_dimension
def test_covariance_beside_a_fixed_cloud_is_the_inverse_of_the_rest(D: int) -> None:
    p = Assessed(D)
    H, _ = dense_equations(p.moments, p.certain, p.scene_centre)
    whole = np.zeros_like(H)
    whole[p.P :, p.P :] = np.linalg.inv(H[p.P :, p.P :])
    C = p.covariance(Constraints(fixed=(0,)))
    np.testing.assert_array_equal(C[0], 0)
    np.testing.assert_allclose(C, p.at_places(whole), rtol=1e-6, atol=1e-7 * np.abs(C).max())


@each_dimension
def test_covariance_of_shifts_is_that_in_the_gauge_of_the_average_cloud(D: int) -> None:
    p = Assessed(D)
    H, _ = dense_equations(p.moments, p.precisions, p.scene_centre)
    shift = np.tile(np.arange(p.P) >= p.P - D, p.M)
    mean = np.tile(np.eye(D), (p.M, p.M)) / p.M
    pseudo = np.linalg.pinv(H[np.ix_(shift, shift)], hermitian=True)  # least twists: none in common
    np.testing.assert_allclose(mean @ pseudo, 0, atol=1e-9)
    shifts = Constraints(motion="translation")
    system = System(
        p.moments, p.precisions, p.scene_centre, p.poses, shifts, replace(MODEL, sparse=False)
    )
    assert isinstance(system.equations, DenseEquations)
    found = system.equations.covariances(system.allowed, gauge_free=True)
    each = np.arange(p.M)
    wanted = pseudo.reshape(p.M, D, p.M, D)[each, :, each]
    np.testing.assert_allclose(
        found[:, -D:, -D:], wanted, rtol=1e-6, atol=1e-7 * np.abs(pseudo).max()
    )
    np.testing.assert_array_equal(found[:, :-D], 0)
    np.testing.assert_array_equal(found[:, :, :-D], 0)


@each_dimension
@each_covariance
def test_covariance_follows_the_unit(D: int, covariance: Covariance) -> None:
    """Beside a fixed cloud; without one, the stiffness against a common turn knows the unit, and
    `register` has its own.
    """
    p, unit, constraints = Assessed(D), 1000.0, Constraints(fixed=(0,))
    C = covariance(p, constraints)
    p.moments = replace(
        p.moments,
        about=unit * p.moments.about,
        first=unit * p.moments.first,
        second=unit**2 * p.moments.second,
    )
    p.mixture = replace(
        p.mixture, means=unit * p.mixture.means, covariances=unit**2 * p.mixture.covariances
    )
    p.places = unit * p.places
    units = np.where(np.arange(p.P) < p.P - D, 1, unit)
    np.testing.assert_allclose(
        covariance(p, constraints), C * np.outer(units, units), rtol=1e-6, atol=1e-9
    )


@each_dimension
@pytest.mark.parametrize(
    "constraints", [UNCONSTRAINED, Constraints(fixed=(2,))], ids=["free", "fixed"]
)
def test_covariance_falls_with_the_number_of_points(D: int, constraints: Constraints) -> None:
    p = Assessed(D)
    few = p.covariance(constraints)
    times(p, 5)
    some = p.covariance(constraints)
    # points that the components took are missed less
    assert np.linalg.eigvalsh(few / 5 - some).min() > -1e-12 * np.abs(few).max()
    times(p, 1e6)
    many = p.covariance(constraints)
    times(p, 5)
    np.testing.assert_allclose(
        p.covariance(constraints), many / 5, rtol=1e-5, atol=1e-9 * np.abs(many).max()
    )


def times(p: Assessed, factor: float) -> None:
    """As many times the points."""
    m = p.moments
    p.moments = Moments(
        m.about, factor * m.mass, factor * m.first, factor * m.second, factor * m.points
    )


@each_dimension
@each_covariance
def test_a_tight_prior_is_the_covariance(D: int, covariance: Covariance) -> None:
    p = Assessed(D)
    A = np.random.default_rng(0).normal(size=(p.P, p.P))
    known = 1e-8 * (A @ A.T + np.eye(p.P))
    C = covariance(
        p, Constraints(priors=(Prior(1, np.eye(D + 1), np.linalg.inv(known), point=np.zeros(D)),))
    )
    np.testing.assert_allclose(C[1], known, rtol=1e-3, atol=1e-3 * np.abs(known).max())
    assert (np.linalg.eigvalsh(C)[[0, 2, 3]].max(1) > 1e-4).all()


# What the model does to the poses


@each_dimension
def test_the_bias_is_what_the_tangents_ask_for_beyond_the_normals(D: int) -> None:
    p, constraints = Assessed(D), Constraints(fixed=(0,))
    values, axes = np.linalg.eigh(p.mixture.covariances)
    loose = (
        axes * (np.maximum(values[:, :1] / values, MODEL.min_tangent) / values)[:, None]
    ) @ axes.transpose(0, 2, 1)
    H, left = dense_equations(p.moments, loose, p.scene_centre)
    _, g = dense_equations(p.moments, p.precisions, p.scene_centre)
    bias = np.zeros_like(g)
    bias[p.P :] = -np.linalg.solve(H[p.P :, p.P :], (g - left)[p.P :])
    extra = p.error_covariance(constraints) - p.covariance(constraints)
    assert np.linalg.norm(bias) > 0.01
    np.testing.assert_allclose(
        extra, p.at_places(np.outer(bias, bias)), rtol=1e-6, atol=1e-7 * np.abs(extra).max()
    )


@each_dimension
def test_round_components_cause_no_bias(D: int) -> None:
    p = Assessed(D)
    p.mixture = replace(p.mixture, covariances=np.tile(0.3 * np.eye(D), (len(p.means), 1, 1)))
    np.testing.assert_allclose(p.error_covariance(), p.covariance(), rtol=1e-9)


def corner(rng: np.random.Generator, upper: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy points on six patches of each of three walls that meet, of which two stand upright;
    seen up to `upper` of each.
    """
    labels = np.repeat(np.arange(18), POINTS)
    wall, column, row = labels // 6, labels % 3, labels // 3 % 2
    u, v = (
        column + rng.uniform(size=len(labels)),
        row + rng.uniform(0, np.where(wall == 2, 1.0, upper)),
    )
    off = 5 * NOISE * rng.normal(size=len(labels))
    return np.choose(wall[:, None], [np.c_[off, u, v], np.c_[u, off, v], np.c_[u, v, off]]), labels


def test_clouds_that_see_the_same_patches_in_part_are_biased() -> None:
    """One cloud sees the lower half of each patch of the upright walls.

    It lies in place, yet is drawn up the walls.
    """
    up = np.zeros(6)
    up[5] = 1
    deviations = []
    for seen in (1.0, 0.5):
        rng = np.random.default_rng(0)
        moments, mixture = hard_moments([corner(rng, upper) for upper in (1.0, 1.0, seen)], 18)
        given = moments, mixture, geometry.identity(3, 3), UNCONSTRAINED
        bias = covariance.tangential_bias(*given)[2] @ up
        deviation = np.sqrt(covariance.pose_covariance(*given)[2, 5, 5])
        deviations.append(bias / deviation)
        assert covariance.error_covariance(*given)[2, 5, 5] >= deviation**2
    assert abs(deviations[0]) < 1
    assert deviations[1] > 4
