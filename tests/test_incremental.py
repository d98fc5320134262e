# SPDX-License-Identifier: MIT
"""JRMPC-I: equal to the oracle, exact in what it pools, and near to the batch on whole scenes."""

import numpy as np
import oracle
import pytest
from scenes import blobs, random_poses, views

from coframe import InputError, geometry, paper
from coframe.em.moments import Moments
from coframe.evaluate import metrics

each_dimension = pytest.mark.parametrize("D", [2, 3])


def started(D, count=3, K=8, **options):
    """Clouds, of which the first `count` are registered by the paper's batch version."""
    clouds, _ = views(D, sizes=(30, 25, 20, 28, 22), seed=1)
    rng = np.random.default_rng([D, K])
    means = np.concatenate(clouds)[rng.choice(sum(map(len, clouds)), K, replace=False)] + 0.01
    return clouds, paper.batch(clouds[:count], means, iterations=5, **options)


def posteriors(result, V, poses):
    """The oracle's, under the mixture of a result."""
    m, D = result.mixture, result.mixture.dimension
    beta = oracle.beta(
        V, geometry.rotation(poses), geometry.translation(poses), m.weights, m.means, m.variances
    )
    return oracle.alpha(beta, m.outlier_density * (2 * np.pi) ** (D / 2))


@each_dimension
@pytest.mark.parametrize("update_priors", [False, True])
@pytest.mark.parametrize("Q", [1, 4])
def test_equals_the_paper(D, update_priors, Q):
    clouds, result = started(D, gamma=0.2, update_priors=update_priors)
    m, R, t = result.mixture, geometry.rotation(result.poses), geometry.translation(result.poses)
    new = paper.integrate(result, clouds[3], gamma=0.2, iterations=Q, update_priors=update_priors)
    past = posteriors(result, clouds[:3], result.poses)
    uniform = m.outlier_density * (2 * np.pi) ** (D / 2)
    R_m, t_m, mu, sigma, p, a = oracle.incremental(
        clouds[:3], R, t, m.means, m.variances, m.weights, uniform, past, clouds[3], R[-1], t[-1],
        gamma=0.2, Q=Q, update_priors=update_priors,
    )  # fmt: skip
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(new.poses[3], geometry.pose(R_m, t_m), **close)
    np.testing.assert_allclose(new.mixture.means, mu, **close)
    np.testing.assert_allclose(new.mixture.variances, sigma, **close)
    np.testing.assert_allclose(new.mixture.weights, p, **close)
    np.testing.assert_allclose(new.moments.mass[3], a[:, :-1].sum(0), atol=1e-7)
    np.testing.assert_array_equal(new.poses[:3], result.poses)
    assert [
        len(x) for x in (new.clouds, new.labels, new.outlier_probability, new.verdicts, new.names)
    ] == [4] * 5
    assert new.pose_covariance.shape[0] == 4


@each_dimension
def test_clouds_one_at_a_time_pool_to_the_moments_of_all(D):
    """With the posteriors frozen, whatever the order of adding: the exactness that the paper's
    formulas lack.
    """
    clouds, result = started(D, gamma=0.2)
    for cloud in clouds[3:]:
        before = result
        result = paper.integrate(result, cloud, gamma=0.2, epsilon=0.0)
        old = before.moments.recentred(result.moments.about)
        np.testing.assert_allclose(result.moments.mass[:-1], old.mass, rtol=1e-12)
        pooled = result.moments.pooled()
        # taken about the new means, which are those of all points
        np.testing.assert_allclose(pooled.first, 0, atol=1e-12)
        scatter = np.trace(pooled.second, axis1=1, axis2=2) / (D * pooled.mass)
        np.testing.assert_allclose(result.mixture.variances, scatter, rtol=1e-12)


