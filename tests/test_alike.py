# SPDX-License-Identifier: MIT
"""Cheap checks before any matching: another unit is named with its factor, a duplicate by name."""

import time

import numpy as np
import pytest

import coframe
from coframe import InputError, geometry
from coframe.data import simulate
from coframe.input.alike import FACTORS, unit_doubt
from coframe.start import mirror
from coframe.start.match import Edge
from coframe.start.verify import Evidence

RNG = np.random.default_rng(3)
NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("odd", range(4))
def test_the_factor_is_named(factor: float, odd: int) -> None:
    sizes = [1.0, 1.2, 0.9, 1.1]
    for enlarge in (factor, 1 / factor):
        scaled = [size * (enlarge if j == odd else 1) for j, size in enumerate(sizes)]
        said = unit_doubt(scaled, NAMES, least=2.0)
        assert said is not None
        assert said.startswith(f"{NAMES[odd]} is ")
        assert f"{factor:g} (" in said
        assert ("divide" if enlarge > 1 else "multiply") in said
    assert unit_doubt(sizes, NAMES, least=2.0) is None
    assert unit_doubt([1.0, 1.0, 40.0, 1.0], NAMES, least=2.0, suspects=[1]) is None
    assert unit_doubt([7.0 * size for size in sizes], NAMES, least=2.0) is None


def test_millimetres_among_metres_are_refused_at_once() -> None:
    clouds = [RNG.normal(size=(3000, 3)) for _ in range(4)]
    clouds[2] = 1000 * clouds[2]
    began = time.perf_counter()
    with pytest.raises(InputError, match=r"c is \d+ times as large .* 1000 \(millimetres among"):
        coframe.register(clouds, names=NAMES)
    assert time.perf_counter() - began < 5


def lopsided(views: int) -> list[np.ndarray]:
    """Views of a body with bumps here and there, which is unlike its mirror image."""
    rng = np.random.default_rng(7)
    waves, phases = rng.normal(scale=3.0, size=(8, 3)), rng.uniform(0, 2 * np.pi, 8)
    clouds = []
    for angle in np.radians(25.0) * np.arange(views):
        u = rng.normal(size=(6000, 3))
        u /= np.linalg.norm(u, axis=1)[:, None]
        u = u[u @ [np.sin(angle), 0, np.cos(angle)] > 0.2]
        radius = 1 + 0.09 * np.sin(u @ waves.T + phases).sum(1)
        clouds.append(radius[:, None] * u @ geometry.random_rotation(rng, 3).T)
    return clouds


def test_a_mirrored_cloud_is_named() -> None:
    clouds = lopsided(4)
    clouds[2] = clouds[2] * [1, -1, 1]
    result = coframe.register(clouds, names=NAMES)
    said = [each for each in result.warnings if "mirror" in each]
    assert len(said) == 1, result.verdicts
    assert said[0].startswith("c does not fit, but its mirror image does; check")


def test_a_cloud_of_something_else_is_not_called_mirrored() -> None:
    scene = simulate.scene(3, 1500, degrees=40.0, noise_db=50.0, rng=np.random.default_rng(1))
    foreign = np.random.default_rng(2).normal(size=(1500, 3)) * [1, 1, 0.01]
    result = coframe.register([*scene.clouds, foreign], names=NAMES)
    assert result.verdicts[3].verdict != "aligned"
    assert not any("mirror" in each for each in result.warnings)


def test_views_of_different_corners_of_a_room_are_not_called_mirrored() -> None:
    """The image of one fits another unambiguously, but no better than an edge by itself needs."""

    def edge(weight: float, margin: float) -> Edge:
        best, other = (Evidence(np.eye(4), each, 0.4, 0.01) for each in (weight, weight - margin))
        return Edge(5, 3, best, (other,), 1500)

    assert not mirror.holds(edge(173.0, 75.0), edge(95.0, 0.0))
    assert mirror.holds(edge(400.0, 300.0), edge(95.0, 0.0))
    assert not mirror.holds(edge(400.0, 300.0), edge(500.0, 0.0))


def test_duplicates_are_named() -> None:
    few = coframe.Options(components=20, points=200, start="identity", threads=1)
    cloud = RNG.normal(size=(300, 3))
    moved = geometry.transform(geometry.exp(np.array([0.1, 0.2, 0.3, 1, 2, 3])), cloud)
    other = cloud + RNG.normal(scale=0.01, size=cloud.shape)
    clouds = [cloud, other, cloud, moved, moved * [1, -1, 1]]
    result = coframe.register(clouds, names=[*NAMES, "e"], options=few)
    said = [each for each in result.warnings if "same points" in each]
    assert len(said) == 3
    assert said[2].startswith("e has the same points as a, mirrored; leave")
    assert said[0].startswith("c has the same points as a, in the same place; leave")
    assert said[1].startswith("d has the same points as a, moved; leave")
