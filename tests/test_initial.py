# SPDX-License-Identifier: MIT
"""The paper's initialisations."""

import numpy as np
import pytest

from coframe import geometry
from coframe.errors import InputError
from coframe.paper import initial


@pytest.fixture(params=[2, 3])
def clouds(request: pytest.FixtureRequest) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, request.param)) * 3 + 10 * j for j, n in enumerate((40, 60, 80))]


def test_clouds_are_centred_on_the_means(clouds: list[np.ndarray]) -> None:
    target = np.arange(clouds[0].shape[1], dtype=float)
    for T, cloud in zip(initial.poses_by_centroid(clouds, target), clouds, strict=True):
        np.testing.assert_allclose(geometry.transform(T, cloud).mean(0), target, atol=1e-12)
        np.testing.assert_array_equal(geometry.rotation(T), np.eye(len(target)))


def test_the_number_of_components_is_a_share_of_the_mean_cardinality(
    clouds: list[np.ndarray],
) -> None:
    assert initial.component_count(clouds) == 36
    assert initial.component_count(clouds, 0.001) == 1


def test_the_sphere_holds_every_centred_cloud(clouds: list[np.ndarray]) -> None:
    found = initial.means_on_sphere(clouds, 500, np.random.default_rng(1))
    radii = np.linalg.norm(found, axis=1)
    assert found.shape == (500, clouds[0].shape[1])
    np.testing.assert_allclose(radii, radii[0])
    assert radii[0] == pytest.approx(
        max(np.linalg.norm(c - c.mean(0), axis=1).max() for c in clouds)
    )
    assert np.abs(found.mean(0)).max() < 0.2 * radii[0]  # spread evenly, not piled at a pole
    np.testing.assert_array_equal(
        found, initial.means_on_sphere(clouds, 500, np.random.default_rng(1))
    )


def test_means_are_points_of_all_clouds(clouds: list[np.ndarray]) -> None:
    T = initial.poses_by_centroid(clouds, np.zeros(clouds[0].shape[1]))
    moved = np.concatenate([geometry.transform(t, c) for t, c in zip(T, clouds, strict=True)])
    drawn = initial.means_on_points(clouds, T, 90, np.random.default_rng(1))
    owners = (drawn[:, None] == moved).all(2).argmax(1)
    assert {0, 1, 2} == set(np.searchsorted([40, 100, 180], owners, side="right"))
    with pytest.raises(InputError, match="at most 180"):
        initial.means_on_points(clouds, T, 181, np.random.default_rng(1))


def test_start_variances(clouds: list[np.ndarray]) -> None:
    D = clouds[0].shape[1]
    T = geometry.identity(3, D)
    x = np.full((1, D), -50.0)
    everything = np.concatenate([*clouds, x])
    assert initial.variance_of_box(clouds, T, x) == pytest.approx(
        (np.ptp(everything, axis=0) ** 2).sum()
    )
    exact = np.median(((np.concatenate(clouds) - x[0]) ** 2).sum(1))
    rng = np.random.default_rng(1)
    assert initial.variance_of_distances(clouds, T, x, rng) == pytest.approx(exact)
    assert initial.variance_of_distances(clouds, T, x, rng, pairs=100) == pytest.approx(
        exact, rel=0.3
    )
