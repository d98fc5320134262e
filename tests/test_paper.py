# SPDX-License-Identifier: MIT
"""JRMPC-B as a user runs it: equal to the authors' program, to the oracle, and to itself in any
units, frame and order.
"""

import numpy as np
import oracle
import pytest
from scenes import bits, blobs, random_poses, views

from coframe import geometry, paper
from coframe.em.loop import Status
from coframe.evaluate.metrics import relative
from coframe.io import ply
from coframe.paper.batch import outlier_density

each_dimension = pytest.mark.parametrize("D", [2, 3])


def problem(D, sizes=(30, 25, 20), K=8, seed=0):
    """Clouds and start means."""
    clouds, _ = views(D, sizes=sizes, seed=seed)
    rng = np.random.default_rng([seed, D, K])
    return clouds, np.concatenate(clouds)[rng.choice(sum(sizes), K, replace=False)] + 0.01


def assert_equal(result, R, t, means, variances, weights, tolerance):
    close = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(geometry.rotation(result.poses), R, **close)
    np.testing.assert_allclose(geometry.translation(result.poses), t, **close)
    np.testing.assert_allclose(result.mixture.means, means, **close)
    np.testing.assert_allclose(result.mixture.variances, variances, **close)
    np.testing.assert_allclose(result.mixture.weights, weights, **close)


@pytest.mark.parametrize(
    "index", range(4), ids=["1 iteration", "5 iterations", "20 iterations", "60 iterations"]
)
def test_equals_the_authors_program(data, reference, index):
    clouds = [np.loadtxt(data(f"jrmpc_synthetic/cutView{j}.txt")) for j in (1, 2, 3, 4)]
    with np.load(reference("jrmpc_cutview.npz")) as file:
        expected = [file[name][index] for name in ("R", "t", "means", "variances", "weights")]
        means, iterations = file["means0"], int(file["iterations"][index])
    result = paper.batch(clouds, means, gamma=0.1, iterations=iterations)
    assert result.iterations == iterations
    assert_equal(result, *expected, tolerance=1e-8)


@each_dimension
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gamma": 0.1},
        {"gamma": 0.0},
        {"update_priors": True},
        {"gamma": 0.3, "update_priors": True},
        {"fixed_variances": 3, "update_priors": True, "variances": 0.05},
        {"fixed_variances": 9, "variances": 0.05},
        {"variances": 0.05, "epsilon": 1e-3},
    ],
    ids=lambda options: (
        ", ".join(f"{name}={value}" for name, value in options.items()) or "defaults"
    ),
)
def test_equals_the_paper(D, options):
    clouds, means = problem(D)
    result = paper.batch(clouds, means, iterations=5, **options)
    as_in_the_paper = {"variances": "sigma", "epsilon": "epsilon2"}
    options = {as_in_the_paper.get(name, name): value for name, value in options.items()}
    *expected, log_likelihoods = oracle.batch(clouds, means, Q=5, **options)
    assert_equal(result, *expected, tolerance=1e-10)
    np.testing.assert_allclose(
        [i.log_likelihood for i in result.history], log_likelihoods, rtol=1e-9
    )
    np.testing.assert_array_equal(result.history[-1].poses, result.poses)
    assert result.status is Status.ITERATION_LIMIT


@each_dimension
def test_starts_from_given_poses_and_variances(D):
    clouds, means = problem(D)
    rng = np.random.default_rng(0)
    poses, variances = random_poses(rng, 3, D), rng.uniform(0.1, 0.4, len(means))
    result = paper.batch(clouds, means, poses=poses, variances=variances, iterations=5)
    R, t = geometry.rotation(poses), geometry.translation(poses)
    *expected, _ = oracle.batch(clouds, means, sigma=variances, R=R, t=t, Q=5)
    assert_equal(result, *expected, tolerance=1e-10)


@each_dimension
def test_what_is_said_of_the_points_fits_the_poses_and_mixture_returned(D):
    clouds, means = problem(D)
    result = paper.batch(clouds, means, gamma=0.3, iterations=7)
    m, R, t = result.mixture, geometry.rotation(result.poses), geometry.translation(result.poses)
    alpha = oracle.alpha(
        oracle.beta(clouds, R, t, m.weights, m.means, m.variances),
        m.outlier_density * (2 * np.pi) ** (D / 2),
    )
    A, b, _ = oracle.sums(clouds, R, t, m.means, alpha)
    np.testing.assert_allclose(result.moments.mass, A, atol=1e-7)
    np.testing.assert_allclose(result.moments.first, b, atol=1e-7)
    for a, outlier, label in zip(alpha, result.outlier_probability, result.labels, strict=True):
        np.testing.assert_allclose(outlier, a[:, -1], atol=1e-8)
        np.testing.assert_array_equal(np.where(label < 0, len(means), label), a.argmax(1))