@each_dimension
@pytest.mark.parametrize("full", [False, True])
def test_moments_add_up_in_any_order_and_come_off_again(D, full):
    rng = np.random.default_rng(D)
    K, about = 7, rng.normal(size=(7, D))
    points, alpha = rng.normal(size=(50, D)), rng.dirichlet(np.ones(K + 1), 50)[:, :K]

    def of(part, about):
        y = points[part][:, None] - about
        second = np.einsum("ik,ikd,ike->kde", alpha[part], y, y)
        return Moments(
            about,
            alpha[part].sum(0),
            np.einsum("ik,ikd->kd", alpha[part], y),
            second if full else np.trace(second, axis1=1, axis2=2),
            np.asarray(float(len(points[part]))),
        )

    whole, parts = of(slice(None), about), np.array_split(np.arange(50), 6)
    total = of(parts[0], about)
    for part in parts[1:]:
        total = total + of(part, rng.normal(size=(K, D)))  # each about points of its own
    for a, b in zip(
        (total.mass, total.first, total.second),
        (whole.mass, whole.first, whole.second),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    rest = total - of(parts[2], rng.normal(size=(K, D)))
    without = of(np.concatenate([part for i, part in enumerate(parts) if i != 2]), about)
    np.testing.assert_allclose(rest.second, without.second, rtol=1e-12, atol=1e-12)


@each_dimension
def test_rejection_takes_degenerate_components_first_and_seeds_the_new_cloud(D):
    clouds, result = started(D, gamma=0.2)
    variances = result.mixture.variances.copy()
    variances[[2, 5]] = 1e-6
    thin = paper.batch(
        clouds[:3],
        result.mixture.means,
        poses=result.poses,
        variances=variances,
        gamma=0.2,
        iterations=0,
    )
    for count, gone in ((1, None), (2, {2, 5}), (3, None)):
        new = paper.integrate(
            thin,
            clouds[3],
            gamma=0.2,
            iterations=0,
            rejected=count,
            rng=np.random.default_rng(0),
            epsilon=1e-6,
        )
        moved = set(np.flatnonzero((np.abs(new.mixture.means - thin.mixture.means) > 1e-9).any(1)))
        assert len(moved) == count
        assert moved <= {2, 5} if count < 3 else moved >= {2, 5}
        assert gone is None or moved == gone
        seeds = geometry.transform(new.poses[3], clouds[3])
        for k in moved:
            assert np.linalg.norm(seeds - new.mixture.means[k], axis=1).min() < 1e-9
            assert new.moments.mass[:3, k].sum() == 0


def test_what_cannot_be_integrated_is_refused():
    clouds, result = started(3)
    with pytest.raises(InputError, match="rng"):
        paper.integrate(result, clouds[3], rejected=2)
    with pytest.raises(InputError, match="expected 0 to 8 components"):
        paper.integrate(result, clouds[3], rejected=9, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="new: expected finite"):
        paper.integrate(result, np.full((9, 3), np.nan), name="new")
    with pytest.raises(InputError, match="coordinates per point"):
        paper.integrate(result, clouds[3][:, :2])
    with pytest.raises(InputError, match="poses: expected shape"):
        paper.incremental(
            clouds, result.mixture.means, np.random.default_rng(0), poses=result.poses
        )


@each_dimension
def test_units_and_origin_change_nothing(D):
    clouds, result = started(D, gamma=0.0)
    one = paper.integrate(result, clouds[3], gamma=0.0, iterations=3)
    scale, shift = 1e3, np.array([5e5, 4e6, 100.0])[:D]
    moved = [V * scale + shift for V in clouds]
    T = geometry.pose(geometry.rotation(result.poses), geometry.translation(result.poses) * scale)
    T = T @ geometry.pose(np.eye(D), -shift)
    means, variances = result.mixture.means * scale, result.mixture.variances * scale**2
    far = paper.batch(moved[:3], means, variances=variances, poses=T, gamma=0.0, iterations=0)
    other = paper.integrate(far, moved[3], gamma=0.0, iterations=3, epsilon=1e-6 * scale**2)
    np.testing.assert_allclose(
        geometry.rotation(other.poses), geometry.rotation(one.poses), atol=1e-8
    )
    np.testing.assert_allclose(other.mixture.means / scale, one.mixture.means, atol=1e-6)


def test_a_whole_scene_one_cloud_at_a_time():
    scene, truth = blobs(3, sizes=(120, 100, 90, 110, 95, 100), K=6)
    rng = np.random.default_rng(0)
    start = {"variances": scene.mixture.variances, "gamma": 0.1}
    result = paper.incremental(scene.clouds, scene.mixture.means, rng, rejected=0, **start)
    assert metrics.rotation_errors(result.poses, truth).max() < 1.0
    kept = paper.incremental(
        scene.clouds, scene.mixture.means, rng, rejected=0, refinements=0, integrations=5, **start
    )
    assert metrics.rotation_errors(kept.poses, truth).max() < 2.0
    assert kept.groups == (tuple(range(6)),)
    again = [
        paper.incremental(
            scene.clouds, scene.mixture.means, np.random.default_rng(3), **start
        ).poses
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*again)


def test_fixed_variances_are_those_of_the_start():
    scene, _ = blobs(3, sizes=(60, 50, 55, 65), K=6)
    start = {"variances": 0.02, "gamma": 0.1, "first_iterations": 4, "refinements": 3}

    def variances(share):
        return paper.incremental(
            scene.clouds, scene.mixture.means, np.random.default_rng(0), fixed_share=share, **start
        ).mixture.variances

    np.testing.assert_allclose(variances(1.0), 0.02, rtol=1e-12)
    assert (np.abs(variances(0.4) - variances(0.0)) > 1e-6).any()
    with pytest.raises(InputError, match="fixed_share: expected a share"):
        variances(2.0)
    with pytest.raises(InputError, match="variances: expected those of the start"):
        paper.incremental(
            scene.clouds, scene.mixture.means, np.random.default_rng(0), fixed_share=0.5
        )


def test_start_poses_are_used():
    clouds, _ = views(3, sizes=(60, 60, 60))
    poses = random_poses(np.random.default_rng(0), 3, 3)
    means = np.concatenate([geometry.transform(T, V) for T, V in zip(poses, clouds, strict=True)])[
        ::9
    ]
    result = paper.incremental(
        clouds,
        means,
        np.random.default_rng(0),
        poses=poses,
        first_iterations=0,
        integrations=0,
        refinements=0,
        rejected=0,
    )
    np.testing.assert_allclose(result.poses, poses, atol=1e-12)
