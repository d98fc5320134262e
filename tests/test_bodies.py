# SPDX-License-Identifier: MIT
"""The laws of simulated bodies, floors and particles: closed surfaces seen from outside, shapes
that a half-turn does not carry onto themselves, rays that end at the first wall, noise and labels
as asked.
"""

from functools import cache

import numpy as np
import pytest
from jaxtyping import Float
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from coframe.data.simulate import floors, mesh
from coframe.data.simulate.bodies import BODIES, KINDS
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.mesh import Mesh
from coframe.data.simulate.particles import SYMMETRY, particles, sites
from coframe.geometry import exp_rotation, inverse, pose, transform
from coframe.types import Array

FLOORS = ("office", "repeated", "hall", "flat")
# Bodies of revolution but for something small, by their docstrings.
NEARLY_SYMMETRIC = ("dimpled egg", "chipped bowl", "bottle")


@cache
def body(name: str, seed: int = 0) -> Mesh:
    return BODIES[name](np.random.default_rng(seed))


def sampled(surface: Mesh, count: int) -> tuple[Float[Array, "N 3"], Float[Array, "N 3"]]:
    """Random points of a surface and the normals there."""
    rng = np.random.default_rng(1)
    a, b, c = (surface.vertices[surface.faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=1)
    chosen = rng.choice(len(area), count, p=area / area.sum())
    u, v = np.sqrt(rng.random((count, 1))), rng.random((count, 1))
    points = (1 - u) * a[chosen] + u * (1 - v) * b[chosen] + u * v * c[chosen]
    return points, normals[chosen] / area[chosen, None]


def volumes(surface: Mesh) -> Float[Array, " C"]:
    """Signed volume of each connected part."""
    a, b, c = (surface.vertices[surface.faces[:, k]] for k in range(3))
    count = len(surface.vertices)
    i, j = surface.faces[:, [0, 1, 2]].ravel(), surface.faces[:, [1, 2, 0]].ravel()
    links = coo_matrix((np.ones(len(i)), (i, j)), shape=(count, count))
    parts, label = connected_components(links, directed=False)
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    return np.bincount(label[surface.faces[:, 0]], volume, minlength=parts)


def half_turn_distance(surface: Mesh, axis: int) -> float:
    """How far a half-turn about an axis through the middle of the box carries the surface off
    itself: the distance that 5 % of its points exceed.
    """
    points, normals = sampled(surface, 20_000)
    turn = exp_rotation(np.pi * np.eye(3)[axis])
    moved = points[:1500] @ turn.T
    nearest = cKDTree(points).query(moved)[1]
    gap = np.einsum("ij,ij->i", moved - points[nearest], normals[nearest])
    return float(np.quantile(np.abs(gap), 0.95))


def test_there_are_many_bodies_of_every_kind() -> None:
    assert len(BODIES) >= 24
    assert sorted(name for names in KINDS.values() for name in names) == sorted(BODIES)
    assert set(NEARLY_SYMMETRIC) <= set(KINDS["nearly symmetric"])
    assert min(map(len, KINDS.values())) >= 3


@pytest.mark.parametrize("name", BODIES)
def test_a_body_has_longest_side_one_and_enough_proper_triangles(name: str) -> None:
    for seed in (0, 1):
        surface = body(name, seed)
        assert np.isfinite(surface.vertices).all()
        low, high = surface.vertices.min(0), surface.vertices.max(0)
        np.testing.assert_allclose((high - low).max(), 1.0, atol=1e-9)
        np.testing.assert_allclose(low + high, 0.0, atol=1e-9)
        assert 10_000 <= len(surface.faces) <= 80_000
        a, b, c = (surface.vertices[surface.faces[:, k]] for k in range(3))
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
        assert np.mean(area < 1e-12) < 0.002


@pytest.mark.parametrize("name", BODIES)
def test_every_part_of_a_body_is_closed_and_faces_outward(name: str) -> None:
    surface = body(name)
    i, j = surface.faces[:, [0, 1, 2]].ravel(), surface.faces[:, [1, 2, 0]].ravel()
    count = len(surface.vertices)
    edges, opposite = i * count + j, j * count + i
    assert len(np.unique(edges)) == len(edges), "two triangles on one side of an edge"
    assert np.isin(opposite, edges).all(), "a triangle without a neighbour"
    assert volumes(surface).min() > 0


@pytest.mark.parametrize("name", BODIES)
def test_rays_from_outside_see_the_front_of_triangles(name: str) -> None:
    surface = body(name)
    rng = np.random.default_rng(2)
    origins = rng.normal(size=(3000, 3))
    origins *= 2 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = sampled(surface, 3000)[0] - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    caster = Caster.of(surface)
    _, face = caster.cast(origins, directions)
    assert np.mean(face >= 0) > 0.99
    cosine = np.einsum("ij,ij->i", directions, caster.normals[face])
    assert np.mean(cosine[face >= 0] > 0) < 0.004


@pytest.mark.parametrize("name", BODIES)
def test_a_seed_repeats_a_body_and_another_gives_another_shape(name: str) -> None:
    again = BODIES[name](np.random.default_rng(0))
    np.testing.assert_array_equal(again.vertices, body(name).vertices)
    np.testing.assert_array_equal(again.faces, body(name).faces)
    points, normals = sampled(body(name, 0), 20_000)
    others = sampled(body(name, 1), 1500)[0]
    nearest = cKDTree(points).query(others)[1]
    gap = np.einsum("ij,ij->i", others - points[nearest], normals[nearest])
    assert np.quantile(np.abs(gap), 0.95) > 0.005


@pytest.mark.parametrize("name", BODIES)
def test_no_body_is_carried_onto_itself_by_a_half_turn(name: str) -> None:
    distances = [half_turn_distance(body(name), axis) for axis in range(3)]
    if name in NEARLY_SYMMETRIC:
        assert 0.002 < distances[2] < 0.03
        distances.pop()
    assert min(distances) > 0.01, distances


def test_the_measure_of_symmetry_finds_a_ball_symmetric() -> None:
    assert half_turn_distance(mesh.ball(0.5), 0) < 0.002


def test_waves_have_the_stated_variance_and_length() -> None:
    points = np.random.default_rng(1).uniform(0, 100, (20_000, 3))
    values = mesh.waves(points, np.random.default_rng(0), size=2.0)
    np.testing.assert_allclose(values.var(), 1.0, rtol=0.05)
    line = np.linspace(0, 200, 20_001)[:, None] * np.array([0.6, 0.8, 0.0])
    values = mesh.waves(line, np.random.default_rng(0), size=2.0)
    crossings = np.count_nonzero(values[1:] * values[:-1] < 0)
    # A wave of length 2 across the line crosses zero once a unit; those at a slant less often.
    assert 0.3 < crossings / 200 < 1.3


@pytest.mark.parametrize("kind", FLOORS)
def test_no_ray_of_a_floor_passes_a_wall(kind: str) -> None:
    scans = floors.floor(np.random.default_rng(4), kind=kind, scans=6, points=90, sigma=0.0)
    segments = floors.plan(np.random.default_rng(4), kind=kind).segments
    assert scans.outliers is not None
    assert scans.normals is not None
    assert scans.sigma is not None
    for cloud, motion, stray, normals, sigma in zip(
        scans.clouds, scans.poses, scans.outliers, scans.normals, scans.sigma, strict=True
    ):
        assert len(cloud) > 60
        for point, outlier, normal in zip(transform(motion, cloud), stray, normals, strict=True):
            distances = distances_to_segments(point, segments)
            assert crossed(motion[:2, 2], point, segments) == 0
            if outlier:
                assert (normal == 0).all()
            else:
                row = distances.argmin()
                assert distances[row] < 1e-9
                along = segments[row, 1] - segments[row, 0]
                assert abs((motion[:2, :2] @ normal) @ along) < 1e-9
        assert (np.einsum("ij,ij->i", normals, cloud)[~stray] < 0).all()
        assert (sigma == 0).all()


def distances_to_segments(
    point: Float[Array, " 2"], segments: Float[Array, "S 2 2"]
) -> Float[Array, " S"]:
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    share = np.einsum("ij,ij->i", point - start, along) / (along**2).sum(1)
    foot = start + np.clip(share, 0, 1)[:, None] * along
    return np.linalg.norm(point - foot, axis=1)


def crossed(
    origin: Float[Array, " 2"], point: Float[Array, " 2"], segments: Float[Array, "S 2 2"]
) -> int:
    """Segments between two points, by the signs of four areas; the last micrometre is left out."""
    length = np.linalg.norm(point - origin)
    end = origin + (point - origin) * (1 - 1e-6 / length)

    def side(a: Array, b: Array, c: Array) -> Array:
        return (b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]

    first, last = segments[:, 0], segments[:, 1]
    apart = side(origin, end, first) * side(origin, end, last) < 0
    return int(np.count_nonzero(apart & (side(first, last, origin) * side(first, last, end) < 0)))


@pytest.mark.parametrize("kind", FLOORS)
def test_a_floor_differs_from_seed_to_seed_and_its_way_is_free(kind: str) -> None:
    plan = floors.plan(np.random.default_rng(0), kind=kind)
    other = floors.plan(np.random.default_rng(1), kind=kind)
    assert plan.segments.shape != other.segments.shape or not np.allclose(
        plan.segments, other.segments
    )
    for start, end in zip(plan.path[:-1], plan.path[1:], strict=True):
        if np.linalg.norm(end - start) > 0:
            assert crossed(start, end, plan.segments) == 0


def test_noise_of_a_floor_scan_is_as_stated_along_the_normal() -> None:
    room = floors.plan(np.random.default_rng(0), kind="hall").segments
    motion = pose(exp_rotation(np.array([0.4])), np.array([3.0, 4.0]))
    quiet = floors.scan_plan(room, motion, np.random.default_rng(0), points=4000, sigma=0.0)
    noisy = floors.scan_plan(room, motion, np.random.default_rng(0), points=4000, sigma=0.03)
    error = noisy.points - quiet.points
    along_normal = np.einsum("ij,ij->i", error, noisy.normals)
    np.testing.assert_allclose(np.std(along_normal / noisy.sigma), 1.0, rtol=0.05)
    np.testing.assert_allclose(np.std(np.linalg.norm(error, axis=1)), 0.03 * 0.603, rtol=0.05)
    assert noisy.sigma.max() <= 0.03


def test_a_fan_of_half_a_turn_looks_ahead_and_the_reach_ends_it() -> None:
    scans = floors.floor(
        np.random.default_rng(0), kind="hall", scans=3, field=180.0, reach=6.0, sigma=0.001
    )
    for cloud in scans.clouds:
        assert cloud[:, 0].min() > -1e-9
        assert np.linalg.norm(cloud, axis=1).max() < 6.01


def test_rooms_that_repeat_are_equal() -> None:
    segments = floors.plan(np.random.default_rng(5), kind="repeated").segments
    middle = segments.mean((1,))
    # What stands in the fourth rooms stands in the seventh ones: rooms are 3.2 m wide.
    inner = segments[(middle[:, 0] > 9.8) & (middle[:, 0] < 12.6)]
    inner = inner[np.abs(np.abs(inner[..., 1].mean(1)) - 3.2) < 1.9]
    shifted = inner + np.array([9.6, 0.0])
    gaps = [np.abs(segments - piece).max((1, 2)).min() for piece in shifted]
    assert len(inner) > 8
    assert max(gaps) < 1e-9


@pytest.mark.parametrize("kind", SYMMETRY)
def test_particles_have_labels_blur_and_poses_as_stated(kind: str) -> None:
    structure = sites(kind)
    found = particles(
        np.random.default_rng(0), kind=kind, count=300, labelled=0.6, sigma=0.5, outliers=0.1
    )
    assert found.unit == "nm"
    assert found.normals is None
    assert found.sigma is not None
    assert found.outliers is not None
    shares, scaled, counts = [], [], []
    for cloud, motion, sigma, stray in zip(
        found.clouds, found.poses, found.sigma, found.outliers, strict=True
    ):
        in_structure = transform(motion, cloud)[~stray]
        distance, site = cKDTree(structure).query(in_structure)
        assert (distance < 6 * sigma[~stray]).all()
        scaled.append((in_structure - structure[site]) / sigma[~stray, None])
        shares.append(len(np.unique(site)) / len(structure))
        counts.append(len(site) / len(np.unique(site)))
    np.testing.assert_allclose(np.mean(shares), 0.6, atol=0.03)
    np.testing.assert_allclose(np.concatenate(scaled).std(), 1.0, rtol=0.05)
    np.testing.assert_allclose(np.mean(counts), 3.0, rtol=0.1)
    stray = np.concatenate(found.outliers)
    np.testing.assert_allclose(stray.sum() / (~stray).sum(), 0.1, rtol=0.2)
    np.testing.assert_allclose(np.median(np.concatenate(found.sigma)), 0.5, rtol=0.05)


@pytest.mark.parametrize("kind", SYMMETRY)
def test_a_structure_has_the_stated_symmetry_and_no_other(kind: str) -> None:
    structure = sites(kind)
    D = structure.shape[1]
    if D == 2:
        turns = [exp_rotation(np.array([angle])) for angle in np.radians(np.arange(5, 360, 5))]
    else:
        axes = np.concatenate([np.eye(3), structure[np.linalg.norm(structure, axis=1) > 0]])
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        turns = [
            exp_rotation(a * axis) for axis in axes for a in np.radians(np.arange(15, 360, 15))
        ]
    tree = cKDTree(structure)
    # Turns about z by multiples of 45 degrees are among those about the three axes.
    same = [turn for turn in turns if tree.query(structure @ turn.T)[0].max() < 2.0]
    assert len(same) == SYMMETRY[kind] - 1
    for turn in same:
        assert tree.query(structure @ turn.T)[0].max() < 1e-9
    expected = "" if SYMMETRY[kind] == 1 else f", {SYMMETRY[kind]}-fold"
    assert particles(np.random.default_rng(0), kind=kind, count=1).name == kind + expected


def test_unknown_kinds_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="choose one of letters"):
        sites("blob")
    with pytest.raises(ValueError, match="choose office"):
        floors.plan(np.random.default_rng(0), kind="castle")


def test_poses_of_particles_are_arbitrary() -> None:
    found = particles(np.random.default_rng(0), kind="letters", count=60)
    angles = np.arctan2(found.poses[:, 1, 0], found.poses[:, 0, 0])
    assert np.abs(np.exp(1j * angles).mean()) < 0.35
    assert np.linalg.norm(inverse(found.poses)[:, :2, 2], axis=1).max() > 100