@each_dimension
def test_outlier_density_bridges_the_dropped_factor(D):
    variances = np.array([0.1, 0.2, 0.4])
    h = 2 / np.mean(1 / variances)
    assert outlier_density(variances, 0.3, D) * (2 * np.pi) ** (D / 2) == pytest.approx(
        0.3 / (h * 1.3), rel=1e-14
    )
    assert outlier_density(variances, 0.0, D) == 0


@each_dimension
def test_without_outlier_class_no_point_is_one(D):
    """Not even one so far away that every density underflows."""
    clouds, means = problem(D)
    clouds[0] = np.concatenate([clouds[0], np.full((1, D), 100.0)])
    result = paper.batch(clouds, means, gamma=0.0, variances=1e-3, fixed_variances=5, iterations=5)
    for cloud, outlier, label in zip(
        clouds, result.outlier_probability, result.labels, strict=True
    ):
        np.testing.assert_array_equal(outlier, np.zeros(len(cloud)))
        assert (label >= 0).all()
    np.testing.assert_allclose(result.moments.outlier_mass, 0, atol=1e-9)


def test_any_number_of_threads_gives_the_same_bits():
    clouds, means = problem(3, sizes=(2500, 1200, 60), K=40)
    runs = []
    for threads in (1, 2, 3, 5):
        r = paper.batch(clouds, means, gamma=0.1, update_priors=True, iterations=8, threads=threads)
        history = [(i.log_likelihood, i.step) for i in r.history]
        fields = (
            r.poses,
            r.mixture.means,
            r.mixture.covariances,
            r.mixture.weights,
            history,
            r.moments.second,
        )
        runs.append(bits(*fields, *r.outlier_probability, *r.labels))
    assert all(run == runs[0] for run in runs)


def run_moved(clouds, means, poses, motions, **options):
    """The run with each cloud moved by its own motion, the start poses compensating; its poses for
    the clouds as they were.
    """
    moved = [geometry.transform(G, V) for G, V in zip(motions, clouds, strict=True)]
    return (
        paper.batch(
            moved, means, poses=poses @ geometry.inverse(motions), iterations=20, **options
        ).poses
        @ motions
    )


@each_dimension
def test_moving_clouds_changes_no_relative_pose(D):
    clouds, means = problem(D, sizes=(120, 100, 90), K=12)
    rng = np.random.default_rng(0)
    poses = random_poses(rng, 3, D, degrees=5.0, shift=0.05)
    still = paper.batch(clouds, means, poses=poses, gamma=0.1, iterations=20).poses
    moved = run_moved(clouds, means, poses, random_poses(rng, 3, D), gamma=0.1)
    np.testing.assert_allclose(relative(moved), relative(still), atol=1e-10)
    G = random_poses(rng, 1, D)[0]  # and moving the common frame turns every pose with it
    turned = paper.batch(
        clouds,
        geometry.transform(G, means),
        poses=G @ poses,
        gamma=0.1,
        iterations=20,
        variances=0.2,
    )
    upright = paper.batch(clouds, means, poses=poses, gamma=0.1, iterations=20, variances=0.2)
    np.testing.assert_allclose(relative(turned.poses), relative(upright.poses), atol=1e-10)
    np.testing.assert_allclose(turned.poses, G @ upright.poses, atol=1e-10)


@each_dimension
def test_utm_coordinates_change_no_relative_pose(D):
    """Coordinates are multiples of 2^-20, so that the shift is exact; what remains is the rounding
    of the poses returned.
    """
    clouds, means = problem(D, sizes=(120, 100, 90), K=12)
    clouds = [np.round(V * 2**20) / 2**20 for V in clouds]
    utm = np.array([500_000.0, 4_400_000.0, 100.0])[:D]
    G = np.tile(geometry.pose(np.eye(D), utm), (3, 1, 1))
    poses = geometry.pose(
        np.tile(np.eye(D), (3, 1, 1)), np.round(means.mean(0) - [V.mean(0) for V in clouds], 3)
    )
    here = paper.batch(clouds, means, poses=poses, gamma=0.1, iterations=20).poses
    there = run_moved(clouds, means, poses, G, gamma=0.1)
    np.testing.assert_allclose(
        geometry.rotation(relative(there)), geometry.rotation(relative(here)), atol=1e-9
    )
    # R * 4.4e6 + t keeps nine decimals
    np.testing.assert_allclose(relative(there), relative(here), atol=1e-8)
    # The common frame far away as well, as when the clouds are already roughly georeferenced.
    shifted = paper.batch([V + utm for V in clouds], means + utm, gamma=0.1, iterations=20).poses
    default = paper.batch(clouds, means, gamma=0.1, iterations=20).poses
    relative_there = geometry.inverse(G) @ relative(shifted) @ G
    np.testing.assert_allclose(
        geometry.rotation(relative_there), geometry.rotation(relative(default)), atol=1e-9
    )
    np.testing.assert_allclose(relative_there, relative(default), atol=2e-8)


