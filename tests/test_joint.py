# SPDX-License-Identifier: MIT
"""The joint pose step: its derivatives against brute force, its laws."""

from dataclasses import replace

import numpy as np
import pytest
from scenes import JointProblem, dense_equations, unchecked

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.data import simulate
from coframe.em import joint
from coframe.em.constraints import Constraints, Prior
from coframe.em.joint import DenseEquations, System
from coframe.em.joint_sparse import DAMPING, SparseEquations
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL, ModelRecipe

each_dimension = pytest.mark.parametrize("D", [2, 3])
DENSE, SPARSE = replace(MODEL, sparse=False), replace(MODEL, sparse=True)


def misfit(moments: Moments, precisions: np.ndarray) -> float:
    """-2 Q with the best means: the sum of squared Mahalanobis distances of the points to the means
    of their components.
    """
    pooled = moments.pooled()
    offset = pooled.first / np.maximum(pooled.mass, np.finfo(float).tiny)[:, None]
    scatter = pooled.second - pooled.first[:, :, None] * offset[:, None, :]
    return float((scatter * precisions).sum())


@each_dimension
def test_misfit_is_that_of_the_points(D: int) -> None:
    p = JointProblem(D)
    assert misfit(p.moments, p.precisions) == pytest.approx(
        (p.residuals(p.points) ** 2).sum(), rel=1e-10
    )


@each_dimension
def test_gradient_and_matrix_are_those_of_brute_force(D: int) -> None:
    p = JointProblem(D)
    H, g = dense_equations(p.moments, p.precisions, p.centre)
    h = 1e-6
    J = np.array(
        [
            (p.residuals(p.moved(h * e)) - p.residuals(p.moved(-h * e))) / (2 * h)
            for e in np.eye(p.M * p.P)
        ]
    ).T
    np.testing.assert_allclose(g, J.T @ p.residuals(p.points), atol=1e-6 * np.abs(g).max())
    np.testing.assert_allclose(H, J.T @ J, atol=1e-6 * np.abs(H).max())
    np.testing.assert_array_equal(H, H.T)


@each_dimension
def test_a_common_motion_is_free_and_is_not_taken(D: int) -> None:
    p = JointProblem(D)
    H, g = dense_equations(p.moments, p.precisions, p.centre)
    # shifts; a turn is free too, but only if the ellipsoids turn with it
    common = np.tile(np.eye(p.P), (p.M, 1))[:, -D:]
    np.testing.assert_allclose(H @ common, 0, atol=1e-9 * np.abs(H).max())
    np.testing.assert_allclose(common.T @ g, 0, atol=1e-9 * np.abs(g).max())
    motions = p.system().motions()
    shift = (
        np.einsum("mij,j->mi", geometry.rotation(motions), p.centre)
        + geometry.translation(motions)
        - p.centre
    )
    np.testing.assert_allclose(
        geometry.log_rotation(geometry.rotation(motions)).mean(0), 0, atol=1e-9
    )
    np.testing.assert_allclose(shift.mean(0), 0, atol=1e-9)


@each_dimension
@pytest.mark.parametrize("seed", range(5))
def test_clouds_moved_apart_a_little_are_brought_back(D: int, seed: int) -> None:
    """From near the optimum, Gauss-Newton converges: the misfit falls to that of the optimum, and
    stays there.
    """
    p = JointProblem(D, seed)
    moments = p.moments
    for _ in range(60):
        moments = moments.moved(p.system(moments=moments).motions())
    best = misfit(moments, p.precisions)
    disturbed = moments.moved(
        geometry.about(geometry.exp(0.02 * p.rng.normal(size=(p.M, p.P))), p.centre)
    )
    worse = misfit(disturbed, p.precisions)
    again = disturbed.moved(p.system(moments=disturbed).motions())
    assert worse > best
    assert misfit(again, p.precisions) - best < 0.5 * (worse - best)


@each_dimension
def test_fixed_clouds_do_not_move(D: int) -> None:
    p = JointProblem(D)
    motions = p.system(Constraints(fixed=(1, 3))).motions()
    np.testing.assert_array_equal(motions[[1, 3]], geometry.identity(2, D))
    assert (np.abs(motions[[0, 2]] - np.eye(D + 1)).max((1, 2)) > 1e-6).all()


@each_dimension
def test_flat_components_give_way_along_their_surface_only(D: int) -> None:
    flat = np.diag([1.0, 1.0, 1e-4][-D:])  # thin along the last axis
    soft = joint.softened(np.array([flat, np.eye(D)]), MODEL.slide)
    np.testing.assert_allclose(soft[1], np.eye(D))
    np.testing.assert_allclose(soft[0, -1, -1], 1e4)
    assert soft[0, 0, 0] == pytest.approx(MODEL.min_tangent)


@each_dimension
def test_pooled_after_a_motion_is_pooled_after_a_motion(D: int) -> None:
    p = JointProblem(D)
    motions = geometry.exp(p.rng.normal(size=(p.M, p.P)))
    fast, slow = p.moments.moved_and_pooled(motions), p.moments.moved(motions).pooled()
    for name in ("about", "mass", "first", "second", "points"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-10, atol=1e-10)


