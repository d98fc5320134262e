# SPDX-License-Identifier: MIT
"""Could chance make clouds agree? Pieces of surface that need not have met are counted."""

import numpy as np
import pytest

from coframe import geometry
from coframe.align import chance
from coframe.align.chance import in_pieces, majority, parts_beyond_chance, planes_of, surprise
from coframe.align.evidence import Surface, surface
from coframe.types import Points, Pose, Poses

NOISE = 0.002


def bumpy(rng: np.random.Generator, count: int = 2500, seed: int = 7) -> Points:
    """A body with many pieces of surface that face anywhere."""
    shape = np.random.default_rng(seed)
    waves, phases = shape.normal(scale=3.0, size=(8, 3)), shape.uniform(0, 2 * np.pi, 8)
    u = rng.normal(size=(count, 3))
    u /= np.linalg.norm(u, axis=1)[:, None]
    radius = 1 + 0.05 * np.sin(u @ waves.T + phases).sum(1)
    return radius[:, None] * u + rng.normal(scale=NOISE, size=u.shape)


def box(rng: np.random.Generator, count: int = 2500) -> Points:
    """Three faces that meet in a corner: a motion can bring them onto any others like them."""
    points = rng.uniform(size=(count, 3))
    points[np.arange(count), rng.integers(3, size=count)] = 0.0
    return points + rng.normal(scale=NOISE, size=points.shape)


def turned(degrees: float) -> Pose:
    return geometry.exp(np.radians([degrees, 0.0, 0.0, 0.0, 0.0, 0.0]))


def nats(one: Surface, other: Surface, motion: Pose) -> float:
    return surprise(one, other, motion, 1.0).nats


def test_a_body_with_many_pieces_surprises_where_it_belongs_and_not_elsewhere() -> None:
    rng = np.random.default_rng(0)
    one, other = surface(bumpy(rng)), surface(bumpy(rng))
    here = surprise(one, other, np.eye(4), 1.0)
    assert here.nats > 2 * here.needed
    assert 2 * here.nats > here.possible
    away = surprise(one, other, turned(70.0), 1.0)
    assert away.nats < away.needed
    assert 2 * away.nats < away.possible


def test_three_walls_have_no_piece_to_spare() -> None:
    rng = np.random.default_rng(1)
    one, other = surface(box(rng)), surface(box(rng))
    assert nats(one, other, np.eye(4)) == 0.0


def test_it_does_not_depend_on_the_frame_or_on_the_scale() -> None:
    rng = np.random.default_rng(2)
    some, others = bumpy(rng), bumpy(rng)
    motion = geometry.exp(rng.normal(scale=0.3, size=6))
    moved = geometry.transform(motion, others)
    found = nats(surface(some), surface(others), np.eye(4))
    assert nats(surface(some), surface(moved), motion) == pytest.approx(found, rel=0.2)
    scaled = nats(surface(0.25 * some), surface(0.25 * others), np.eye(4))
    assert scaled == pytest.approx(found, rel=1e-6)


def test_planes_are_counted_once() -> None:
    rng = np.random.default_rng(3)
    flat = np.column_stack([rng.uniform(size=(50, 2)), np.zeros(50)])
    up = np.tile([0.0, 0.0, 1.0], (50, 1))
    radii, tolerance = rng.uniform(0.1, 0.2, 50), np.full(50, 0.01)
    assert set(planes_of(flat, up, radii, tolerance).tolist()) == {0}
    steps = flat + np.outer(np.arange(50) % 2, [0.0, 0.0, 0.5])
    found = planes_of(steps, up, radii, tolerance)
    assert len(set(found.tolist())) == 2
    assert len(set(found[::2].tolist())) == 1


def split() -> tuple[list[Surface], Poses]:
    """Two halves of six clouds: right among themselves, and laid upon each other anyhow."""
    rng = np.random.default_rng(4)
    clouds = [surface(bumpy(rng, seed=7)) for _ in range(4)]
    clouds += [surface(bumpy(rng, seed=8)) for _ in range(2)]
    return clouds, geometry.identity(6, 3)


def test_identical_clouds_have_a_finite_amount_of_evidence() -> None:
    """Without noise, probabilities are too small for a float."""
    cloud = surface(bumpy(np.random.default_rng(0)))
    found = surprise(cloud, cloud, np.eye(4), 1.0)
    assert np.isfinite(found.nats)
    assert found.nats > 700
    assert found.close
    assert parts_beyond_chance([cloud] * 3, geometry.identity(3, 3)) == [{0, 1, 2}]


def test_a_link_counts_in_full_where_one_of_two_clouds_names_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many neighbours a cloud names the nearest few."""
    clouds = [surface(bumpy(np.random.default_rng(seed), 600)) for seed in range(2)]
    found: list[float] = []
    monkeypatch.setattr(chance, "_joined", lambda links: found.append(links[0, 1]) or [{0, 1}])
    for partners in ([[1], [0]], [[], [0]]):
        monkeypatch.setattr(chance, "partners_of", lambda *_, partners=partners: partners)
        parts_beyond_chance(clouds, geometry.identity(2, 3))
    assert found[1] > 0.7 * found[0] > 0


def test_a_part_that_meets_the_rest_by_chance_is_not_held() -> None:
    clouds, poses = split()
    assert in_pieces(clouds)
    parts = parts_beyond_chance(clouds, poses)
    assert sorted(map(sorted, parts)) == [[0, 1, 2, 3], [4, 5]]
    assert majority(parts) == {0, 1, 2, 3}
    known = parts_beyond_chance(clouds[1:5], poses[1:5], certain=[2, 3])
    assert majority(known) == {0, 1, 2, 3}


def test_where_no_part_has_most_of_the_clouds_none_is_held() -> None:
    clouds, poses = split()
    assert majority(parts_beyond_chance(clouds[2:], poses[2:])) == set()


def test_a_cloud_that_meets_each_of_a_part_too_little_meets_the_part() -> None:
    """A motion brings six pieces together: of each link alone, but only once of a rigid part."""
    rng = np.random.default_rng(5)
    one, other, cap = (bumpy(rng, 5000) for _ in range(3))
    clouds = [surface(one[one[:, 0] < 0.15]), surface(other[other[:, 0] > -0.15])]
    for seed, expected in ((7, [{0, 1, 2}]), (8, [{0, 1}, {2}])):
        small = cap if seed == 7 else bumpy(rng, 5000, seed)
        last = surface(small[small[:, 1] > 1.02])
        both = [(last, each) for each in clouds] + [(each, last) for each in clouds]
        found = [surprise(*pair, np.eye(4), 1.0) for pair in both]
        assert sum(each.nats / each.needed for each in found) / 2 < 1
        assert parts_beyond_chance([*clouds, last], geometry.identity(3, 3)) == expected
