# SPDX-License-Identifier: MIT
"""Evidence: contradictions in common territory, which more overlap does not improve."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.align import evidence
from coframe.align.alternatives import weigh
from coframe.align.evidence import (
    BLOCK,
    Agreement,
    Surface,
    agreement,
    better,
    compare_all,
    lead,
    lead_of,
    splits,
    surface,
)
from coframe.align.freedom import Freedom, Review, free_direction, review, same_place
from coframe.align.recipe import ALIGN
from coframe.align.verdict import Verdict, contradictions, unsupported
from coframe.data import simulate
from coframe.em.constraints import UNCONSTRAINED
from coframe.result.assemble import Solution

NOISE = 0.004


def corridor(rng: np.random.Generator, count: int = 2000, doors: bool = True) -> list[np.ndarray]:
    """Four windows of 12 m of one corridor, 5 m apart, in place; doors at irregular distances."""
    edges = np.cumsum(rng.uniform(1.0, 3.0, 20)) if doors else np.empty(0)
    clouds = []
    for begin in (0.0, 5.0, 10.0, 15.0):
        x = rng.uniform(begin, begin + 12, count)
        side = rng.integers(4, size=count)
        u = rng.uniform(size=count)
        recess = 0.15 * (np.searchsorted(edges, x) % 2)
        y = np.choose(side, [1 + recess, -1 - recess, 2 * u - 1, 2 * u - 1])
        z = np.choose(side, [2.5 * u, 2.5 * u, np.zeros(count), np.full(count, 2.5)])
        clouds.append(np.stack([x, y, z], 1) + NOISE * rng.normal(size=(count, 3)))
    return clouds


def shifted(shifts: list[float], D: int = 3) -> np.ndarray:
    poses = geometry.identity(len(shifts), D)
    poses[:, 0, -1] = shifts
    return poses


@pytest.fixture(scope="module")
def windows() -> list[np.ndarray]:
    return corridor(np.random.default_rng(1))


@pytest.fixture(scope="module")
def surfaces(windows: list[np.ndarray]) -> list[Surface]:
    return [surface(cloud) for cloud in windows]


TRUE = shifted([0, 0, 0, 0])
PILED = shifted([0, -5, -10, -15])


def test_piling_up_windows_of_a_corridor_loses(surfaces: list[Surface]) -> None:
    true, piled = agreement(surfaces, TRUE), agreement(surfaces, PILED)
    assert piled.territory.sum() > 1.5 * true.territory.sum()  # there is more overlap
    assert lead(true, piled) > ALIGN.evidence.clear
    assert lead(piled, true) < -ALIGN.evidence.clear


def test_a_move_within_the_noise_is_no_contradiction(surfaces: list[Surface]) -> None:
    poses = TRUE.copy()
    poses[1, :3, 3] = NOISE / 2
    moved = agreement(surfaces, poses)
    assert moved.shares.max() < 0.05
    assert abs(lead(moved, agreement(surfaces, TRUE))) < ALIGN.evidence.clear


def test_a_common_motion_changes_nothing(surfaces: list[Surface]) -> None:
    motion = geometry.exp(np.array([0.3, -1.0, 0.7, 20.0, -3.0, 5.0]))
    one, other = agreement(surfaces, PILED), agreement(surfaces, motion @ PILED)
    # Which patch is the nearest one may change by rounding.
    assert np.abs(one.agree - other.agree).max() <= 2
    assert np.abs(one.contradict - other.contradict).max() <= 2


def test_units_change_nothing(windows: list[np.ndarray], surfaces: list[Surface]) -> None:
    poses = PILED.copy()
    poses[:, :3, 3] *= 1024.0
    scaled = [surface(1024.0 * cloud) for cloud in windows]
    one, other = agreement(surfaces, PILED), agreement(scaled, poses)
    np.testing.assert_array_equal(one.agree, other.agree)
    np.testing.assert_array_equal(one.contradict, other.contradict)


def test_lines_in_the_plane() -> None:
    rng = np.random.default_rng(0)
    clouds = []
    for _ in range(2):
        x = rng.uniform(0, 10, 400)
        y = 0.08 * (x % 4 > 2) + 0.005 * rng.normal(size=400)
        clouds.append(np.stack([x, y], 1))
    lines = [surface(cloud) for cloud in clouds]
    true, wrong = agreement(lines, shifted([0, 0], 2)), agreement(lines, shifted([0, 0.8], 2))
    assert true.shares.max() < 0.1
    assert lead(true, wrong) > ALIGN.evidence.clear


def test_clouds_that_share_nothing_say_nothing(surfaces: list[Surface]) -> None:
    apart = agreement(surfaces, shifted([0, 100, 200, 300]))
    assert apart.silent
    assert lead(apart, agreement(surfaces, PILED)) == 0


def test_the_two_sides_of_a_slab_do_not_contradict_each_other() -> None:
    rng = np.random.default_rng(0)

    def storey(floor: float) -> np.ndarray:
        points = rng.uniform(0, [5, 5, 2.5], (1500, 3))
        side = rng.integers(4, size=1500)
        points[side == 0, 2], points[side == 1, 2] = 0.0, 2.5
        points[side == 2, 0], points[side == 3, 0] = 0.0, 5.0
        return points + [0, 0, floor] + 0.003 * rng.normal(size=(1500, 3))

    slab = 0.1
    below, above = surface(storey(0.0)), surface(storey(2.5 + slab))
    found = agreement([below, above], geometry.identity(2, 3))
    assert found.contradict.sum() <= 2


def test_the_two_faces_of_an_edge_do_not_contradict_each_other() -> None:
    """One cloud saw the front of a block, another one its top: they meet at an edge."""
    rng = np.random.default_rng(0)
    front, top = rng.uniform(0, 1, (2, 1500, 3))
    front[:, 1], top[:, 2] = 0.0, 1.0
    clouds = [surface(each + 0.001 * rng.normal(size=each.shape)) for each in (front, top)]
    found = agreement(clouds, geometry.identity(2, 3))
    assert found.contradict.sum() == 0


def test_a_few_points_far_apart_say_nothing_of_what_lies_between_them() -> None:
    """Of a floor with steps one cloud saw everything, the other one some points of the lower parts.

    Both saw the walls.
    """

    def room(floor: int, step: float) -> Surface:
        rng = np.random.default_rng(floor)
        walls = rng.uniform(0, 1, (3000, 3))
        walls[np.arange(3000), np.arange(3000) % 2] = np.arange(3000) // 2 % 2
        ground = rng.uniform(0, 1, (floor, 3))
        ground[:, 2] = step * (ground[:, 0] % 0.5 > 0.25)
        points = np.concatenate([walls, ground])
        return surface(points + 0.001 * rng.normal(size=points.shape))

    found = agreement([room(4000, 0.1), room(60, 0.0)], geometry.identity(2, 3))
    assert found.agree.sum() > 300
    assert found.contradict.sum() == 0


def test_a_bare_corridor_leaves_its_axis_free() -> None:
    clouds = corridor(np.random.default_rng(2), doors=False)
    bare = [surface(cloud) for cloud in clouds]
    found = free_direction(bare, TRUE, 1, [0, 2, 3])
    assert found is not None
    direction = found.twist[3:] / np.linalg.norm(found.twist[3:])
    assert abs(direction[0]) > 0.999
    assert found.shift > 1.0


def hall(rng: np.random.Generator, pillars: list[float]) -> np.ndarray:
    """A hall of 12 m, whose walls, floor and ceiling leave its axis free, with thin pillars."""
    count, each = 2000, 40
    x, u = rng.uniform(0, 12, count), rng.uniform(size=count)
    side = rng.integers(4, size=count)
    y = np.choose(side, [np.ones(count), -np.ones(count), 2 * u - 1, 2 * u - 1])
    z = np.choose(side, [2.5 * u, 2.5 * u, np.zeros(count), np.full(count, 2.5)])
    angle = rng.uniform(0, 2 * np.pi, (len(pillars), each))
    around = [np.repeat(pillars, each), np.zeros(angle.size), 2.5 * rng.uniform(size=angle.size)]
    around[0] = around[0] + 0.12 * np.cos(angle.ravel())
    around[1] = around[1] + 0.12 * np.sin(angle.ravel())
    points = np.concatenate([np.stack([x, y, z], 1), np.stack(around, 1)])
    return points + NOISE * rng.normal(size=points.shape)


def freedom_of(pillars: list[float]) -> Freedom | None:
    rng = np.random.default_rng(0)
    pair = [surface(hall(rng, pillars)) for _ in range(2)]
    return free_direction(pair, geometry.identity(2, 3), 0, [1])


def test_a_few_pillars_hold_a_cloud() -> None:
    assert freedom_of([]) is not None
    assert freedom_of([0.8, 2.1, 3.2, 5.3, 6.9, 9.2, 10.1]) is None


def test_equal_pillars_fit_elsewhere() -> None:
    equal = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    found = freedom_of(equal)
    assert found is not None
    assert found.shift / 2 == pytest.approx(round(found.shift / 2), abs=0.1)
    assert found.shift > 1


def test_pillars_exclude_another_place() -> None:
    rng = np.random.default_rng(0)
    pair = [surface(hall(rng, [2.1, 5.3, 9.2])) for _ in range(2)]
    true = geometry.identity(2, 3)
    assert weigh(pair, true, [0], shifted([1.0, 0.0]))[1] > ALIGN.evidence.clear
    bare = [surface(hall(rng, [])) for _ in range(2)]
    assert abs(weigh(bare, true, [0], shifted([1.0, 0.0]))[1]) < ALIGN.evidence.clear


def test_where_a_cloud_ends_it_contradicts_nothing() -> None:
    rng = np.random.default_rng(0)
    one, other = (surface(hall(rng, [])) for _ in range(2))
    motion = shifted([2.0])[0]
    inside, fits = compare_all(one, other, motion, ALIGN.evidence, 1.0)
    edges = inside & ~one.flat
    assert edges.sum() > 5 * BLOCK
    assert (edges & ~fits).sum() <= 0.01 * edges.sum()


def test_a_corner_leaves_nothing_free() -> None:
    rng = np.random.default_rng(0)

    def corner() -> np.ndarray:
        points = rng.uniform(0, 1, (1500, 3))
        points[np.arange(1500), rng.integers(3, size=1500)] = 0
        return points + 0.002 * rng.normal(size=(1500, 3))

    pair = [surface(corner()), surface(corner())]
    assert free_direction(pair, geometry.identity(2, 3), 0, [1]) is None


def test_doubt_travels_along_links() -> None:
    agree = np.zeros((5, 5), int)
    for j in range(4):  # a chain
        agree[j, j + 1] = 100
    found = evidence.Agreement(agree, np.zeros_like(agree), ())
    seen = Review(found, np.zeros(5), (None,) * 5, (None,) * 5)
    verdicts = [Verdict("aligned", "", 1.0, 1.0, 0.0, 0.0) for _ in range(5)]
    assert not unsupported(seen, verdicts)
    verdicts[3] = Verdict("weak", "", 1.0, 1.0, 0.0, 0.0)
    assert set(unsupported(seen, verdicts)) == {4}
    # where half of them are in doubt, the other half cannot be certain
    verdicts[2] = verdicts[3]
    assert set(unsupported(seen, verdicts)) == {0, 1, 4}
    # nor can it be where nothing is known of links
    nothing = evidence.Agreement(np.zeros_like(agree), np.zeros_like(agree), ())
    alone = Review(nothing, np.zeros(5), (None,) * 5, (None,) * 5)
    assert not unsupported(alone, [verdicts[0]] * 5)
    assert set(unsupported(alone, [verdicts[3], *[verdicts[2]] * 3, verdicts[0]])) == {4}


def test_two_storeys_that_look_alike_are_one_place_or_two() -> None:
    """Of clouds that cover the same from within, nothing says whether they are of one place."""
    rng = np.random.default_rng(0)

    def room(count: int, length: float) -> np.ndarray:
        x = rng.uniform(size=(count, 3)) * [length, 3, 2.5]
        side = rng.integers(6, size=count)
        x[np.arange(count), side // 2] = (side % 2) * np.array([length, 3, 2.5])[side // 2]
        return x + rng.normal(0, NOISE, x.shape)

    alike = [surface(room(2000, 4.0)), surface(room(2000, 4.0)), surface(room(2000, 8.0))]
    poses = geometry.identity(3, 3)
    assert same_place(alike, agreement(alike, poses).agree) == (1, 0, None)


def test_a_cloud_that_contradicts_the_others_is_named(surfaces: list[Surface]) -> None:
    poses = TRUE.copy()
    poses[1, :3, 3] = [0.0, 0.06, 0.06]
    found = review(surfaces, poses, [False] * 4)
    assert 1 in contradictions(found)
    assert not contradictions(review(surfaces, TRUE, [False] * 4))


def test_windows_of_a_corridor_stay_where_they_are_given(windows: list[np.ndarray]) -> None:
    result = coframe.register(windows, TRUE)
    moved = result.relative_to(0).poses[:, :3, 3]
    assert np.abs(moved).max() < 0.02 * 12


def test_a_bare_corridor_is_not_called_aligned() -> None:
    clouds = corridor(np.random.default_rng(3), doors=False)
    result = coframe.register(clouds, TRUE)
    assert "aligned" not in {each.verdict for each in result.verdicts}
    doubt = result.doubts[0]
    assert "slide" in doubt.reason
    assert any(each.clouds == (doubt.cloud,) for each in result.alternatives)
    along = np.sqrt(result.pose_covariance[doubt.cloud, 3, 3])
    assert along > 0.5
    assert any("do not decide" in each for each in result.warnings)


def test_clouds_that_leave_given_poses_are_named() -> None:
    scene = simulate.scene(4, 1000, rng=np.random.default_rng(0))
    start = scene.poses.copy()
    start[2] = start[2] @ geometry.exp(np.array([0.0, 0.6, 0.0, 0.0, 0.0, 0.0]))
    result = coframe.register(scene.clouds, start)
    (told,) = [each for each in result.warnings if "poses that were given" in each]
    assert "cloud 2 by 34.4 degrees" in told
    assert "cloud 1" not in told
    near = coframe.register(scene.clouds, scene.poses)
    assert not any("poses that were given" in each for each in near.warnings)


def test_one_cloud_at_odds_is_seen_among_many() -> None:
    """What all clouds together leave in the noise, the cloud itself shows."""
    good, bad = (np.tile(block, (12, 1)) for block in ([8, 0], [3, 2]))
    blocks = [good] * 11

    def found(last: np.ndarray) -> evidence.Agreement:
        every = (*blocks, last)
        inside, wrong = np.array([each.sum(0) for each in every]).T
        next_one = np.roll(np.eye(12, dtype=int), 1, axis=1)
        return evidence.Agreement(
            next_one * (inside - wrong)[:, None], next_one * wrong[:, None], every
        )

    assert not evidence.at_odds(found(good))
    assert not evidence.any_at_odds(found(good))
    assert evidence.at_odds(found(bad))
    unclear = np.array([[8, 0]] * 11 + [[8, 7]])  # all in one block: this may be chance
    assert not evidence.at_odds(found(unclear))
    assert evidence.any_at_odds(found(unclear))


def test_more_territory_is_no_evidence_where_nothing_contradicts() -> None:
    """None in 300 and none in 1,100 are both none."""

    def blocks(inside: int) -> list[np.ndarray]:
        return [np.column_stack([np.full(35, inside), np.zeros(35, int)])]

    assert abs(lead_of(blocks(BLOCK), blocks(9))) < 1.0
    assert not better(blocks(BLOCK), blocks(9))


@pytest.mark.parametrize("away", [0.0, 1.0])
def test_a_cloud_far_from_its_given_pose_is_as_free_as_without_one(away: float) -> None:
    """A given pose that a cloud has left does not say where else it may lie."""
    rng = np.random.default_rng(0)

    def corridor(first: float) -> np.ndarray:
        points = np.column_stack(
            [rng.uniform(first, first + 1, 3000), *rng.uniform(0, 0.3, (2, 3000))]
        )
        wall = np.arange(3000) % 4
        points[np.arange(3000), 1 + wall // 2] = 0.3 * (wall % 2)
        return points + 0.001 * rng.normal(size=points.shape)

    clouds = [surface(corridor(0.0)), surface(corridor(0.2) - [0.5, 0.0, 0.0])]
    poses = geometry.identity(2, 3)
    poses[1, 0, 3] = 0.5
    given = poses.copy()
    given[1, 0, 3] += away

    def free(given: np.ndarray | None) -> Freedom | None:
        solution: Any = object.__new__(Solution)  # of a fit nothing but its poses matters
        known = {"fit": SimpleNamespace(poses=poses), "group": (0, 1), "given": given}
        vars(solution).update(known, constraints=UNCONSTRAINED, rematched=())
        seen: Review = solution.review(clouds)
        return seen.freedoms[1]

    found, alone = free(given), free(None)
    assert found is not None
    assert alone is not None
    assert found.shift < alone.shift if away == 0 else found.shift == alone.shift


@pytest.mark.parametrize(("link", "divided"), [((40, 0), True), ((4000, 0), False)])
def test_one_link_does_not_hold_two_parts_that_contradict_along_the_others(
    link: tuple[int, int], divided: bool
) -> None:
    """Round bodies: one turned about its axis meets itself, and two views of it hardly overlap."""
    M = 6
    agree, contradict = np.zeros((2, M, M), int)
    pairs = {}
    for j, i in permutations(range(M), 2):
        same = (j < 3) == (i < 3)
        right, wrong = (200, 0) if same else (80, 20)
        if {j, i} == {2, 3}:
            right, wrong = link
        agree[j, i], contradict[j, i] = right, wrong
        pairs[j, i] = np.array([[(right + wrong) // 10, wrong // 10]] * 10)
    blocks = tuple(np.concatenate([pairs[j, i] for i in range(M) if i != j]) for j in range(M))
    found = splits(Agreement(agree, contradict, blocks, pairs))
    assert any({each.side, each.rest} == {(0, 1, 2), (3, 4, 5)} for each in found) == divided
