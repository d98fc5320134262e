# SPDX-License-Identifier: MIT
"""The result: what it says of points and clouds, and the folder it is kept in."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.em import estep
from coframe.evaluate import metrics
from coframe.paper import initial


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(
        3, 800, degrees=30.0, noise_db=40.0, outliers=0.2, rng=np.random.default_rng(0)
    )


@pytest.fixture(scope="module")
def result(scene: simulate.SimulatedScene) -> coframe.Registration:
    rng = np.random.default_rng(2)
    start = initial.means_on_sphere(scene.clouds, 480, rng)
    return coframe.paper.batch(scene.clouds, start, gamma=0.1, iterations=60)


def test_the_scene_is_registered(
    result: coframe.Registration, scene: simulate.SimulatedScene
) -> None:
    assert metrics.rotation_errors(result.poses, scene.poses).max() < 3
    before = metrics.rotation_errors(geometry.identity(3, 3), scene.poses).max()
    assert before > 5


def test_outliers_are_found(result: coframe.Registration, scene: simulate.SimulatedScene) -> None:
    inlier, outlier = np.concatenate(result.inliers()), np.concatenate(scene.outliers)
    assert (~inlier[outlier]).mean() > 0.7
    assert (~inlier[~outlier]).mean() < 0.2


def test_the_variance_rule(result: coframe.Registration) -> None:
    threshold = 2 * np.median(result.mixture.variances)
    np.testing.assert_array_equal(result.reliable(), result.mixture.variances <= threshold)
    assert 0 < (~result.reliable()).sum() < len(result.mixture) / 2
    assert result.reliable(2.5).sum() >= result.reliable().sum()
    assert len(result.model()) == result.reliable().sum()
    for label, inlier in zip(result.labels, result.inliers(), strict=True):
        assert not inlier[label == -1].any()
        assert inlier[np.isin(label, np.flatnonzero(result.reliable()))].all()
    assert [len(c) for c in result.cleaned()] == [k.sum() for k in result.inliers()]


def test_the_variance_rule_is_for_spheres(result: coframe.Registration) -> None:
    flat = result.mixture.covariances * np.diag([1.0, 1.0, 0.01])
    ellipsoids = replace(result, mixture=replace(result.mixture, covariances=flat))
    assert ellipsoids.reliable().shape == (len(result.mixture),)
    for method in (ellipsoids.reliable, ellipsoids.inliers, ellipsoids.model, ellipsoids.cleaned):
        with pytest.raises(coframe.InputError, match="multiple: expected a mixture of spheres"):
            method(2.5)


def test_what_a_prompt_shows_is_short(result: coframe.Registration) -> None:
    lines = repr(result).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 160
    assert lines[0] == "Registration of 3 clouds: 3 aligned"
    assert f"{sum(map(len, result.clouds)):,} points" in lines[1]
    assert "60 iterations: stopped at the iteration limit" in lines[2]
    assert repr(result.mixture) == "Mixture of 480 spheres in 3-D"
    assert repr(result.moments) == "Moments of 3 clouds, 480 components"
    assert repr(result.moments[0]) == "Moments of 480 components"
    several = replace(result, groups=((0, 1), (2,)), warnings=("look",))
    first = "Registration of 3 clouds in 2 groups: 3 aligned; 1 warning"
    assert repr(several).splitlines()[0] == first


def test_results_can_be_compared(result: coframe.Registration) -> None:
    """By identity: whether arrays are equal has no one answer."""
    same = result
    assert result == same
    assert result != replace(result)
    assert result.mixture != replace(result.mixture)
    assert result.moments != replace(result.moments)
    assert result.history[0] != replace(result.history[0])
    assert len({result, replace(result)}) == 2


def test_visibility_is_what_each_cloud_sees(
    result: coframe.Registration, scene: simulate.SimulatedScene
) -> None:
    """p_jk of the mixture; of one without priors of its own for each cloud, those of all."""
    assert result.mixture.visibility is None
    np.testing.assert_array_equal(result.visibility, np.tile(result.mixture.weights, (3, 1)))
    options = coframe.Options(components=60, points=300, iterations=2)
    own = coframe.register(scene.clouds, scene.poses, options=options)
    np.testing.assert_array_equal(own.visibility, own.mixture.visibility)
    np.testing.assert_allclose(own.visibility.mean(0), own.mixture.weights, rtol=1e-12)
    seen = own.moments.mass / own.moments.mass.sum(1, keepdims=True)
    assert np.corrcoef(own.visibility.ravel(), seen.ravel())[0, 1] > 0.95


def test_labels_and_outlier_probability_are_those_of_the_posteriors(
    result: coframe.Registration,
) -> None:
    for cloud, label, probability in zip(
        result.aligned(), result.labels, result.outlier_probability, strict=True
    ):
        alpha = estep.posteriors(cloud, result.mixture)
        np.testing.assert_allclose(probability, alpha[:, -1], atol=1e-8)
        chosen = np.where(label < 0, len(result.mixture), label)
        np.testing.assert_allclose(alpha[np.arange(len(alpha)), chosen], alpha.max(1), rtol=1e-6)


def test_merged_is_all_points_in_the_common_frame(result: coframe.Registration) -> None:
    expected = [
        c @ T[:3, :3].T + T[:3, 3] for c, T in zip(result.clouds, result.poses, strict=True)
    ]
    np.testing.assert_allclose(result.merged(), np.concatenate(expected), atol=1e-12)


def test_relative_to_changes_only_the_gauge(
    result: coframe.Registration, scene: simulate.SimulatedScene
) -> None:
    other = result.relative_to(1)
    np.testing.assert_allclose(other.poses[1], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(
        metrics.rotation_errors(other.poses, scene.poses),
        metrics.rotation_errors(result.poses, scene.poses),
        atol=1e-6,
    )
    alpha = estep.posteriors(result.aligned()[0], result.mixture)
    np.testing.assert_allclose(
        estep.posteriors(other.aligned()[0], other.mixture), alpha, atol=1e-7
    )
    pooled, moved = result.moments.pooled(), other.moments.pooled()
    np.testing.assert_allclose(
        moved.about + moved.first / moved.mass[:, None],
        geometry.transform(
            geometry.inverse(result.poses[1]), pooled.about + pooled.first / pooled.mass[:, None]
        ),
        atol=1e-9,
    )
    np.testing.assert_allclose(np.trace(other.history[-1].poses[1]), 4)


def test_save_and_load(result: coframe.Registration, tmp_path: Path) -> None:
    back = coframe.load(result.save(tmp_path / "out"))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        "poses.json",
        "merged.ply",
        "model.ply",
        "state.npz",
    }
    for name in ("poses",):
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name))
    for name in ("means", "covariances", "weights", "outlier_density"):
        np.testing.assert_array_equal(getattr(back.mixture, name), getattr(result.mixture, name))
    for name in ("about", "mass", "first", "second", "points"):
        np.testing.assert_array_equal(getattr(back.moments, name), getattr(result.moments, name))
    assert (back.names, back.status, back.iterations) == (
        result.names,
        result.status,
        result.iterations,
    )
    for a, b in zip(back.history, result.history, strict=True):
        assert (a.number, a.log_likelihood, a.step) == (b.number, b.log_likelihood, b.step)
        np.testing.assert_array_equal(a.poses, b.poses)
    for a, b in zip(back.clouds, result.clouds, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    for a, b in zip(back.labels, result.labels, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(back.outlier_probability, result.outlier_probability, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


def test_pose_file(result: coframe.Registration, tmp_path: Path) -> None:
    content = json.loads((result.save(tmp_path) / "poses.json").read_text())
    assert content["format"] == "coframe-poses/1"
    assert content["status"] == "iteration_limit"
    assert content["version"] == coframe.__version__
    # full digits
    np.testing.assert_array_equal([c["pose"] for c in content["clouds"]], result.poses)
    assert [c["points"] for c in content["clouds"]] == [len(c) for c in result.clouds]


@pytest.mark.parametrize("missing", ["state.npz", "merged.ply"])
def test_load_says_what_is_missing(
    result: coframe.Registration, tmp_path: Path, missing: str
) -> None:
    (result.save(tmp_path) / missing).unlink()
    with pytest.raises(coframe.InputError, match=missing):
        coframe.load(tmp_path)