def many(
    D: int, M: int = 40, K: int = 30, *, loose: bool, empty: bool
) -> tuple[Moments, np.ndarray, np.ndarray]:
    """Moments of clouds along a loop, each of which sees a few components; one may share nothing,
    one see nothing.
    """
    rng = np.random.default_rng([0, D])
    seen = (np.arange(K)[None] - (np.arange(M) * (K - 1) // M)[:, None]) % (K - 1) < 6
    if loose:
        seen[:, -1], seen[4] = False, np.arange(K) == K - 1
    if empty:
        seen[3] = False
    weights = np.where(seen[:, None], rng.uniform(0.1, 1, (M, 5, K)), 0)
    y = rng.normal(size=(M, 5, K, D)) * 0.03
    mass, first = weights.sum(1), np.einsum("jik,jikd->jkd", weights, y)
    moments = Moments(
        rng.normal(size=(K, D)),
        mass,
        first,
        np.einsum("jik,jikd,jike->jkde", weights, y, y),
        np.full(M, 100.0),
    )
    A = rng.normal(size=(K, D, D))
    return moments, 1e3 * A @ A.transpose(0, 2, 1) + np.eye(D), 0.1 * rng.normal(size=D)


def belief(D: int) -> Prior:
    rng, P = np.random.default_rng(D), geometry.degrees_of_freedom(D)
    A = rng.normal(size=(P, P))
    return Prior(
        7, geometry.exp(0.01 * rng.normal(size=(1, P)))[0], 50 * A @ A.T, rng.normal(size=D)
    )


@each_dimension
@pytest.mark.parametrize("motion", ["rigid", "translation", "yaw"])
@pytest.mark.parametrize("fixed", [(), (1, 9)])
@pytest.mark.parametrize("believed", [False, True])
@pytest.mark.parametrize("loose", [False, True])
def test_many_clouds_move_as_few_do(
    D: int,
    motion: str,
    fixed: tuple[int, ...],
    believed: bool,
    loose: bool,
) -> None:
    """The system that is not written down has the solution and covariances of the one that is."""
    # In the dense system, a cloud that sees nothing may move for all others where the motion they
    # share is free.
    moments, precisions, centre = many(D, loose=loose, empty=loose and (believed or len(fixed) > 0))
    poses = geometry.exp(
        0.1
        * np.random.default_rng(1).normal(size=(len(moments.mass), geometry.degrees_of_freedom(D)))
    )
    constraints = Constraints(fixed, motion, (belief(D),) if believed else ())
    written, through = (
        System(moments, precisions, centre, poses, constraints, recipe)
        for recipe in (DENSE, SPARSE)
    )
    # what nothing constrains is moved by rounding
    constrained = np.arange(len(poses)) > (4 if loose else -1)

    def relative(twists: np.ndarray) -> np.ndarray:
        some = twists[constrained]
        return some - some.mean(0) if constraints.gauge_free else some

    few, many_ = relative(written.twists()), relative(through.twists())
    assert np.abs(few).max() > 1e-2
    np.testing.assert_allclose(many_, few, rtol=0, atol=1e-10)
    spread, found = written.covariances()[constrained], through.covariances()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[constrained], spread, rtol=0, atol=1e-8 * np.abs(spread).max())


@each_dimension
@pytest.mark.parametrize("recipe", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_clouds_that_nothing_constrains_do_not_blur_the_others(D: int, recipe: ModelRecipe) -> None:
    """Without a fixed cloud: one that shares nothing and one that sees nothing are unknown, the
    others as without these two.
    """
    moments, precisions, centre = many(D, loose=True, empty=True)
    poses = geometry.identity(len(moments.mass), D)
    whole = System(moments, precisions, centre, poses, recipe=recipe)
    found = whole.covariances()
    np.testing.assert_array_equal(found, np.swapaxes(found, 1, 2))
    constrained = ~np.isin(np.arange(len(poses)), [3, 4])
    rest = replace(whole, moments=moments.only(constrained), poses=poses[constrained])
    alone = rest.covariances()
    np.testing.assert_allclose(found[constrained], alone, rtol=1e-9)
    assert np.abs(alone).max() < 1
    assert (np.diagonal(found[~constrained], axis1=1, axis2=2) > 1e15).all()


@each_dimension
def test_the_solution_of_many_is_exact_to_rounding(D: int) -> None:
    M = 200
    moments, precisions, centre = many(D, M, K=150, loose=True, empty=True)
    poses = geometry.identity(M, D)
    written, through = (
        System(moments, precisions, centre, poses, recipe=recipe) for recipe in (DENSE, SPARSE)
    )
    sparse, dense = through.equations, written.equations
    assert isinstance(sparse, SparseEquations)
    assert isinstance(dense, DenseEquations)
    trace, free = joint.TRACE * through.stiffness(), sparse.constrained
    factored = sparse.factored(trace, free, damping=DAMPING, gauge_free=True)
    found = factored.solved(sparse.gradient)
    H, g = dense.regularised(trace.ravel(), True), dense.gradient.ravel()
    left = (H @ found.ravel() - g)[free.ravel()]
    assert 0 < np.linalg.norm(found) < 1e3
    assert np.linalg.norm(left) < 1e-12 * np.linalg.norm(g)
    np.testing.assert_array_equal(found[~free], 0)


def test_a_registration_solved_through_the_model_is_the_same() -> None:
    """From start to verdicts, on clouds few enough for both ways: the same but for rounding,
    covariances included.
    """
    scene = simulate.scene(4, 300, degrees=90.0, noise_db=45.0, rng=np.random.default_rng(0))
    options = coframe.Options(components=20, points=200, iterations=3, threads=1)
    with unchecked():
        dense = coframe.register(scene.clouds, scene.poses, options=options)
        sparse = replace(ALIGN, model=SPARSE)
        through = coframe.register(scene.clouds, scene.poses, options=options, recipe=sparse)
    assert not np.array_equal(through.poses, dense.poses)  # it was the other way
    np.testing.assert_allclose(through.poses, dense.poses, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        through.pose_covariance, dense.pose_covariance, rtol=1e-4, atol=1e-12
    )
    assert [v.verdict for v in through.verdicts] == [v.verdict for v in dense.verdicts]
