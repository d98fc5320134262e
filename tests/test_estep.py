# SPDX-License-Identifier: MIT
"""The fast E-step (sweeps and kernels) and the dense one against the paper's loops."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import threadpoolctl
from scenes import Scene, bits, scene

from coframe import geometry
from coframe.em import estep
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.threads import quiet_blas

made = cache(scene)
oracle = cache(lambda D, full, K, outliers: made(D, full=full, K=K, outliers=outliers).oracle())

each_dimension = pytest.mark.parametrize("D", [2, 3])
each_shape = pytest.mark.parametrize("full", [False, True], ids=["spheres", "full"])
each_tolerance = pytest.mark.parametrize("tolerance", [None, 1e-9], ids=["dense", "pruned"])
with_and_without_outliers = pytest.mark.parametrize(
    "outliers", [0.0, 0.05], ids=["no outlier class", "outliers"]
)
each_kernel = pytest.mark.parametrize(
    ("tolerance", "bound"), [(None, 1e-12), (1e-9, 2e-9)], ids=["dense", "pruned"]
)


def assert_agree(scene, sweep, bound, *, priors=None, w=None, truth=None):
    """Moments, log-likelihood and per-point results of a sweep within `bound` per point (extents
    are about one).
    """
    truth = truth or scene.oracle(priors, w)
    moments, log_likelihood = sweep.moments(scene.poses, replace(scene.mixture, visibility=priors))
    slack = {"rtol": 0, "atol": bound * truth.points.max()}
    np.testing.assert_allclose(moments.mass, truth.A, **slack)
    np.testing.assert_allclose(moments.first, truth.b, **slack)
    np.testing.assert_allclose(
        moments.second, truth.C if moments.full else np.trace(truth.C, axis1=2, axis2=3), **slack
    )
    np.testing.assert_allclose(moments.points, truth.points, rtol=1e-14)
    np.testing.assert_allclose(moments.outlier_mass, truth.points - truth.A.sum(1), **slack)
    np.testing.assert_allclose(
        log_likelihood, truth.log_likelihood, rtol=bound, atol=bound * truth.points.max()
    )
    assignments = sweep.assign(scene.poses, replace(scene.mixture, visibility=priors))
    for each, alpha, density in zip(assignments, truth.alpha, truth.density, strict=True):
        np.testing.assert_allclose(each.density, density, rtol=10 * bound, atol=1e-300)
        # label -1 is the last column, the uniform class
        chosen = alpha[np.arange(len(alpha)), each.label]
        # the most probable class, ties aside
        np.testing.assert_allclose(chosen, alpha.max(1), atol=10 * bound)
    return moments


@each_dimension
@each_shape
@pytest.mark.parametrize("K", [1, 7, 32, 45])
@with_and_without_outliers
@each_kernel
def test_sweep_is_the_papers_e_step(D, full, K, outliers, tolerance, bound):
    s = made(D, full=full, K=K, outliers=outliers)
    assert_agree(s, s.sweep(tolerance=tolerance), bound, truth=oracle(D, full, K, outliers))


@each_dimension
@each_shape
@with_and_without_outliers
def test_posteriors_are_the_papers_and_sum_to_one(D, full, outliers):
    s = made(D, full=full, K=7, outliers=outliers)
    for pose, V, a in zip(s.poses, s.clouds, oracle(D, full, 7, outliers).alpha, strict=True):
        posteriors = estep.posteriors(geometry.transform(pose, V), s.mixture)
        np.testing.assert_allclose(posteriors, a, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(posteriors.sum(1), 1, rtol=1e-14)


@each_dimension
@each_shape
@each_tolerance
def test_second_moments_may_be_asked_for_as_matrices(D, full, tolerance):
    """Full sums of spheres: what surface-aligned covariances grow from."""
    s = made(D, full=full, K=7)
    moments, _ = s.sweep(tolerance=tolerance).moments(s.poses, s.mixture, full=True)
    np.testing.assert_allclose(moments.second, oracle(D, full, 7, 0.05).C, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(moments.second, np.swapaxes(moments.second, 2, 3))


@each_dimension
@each_shape
@each_tolerance
@with_and_without_outliers
def test_every_cloud_may_have_priors_and_every_point_a_weight(D, full, tolerance, outliers):
    s = made(D, full=full, K=7, outliers=outliers)
    rng = np.random.default_rng(1)
    priors = rng.dirichlet(np.ones(7), len(s.clouds)) * 0.8
    w = [rng.uniform(0, 3, len(V)) for V in s.clouds]
    w[0][:5] = 0
    bound = 1e-12 if tolerance is None else 6e-9  # three times the heaviest point
    assert_agree(s, s.sweep(w, tolerance=tolerance), bound, priors=priors, w=w)
    assert_agree(s, s.sweep(tolerance=tolerance), bound, priors=priors)


@each_dimension
@each_shape
@each_tolerance
@with_and_without_outliers
def test_a_component_without_weight_explains_nothing(D, full, tolerance, outliers):
    """Not even a point on its mean, out of reach of all others."""
    s = made(D, full=full, K=7, outliers=outliers)
    means, weights = s.mixture.means.copy(), s.mixture.weights.copy()
    means[3], weights[3] = 300, 0
    s = Scene(
        [*s.clouds, np.full((40, D), 300.0)],
        np.concatenate([s.poses, geometry.identity(1, D)]),
        replace(s.mixture, means=means, weights=weights),
    )
    moments = assert_agree(s, s.sweep(tolerance=tolerance), 1e-10 if tolerance is None else 1e-7)
    np.testing.assert_array_equal(moments.mass[:, 3] < 1e-200, True)


@each_dimension
@each_shape
@each_kernel
def test_without_outlier_class_far_points_keep_all_their_mass(D, full, tolerance, bound):
    """Points hundreds to thousands of standard deviations away, alone and in whole blocks: no 0 /
    0, no lost point.
    """
    rng = np.random.default_rng(0)
    small = made(D, full=full, K=9, outliers=0.0).mixture
    covariances = small.covariances * 0.01
    covariances[4] *= 1000
    far = np.zeros((3, 40, D))
    far[0, 0] = 30  # one stray point in a block of near ones
    far[1, :, 0], far[2] = 2000, -500
    clouds = list(far + rng.normal(scale=0.3, size=far.shape))
    s = Scene(clouds, geometry.identity(3, D), replace(small, covariances=covariances))
    moments, log_likelihood = s.sweep(tolerance=tolerance).moments(s.poses, s.mixture)
    truth = s.oracle()
    np.testing.assert_allclose(moments.mass.sum(1), 40, rtol=1e-12)
    np.testing.assert_allclose(log_likelihood, truth.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(moments.mass, truth.A, atol=1e-7)
    for V, alpha in zip(clouds, truth.alpha, strict=True):
        np.testing.assert_allclose(estep.posteriors(V, s.mixture), alpha, atol=1e-8)


@each_dimension
@each_shape
@each_kernel
def test_duplicates_count_as_often_as_they_occur(D, full, tolerance, bound):
    s = made(D, full=full, K=7)
    point = s.clouds[0][:1]
    one = Scene([point, point], s.poses[[0, 0]], s.mixture)
    many = Scene([np.repeat(point, 1000, 0), point], s.poses[[0, 0]], s.mixture)
    moments, log_likelihood = many.sweep(tolerance=tolerance).moments(many.poses, s.mixture)
    once = assert_agree(one, one.sweep(tolerance=tolerance), bound)
    for name in ("mass", "first", "second"):
        np.testing.assert_allclose(
            getattr(moments, name)[0], 1000 * getattr(once, name)[0], rtol=1e-9, atol=1000 * bound
        )
    assert log_likelihood[0] == pytest.approx(1000 * log_likelihood[1], rel=bound)


@each_dimension
@each_tolerance
@with_and_without_outliers
@pytest.mark.parametrize("turned", [False, True], ids=["upright", "turned"])
def test_very_thin_covariances(D, tolerance, outliers, turned):
    """Sheets with variances 1e-8 : 1.

    Turned ones are stored to eight digits only, so no code can have more.
    """
    s = made(D, full=True, K=34, outliers=outliers, sizes=(40, 20))
    rng = np.random.default_rng(0)
    R = (
        np.array([geometry.random_rotation(rng, D) for _ in range(34)])
        if turned
        else np.tile(np.eye(D), (34, 1, 1))
    )
    thin = np.einsum("kij,j,klj->kil", R, [1.0] * (D - 1) + [1e-8], R)
    mixture = replace(s.mixture, covariances=(thin + np.swapaxes(thin, 1, 2)) / 2)
    # points off a sheet by a few of its standard deviations, seen in the common frame
    on_sheets = [
        mixture.means[k]
        + np.einsum("nij,nj->ni", R[k], rng.normal(size=(len(k), D)) * ([1.0] * (D - 1) + [1e-4]))
        for k in (rng.integers(34, size=len(V)) for V in s.clouds)
    ]
    clouds = [
        geometry.transform(back, x)
        for back, x in zip(geometry.inverse(s.poses), on_sheets, strict=True)
    ]
    s = Scene(clouds, s.poses, mixture)
    assert_agree(
        s, s.sweep(tolerance=tolerance), 1e-5 if turned else 1e-10 if tolerance is None else 2e-9
    )


@each_dimension
@each_shape
@with_and_without_outliers
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_pruning_changes_posteriors_by_at_most_twice_the_tolerance(D, full, outliers, tolerance):
    """One point per cloud: its moments are its posteriors.

    Coincident components make the bound sharp in their number.
    """
    s = made(D, full=full, K=45, outliers=outliers, sizes=(400,))
    means = np.repeat(s.mixture.means[:3] * 3, [43, 1, 1], 0)
    covariances = np.repeat(s.mixture.covariances[:3], [43, 1, 1], 0)
    mixture = replace(s.mixture, means=means, covariances=covariances, weights=np.full(45, 0.02))
    clouds = [point[None] for point in geometry.transform(s.poses[0], s.clouds[0]) * 2]
    poses = geometry.identity(len(clouds), D)
    sweep = Sweep([Cloud.of(V) for V in clouds], tolerance=tolerance)
    pruned, _ = sweep.moments(poses, mixture)
    error = np.abs(pruned.mass - estep.posteriors(np.concatenate(clouds), mixture)[:, :-1]).sum(1)
    assert sweep.pairs < 400 * 45  # something was skipped,
    assert error.max() <= 2 * tolerance  # and nothing that mattered
    # though not nothing: the tolerance is put to use
    assert outliers == 0 or error.max() > 0.02 * tolerance


@each_dimension
@each_shape
@with_and_without_outliers
def test_pruning_a_whole_scene_keeps_its_bound_and_pays(D, full, outliers):
    rng = np.random.default_rng(0)
    K, points = 500, rng.uniform(-1, 1, (2000, D))
    shrink = 0.03**2 / made(D, full=full, K=45).mixture.covariances.max()
    covariances = np.resize(made(D, full=full, K=45).mixture.covariances * shrink, (K, D, D))
    mixture = Mixture(rng.uniform(-1, 1, (K, D)), covariances, np.full(K, 1 / K), outliers)
    poses = geometry.identity(1, D)
    dense = Sweep([Cloud.of(points)], tolerance=None)
    truth, log_likelihood = dense.moments(poses, mixture)
    assert dense.pairs >= K * len(points)
    for tolerance in (1e-3, 1e-9):
        sweep = Sweep([Cloud.of(points)], tolerance=tolerance)
        moments, pruned_likelihood = sweep.moments(poses, mixture)
        assert np.abs(moments.mass - truth.mass).sum() <= 2 * tolerance * len(points) + 1e-10
        assert 0 <= log_likelihood - pruned_likelihood + 1e-8 <= tolerance * len(points) + 2e-8
        assert outliers == 0 or sweep.pairs < dense.pairs / 2


@each_dimension
@each_shape
@each_kernel
def test_any_number_of_threads_gives_the_same_bits(D, full, tolerance, bound):
    s = scene(D, K=45, full=full, sizes=(3000, 1, 1500, 40))
    priors = np.random.default_rng(0).dirichlet(np.ones(45), 4)
    runs = []
    for threads in (1, 2, 3, 5, 2):
        sweep = s.sweep(threads=threads, tolerance=tolerance)
        moments, log_likelihood = sweep.moments(s.poses, replace(s.mixture, visibility=priors))
        points = [
            field
            for each in sweep.assign(s.poses, s.mixture)
            for field in (each.density, each.label)
        ]
        runs.append(bits(moments.mass, moments.first, moments.second, log_likelihood, *points))
    assert all(run == runs[0] for run in runs)


@each_dimension
@each_shape
@each_tolerance
def test_order_of_points_and_components_does_not_matter(D, full, tolerance):
    s = scene(D, K=45, full=full, sizes=(200, 33))
    rng = np.random.default_rng(0)
    k = rng.permutation(45)
    m = s.mixture
    shuffled = Scene(
        [rng.permutation(V) for V in s.clouds],
        s.poses,
        Mixture(m.means[k], m.covariances[k], m.weights[k], m.outlier_density),
    )
    here, likelihood = s.sweep(tolerance=tolerance).moments(s.poses, m)
    there, shuffled_likelihood = shuffled.sweep(tolerance=tolerance).moments(
        s.poses, shuffled.mixture
    )
    for name in ("mass", "first", "second"):
        bound = 1e-11 if tolerance is None else 1e-6
        np.testing.assert_allclose(
            getattr(there, name), getattr(here, name)[:, k], rtol=0, atol=bound
        )
    np.testing.assert_allclose(shuffled_likelihood, likelihood, rtol=1e-9)


@pytest.mark.parametrize("D", [2, 3])
def test_spheres_are_known_as_spheres(D):
    """Whatever the rounding of their variances: ellipsoids cost twice as much."""
    variances = np.random.default_rng(0).uniform(0.01, 1, 1000)
    mixture = Mixture.spheres(np.zeros((1000, D)), variances, np.full(1000, 1e-3), 0.0)
    assert mixture.spherical
    np.testing.assert_allclose(mixture.variances, variances, rtol=1e-15)
    np.testing.assert_allclose(
        mixture.log_peaks, -D / 2 * np.log(2 * np.pi * variances), rtol=1e-13
    )
    bent = mixture.covariances.copy()
    bent[500, 0, 0] *= 1 + 1e-9
    assert not replace(mixture, covariances=bent).spherical


@each_dimension
def test_a_covariance_that_is_none_is_named(D):
    s = made(D, full=True, K=7)
    covariances = s.mixture.covariances.copy()
    covariances[5] = -np.eye(D)
    with pytest.raises(ValueError, match="component 5 is not positive definite"):
        s.sweep().moments(s.poses, replace(s.mixture, covariances=covariances))


def test_blas_is_quiet_until_the_last_of_several_runs_has_ended() -> None:
    """Its limits are those of the process: of two runs side by side, the first to end must not lift
    them for the other.
    """

    def threads() -> list[int]:
        return [
            library["num_threads"]
            for library in threadpoolctl.threadpool_info()
            if library["user_api"] == "blas"
        ]

    with threadpoolctl.threadpool_limits(2, "blas"):
        before, one, other = threads(), quiet_blas(), quiet_blas()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert set(threads()) == {1}
        other.__exit__(None, None, None)
        assert threads() == before