@each_dimension
def test_scaling_changes_no_relative_pose(D):
    """With gamma > 0 in the plane only: the authors' volume h is a variance, an area, whatever the
    dimension.
    """
    clouds, means = problem(D, sizes=(120, 100, 90), K=12)
    options = {"gamma": 0.1 if D == 2 else 0.0, "iterations": 30}
    one = paper.batch(clouds, means, epsilon=1e-6, **options)
    for scale in (1e-3, 1e3):
        other = paper.batch(
            [V * scale for V in clouds], means * scale, epsilon=1e-6 * scale**2, **options
        )
        back = geometry.pose(
            geometry.rotation(other.poses), geometry.translation(other.poses) / scale
        )
        np.testing.assert_allclose(relative(back), relative(one.poses), atol=1e-9)
        np.testing.assert_allclose(
            [i.step for i in other.history], [i.step for i in one.history], rtol=1e-6
        )


@each_dimension
def test_stops_after_the_same_iterations_in_any_unit(D):
    s, _ = blobs(D)
    runs = [
        paper.batch(
            [V * unit for V in s.clouds],
            s.mixture.means * unit,
            epsilon=1e-6 * unit**2,
            gamma=0.0,
            tolerance=1e-5,
        )
        for unit in (1.0, 1e-3, 1e3)
    ]
    assert [run.status for run in runs] == [Status.CONVERGED] * 3
    assert all(run.converged and run.iterations == runs[0].iterations for run in runs)


@each_dimension
def test_order_changes_no_relative_pose(D):
    clouds, means = problem(D, sizes=(120, 100, 90), K=12)
    rng = np.random.default_rng(0)
    one = paper.batch(clouds, means, gamma=0.1, iterations=30, update_priors=True)
    order, components = [2, 0, 1], rng.permutation(12)
    other = paper.batch(
        [rng.permutation(clouds[j]) for j in order],
        means[components],
        gamma=0.1,
        iterations=30,
        update_priors=True,
    )
    np.testing.assert_allclose(other.poses, one.poses[order], atol=1e-9)
    np.testing.assert_allclose(other.mixture.means, one.mixture.means[components], atol=1e-9)
    np.testing.assert_allclose(other.mixture.weights, one.mixture.weights[components], atol=1e-9)


def test_the_callback_sees_user_units_and_may_stop_in_either_phase():
    clouds, means = problem(3)
    seen = []
    result = paper.batch(clouds, means, iterations=6, fixed_variances=3, on_iteration=seen.append)
    assert [i.number for i in seen] == list(range(6))
    for a, b in zip(seen, result.history, strict=True):
        assert (a.log_likelihood, a.step) == (b.log_likelihood, b.step)
        np.testing.assert_array_equal(a.poses, b.poses)
    for number in (1, 4):
        stopped = paper.batch(
            clouds,
            means,
            iterations=6,
            fixed_variances=3,
            on_iteration=lambda i, n=number: i.number == n,
        )
        assert stopped.status is Status.STOPPED
        assert stopped.iterations == number + 1
        np.testing.assert_array_equal(stopped.poses, result.history[number].poses)


def test_files_are_read(tmp_path):
    clouds, means = problem(3)
    for j, cloud in enumerate(clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    files = sorted(tmp_path.glob("*.ply"))
    result = paper.batch(files, means, iterations=3)
    assert result.names == ("scan0", "scan1", "scan2")
    assert result.files == tuple(map(str, files))
    expected = paper.batch(clouds, means, iterations=3).poses
    for given in (files, tmp_path, str(tmp_path / "*.ply")):
        np.testing.assert_array_equal(paper.batch(given, means, iterations=3).poses, expected)
