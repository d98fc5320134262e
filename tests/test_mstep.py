# SPDX-License-Identifier: MIT
"""Each function of the M-step against the equation of the paper that it claims to be."""

from dataclasses import replace
from functools import cache

import numpy as np
import oracle
import pytest
from scenes import scene

from coframe import geometry
from coframe.em import mstep

each_dimension = pytest.mark.parametrize("D", [2, 3])
close = {"rtol": 1e-11, "atol": 1e-11}


@cache
def after_e_step(D, full=False):
    """A scene, its moments (spheres: traces only), and the oracle's posteriors."""
    s = scene(D, K=7)
    moments, _ = s.sweep(tolerance=None).moments(s.poses, s.mixture, full=full)
    return s, moments, s.oracle().alpha


@each_dimension
def test_virtual_points_are_eq_11(D):
    s, moments, alpha = after_e_step(D)
    expected = [oracle.W(a, V, 7).T for a, V in zip(alpha, s.clouds, strict=True)]
    np.testing.assert_allclose(mstep.virtual_points(moments, s.poses), expected, **close)


@each_dimension
@pytest.mark.parametrize("full", [False, True], ids=["traces", "matrices"])
def test_poses_are_eqs_12_to_14(D, full):
    s, moments, alpha = after_e_step(D, full)
    # Means other than those of the E-step: the oracle then has a reason to turn the clouds far, and
    # to guard a reflection.
    for means in (s.mixture.means, s.mixture.means * ([1.0] * (D - 1) + [-1.0])):
        mixture = replace(s.mixture, means=means)
        found = mstep.poses(moments, s.poses, mixture)
        for j, (a, V) in enumerate(zip(alpha, s.clouds, strict=True)):
            L, W = oracle.Lambda(a, s.mixture.variances), oracle.W(a, V, 7)
            R = oracle.rotation(means.T, L, W)
            np.testing.assert_allclose(geometry.rotation(found[j]), R, **close)
            np.testing.assert_allclose(
                geometry.translation(found[j]), oracle.translation(means.T, L, W, R), **close
            )
            assert np.linalg.det(R) == pytest.approx(1)


@each_dimension
@pytest.mark.parametrize("full", [False, True], ids=["traces", "matrices"])
def test_mixture_is_eqs_15_to_19(D, full):
    s, moments, alpha = after_e_step(D, full)
    new = mstep.poses(moments, s.poses, s.mixture)
    moved = moments.moved(new @ geometry.inverse(s.poses))
    R, t = geometry.rotation(new), geometry.translation(new)
    means = mstep.means(moved)
    np.testing.assert_allclose(means, oracle.means(s.clouds, R, t, alpha, 7), **close)
    variances = mstep.variances(moved, means, 0.01, s.mixture.variances)
    np.testing.assert_allclose(
        variances, oracle.variances(s.clouds, R, t, means, alpha, 0.01), **close
    )
    if full:
        covariances = mstep.covariances(moved, means, 0.01, s.mixture.covariances)
        np.testing.assert_allclose(
            covariances, oracle.covariances(s.clouds, R, t, means, alpha, 0.01), **close
        )
    for gamma in (0.0, 0.3):
        priors = mstep.priors(moved, gamma)
        np.testing.assert_allclose(priors, oracle.priors(alpha, gamma), **close)
        assert priors.sum() == pytest.approx(1 / (1 + gamma), rel=1e-14)


@each_dimension
@pytest.mark.parametrize("mass", [0.0, 1e-200, 1e-13])
def test_a_starved_component_keeps_its_mean_and_spread(D, mass):
    s, moments, _ = after_e_step(D, True)
    thin = np.ones(7)
    thin[2] = mass / moments.mass[:, 2].sum()
    starved = replace(
        moments,
        mass=moments.mass * thin,
        first=moments.first * thin[:, None],
        second=moments.second * thin[:, None, None],
    )
    means = mstep.means(starved)
    np.testing.assert_allclose(means[2], s.mixture.means[2], rtol=1e-14)
    assert mstep.variances(starved, means, 0.01, s.mixture.variances)[2] == s.mixture.variances[2]
    np.testing.assert_array_equal(
        mstep.covariances(starved, means, 0.01, s.mixture.covariances)[2], s.mixture.covariances[2]
    )
    assert mstep.priors(starved, 0.1)[2] == pytest.approx(mass / starved.mass.sum() / 1.1)
    np.testing.assert_allclose(
        np.delete(means, 2, 0), np.delete(mstep.means(moments), 2, 0), rtol=1e-12
    )


@each_dimension
def test_a_cloud_that_sees_nothing_stays_where_it_is(D):
    """It must not jump to the identity, as if that were a result."""
    s, moments, _ = after_e_step(D)
    blind = np.ones(len(s.clouds))
    blind[1] = 0
    unseen = replace(
        moments,
        mass=moments.mass * blind[:, None],
        first=moments.first * blind[:, None, None],
        second=moments.second * blind[:, None],
    )
    found = mstep.poses(unseen, s.poses, s.mixture)
    np.testing.assert_allclose(found[1], s.poses[1], atol=1e-14)
    np.testing.assert_array_equal(found[[0, 2]], mstep.poses(moments, s.poses, s.mixture)[[0, 2]])
