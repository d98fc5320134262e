# SPDX-License-Identifier: MIT
"""A start from nothing: what is found is right, and what cannot be found is said."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import refuse, registered, simulated_scans, unchecked
from threadpoolctl import threadpool_limits

import coframe
from coframe import geometry
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.evaluate import metrics
from coframe.input.alike import unit_doubt
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, Source
from coframe.start import clique_kernels, features, graph, match, planar, search, verify
from coframe.start.features import ThinScan
from coframe.start.match import Edge
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Evidence


def here(clouds: list[np.ndarray], threads: int = 1) -> tuple[Local[Source], list[Summary]]:
    place = Local[Source](list(map(InMemory, clouds)), threads)
    return place, place.map(Summary.of)


def find(clouds: list[np.ndarray], threads: int = 2, **options: Any) -> search.Start:
    with threadpool_limits(1):
        return search.find_start(*here(clouds, threads), rng=np.random.default_rng(0), **options)


def thinned(points: np.ndarray, side: float) -> np.ndarray:
    """In units of the side."""
    cloud = InMemory(points)
    return features.thin(cloud, Summary.of(cloud), side) / side


def caps(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A sphere scanned from six sides, each scan in a frame of its own."""
    clouds = []
    for direction in np.concatenate([np.eye(3), -np.eye(3)]):
        u = rng.normal(size=(8 * count, 3))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        clouds.append(
            u[u @ direction > 0.2][:count] @ geometry.random_rotation(rng, 3).T
            + rng.uniform(-3, 3, 3)
        )
    return clouds


@pytest.fixture(scope="module")
def turned() -> simulate.SimulatedScene:
    return simulated_scans(6, 2000, 300.0, noise_db=50.0)


@pytest.fixture(scope="module")
def found(turned: simulate.SimulatedScene) -> search.Start:
    return find(turned.clouds)


# Scans


def test_normals_and_descriptors_do_not_change_when_a_cloud_is_moved() -> None:
    """Thinning follows the axes, so the points are thinned before they are moved."""
    points = thinned(simulate.shape(3000, np.random.default_rng(0)).points, 0.03)
    motion = geometry.exp(np.array([0.4, -1.0, 2.0, 5.0, -7.0, 9.0]))
    one, other = ThinScan.of(points), ThinScan.of(geometry.transform(motion, points))
    np.testing.assert_allclose(
        np.abs((one.normals @ motion[:3, :3].T * other.normals).sum(1)), 1, atol=1e-6
    )
    np.testing.assert_allclose(other.descriptors, one.descriptors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(one.descriptors, axis=1), 1)


def test_normals_of_a_closed_body_point_out() -> None:
    body = simulate.shape(6000, np.random.default_rng(0))
    scan = ThinScan.of(body.points / 0.02)
    nearest = scan.tree.query(body.points / 0.02)[1]
    assert ((scan.normals[nearest] * body.normals).sum(1) > 0).mean() > 0.97


def test_the_spacing_follows_the_unit() -> None:
    cloud = simulate.shape(5000, np.random.default_rng(0)).points
    side = features.find_spacing(*here([cloud]), 800)
    assert len(thinned(cloud, side)) == pytest.approx(800, rel=0.1)
    assert features.find_spacing(*here([1000 * cloud]), 800) == pytest.approx(1000 * side)


def test_a_scan_from_one_side_knows_its_side_and_a_whole_body_has_none() -> None:
    body = simulate.shape(20_000, np.random.default_rng(0))
    direction = np.array([0.0, 0.0, 1.0])
    seen = thinned(body.points[simulate.scan(body, direction)], 0.02)
    view = ThinScan.of(seen).view
    assert view is None or view @ direction > 0.8
    assert ThinScan.of(thinned(body.points, 0.02)).view is None


def test_the_image_of_a_cloud_that_spans_a_million_spacings_holds_its_points_alone() -> None:
    """A cloud in millimetres among clouds in metres: a dense image of it would have 1e12 pixels."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(0, 30, (2000, 3)), [[1e6, 1e6, 5.0]]])
    image = features.DepthImage.of(points, np.array([0.0, 0.0, 1.0]))
    asked = np.concatenate(
        [rng.uniform(-10, 40, (500, 3)), [[1e6, 1e6, 0.0], [-1.0, 5.0, 0.0], [5e5, 3.0, 0.0]]]
    )
    low, cell = (points @ image.axes.T).min(0), lambda these: np.floor(these @ image.axes.T - low)
    alike = (cell(asked)[:, None] == cell(points)).all(2)
    np.testing.assert_array_equal(image.at(asked), np.where(alike, points[:, 2], -np.inf).max(1))


# Evidence


@pytest.fixture(scope="module")
def neighbours(turned: simulate.SimulatedScene) -> tuple[ThinScan, ThinScan, np.ndarray]:
    """Two scans and the true motion from the first to the second."""
    thin = search.ThinScans.of(*here(turned.clouds), 2000)
    poses = thin.enter_poses(turned.poses)
    return *thin.scans.items[:2], geometry.inverse(poses[1]) @ poses[0]


def test_the_true_motion_has_evidence_and_a_wrong_one_has_none(
    neighbours: tuple[ThinScan, ThinScan, np.ndarray],
) -> None:
    a, b, true = neighbours
    evidence = verify.verify(
        a, b, geometry.exp(np.array([0.05, -0.05, 0.05, 1.0, 1.0, -1.0])) @ true
    )
    assert verify.motion_distance(evidence.motion, true) < 1
    assert evidence.weight > 3 * START.min_evidence
    rng = np.random.default_rng(0)
    wrong = [geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3)) for _ in range(30)]
    weights = [
        e.weight
        for e in (verify.verify(a, b, motion) for motion in wrong)
        if verify.motion_distance(e.motion, true) > 5
    ]
    assert len(weights) > 20
    assert max(weights) < START.min_evidence


def test_evidence_is_about_the_same_in_both_directions(
    neighbours: tuple[ThinScan, ThinScan, np.ndarray],
) -> None:
    a, b, true = neighbours
    there, back = verify.evidence_for(a, b, true), verify.evidence_for(b, a, geometry.inverse(true))
    assert there.overlap == back.overlap
    assert there.weight == pytest.approx(back.weight, rel=0.2)


# The matcher


def false_matches(
    right: int, wrong: int, seed: int = 0, noise: float = 0.2
) -> tuple[list[np.ndarray], np.ndarray]:
    """Points and normals of both sides of correspondences, of which the first so many are right,
    and the motion of these.
    """
    rng = np.random.default_rng(seed)
    motion = geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3) * 30)
    p, n = rng.normal(size=(2, right + wrong, 3))
    p *= 15
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    q = geometry.transform(motion, p) + noise * rng.normal(size=p.shape)
    m = n @ geometry.rotation(motion).T
    q[right:] = rng.permutation(q[right:])
    m[right:] = rng.permutation(m[right:])
    return [p, q, n, m], motion


def solve(matches: list[np.ndarray], count: int = 2) -> np.ndarray:
    gates = START.first_gate, START.neighbour_distance, START.motion_radius
    return clique_kernels.find_motions(
        *matches, count, START.neighbour_distance, START.min_normal_cosine, *gates
    )


@pytest.mark.parametrize(("right", "wrong"), [(8, 0), (12, 100), (20, 400), (60, 1500)])
def test_a_few_right_correspondences_are_found_among_many_wrong_ones(
    right: int, wrong: int
) -> None:
    for seed in range(5):
        matches, motion = false_matches(right, wrong, seed)
        assert verify.motion_distance(solve(matches)[0], motion) < 1.0


def test_exact_correspondences_give_the_exact_motion() -> None:
    matches, motion = false_matches(20, 30, noise=0.0)
    np.testing.assert_allclose(solve(matches)[0], motion, atol=1e-9)


def test_wrong_correspondences_that_a_mirror_makes_give_no_mirror() -> None:
    matches, _ = false_matches(30, 0)
    mirror = np.diag([1.0, 1.0, -1.0])
    matches[1] = matches[1] @ mirror
    matches[3] = matches[3] @ mirror
    for motion in solve(matches):
        assert np.linalg.det(geometry.rotation(motion)) == pytest.approx(1.0)


def test_two_motions_are_both_found_the_stronger_first() -> None:
    (strong, one), (weak, other) = false_matches(40, 0, seed=1), false_matches(20, 100, seed=2)
    matches = [np.concatenate(both) for both in zip(strong, weak, strict=True)]
    found = solve(matches)
    assert verify.motion_distance(found[0], one) < 1.0
    assert verify.motion_distance(found[1], other) < 1.0
    assert len(solve(matches, 1)) == 1


def test_correspondences_may_come_in_any_order_and_in_any_frame() -> None:
    matches, _ = false_matches(20, 200)
    order = np.random.default_rng(3).permutation(220)
    turn = geometry.pose(geometry.random_rotation(np.random.default_rng(4), 3), np.full(3, 7.0))
    turned = [
        matches[0],
        geometry.transform(turn, matches[1]),
        matches[2],
        matches[3] @ geometry.rotation(turn).T,
    ]
    first = solve(matches)[0]
    np.testing.assert_allclose(solve([part[order] for part in matches])[0], first, atol=1e-6)
    np.testing.assert_allclose(solve(turned)[0], turn @ first, atol=1e-6)


def test_points_that_coincide_or_correspond_to_nothing_give_no_motion_that_is_not_finite() -> None:
    matches, _ = false_matches(0, 50)
    assert np.isfinite(solve(matches)).all()
    same = [np.zeros((10, 3)), np.ones((10, 3)), matches[2][:10], matches[2][:10]]
    assert np.isfinite(solve(same)).all()
    assert len(solve([part[:3] for part in matches])) == 0


def test_normals_that_disagree_speak_against_a_motion() -> None:
    matches, motion = false_matches(30, 60)
    matches[3] = -matches[3]
    assert all(verify.motion_distance(found, motion) > 5 for found in solve(matches))


def test_the_recipe_says_how_many_motions_are_sought_at_most(
    neighbours: tuple[ThinScan, ThinScan, np.ndarray],
) -> None:
    a, b, true = neighbours
    for count in (1, 2, 3):
        found = match.find_motions(a, b, replace(START, motions_per_pair=count))
        assert len(found) <= count
        assert verify.motion_distance(found[0], true) < 5


def test_matches_are_the_same_for_any_number_of_threads(turned: simulate.SimulatedScene) -> None:
    pairs = [(0, 1), (1, 2), (2, 3), (0, 2)]
    edges = [
        match.match_pairs(search.ThinScans.of(*here(turned.clouds, threads), 1000).scans, pairs)
        for threads in (1, 3)
    ]
    for one, other in zip(*edges, strict=True):
        np.testing.assert_array_equal(one.best.motion, other.best.motion)
        assert one.best.weight == other.best.weight


def test_pairs_that_a_checkpoint_knows_are_not_matched_again(
    turned: simulate.SimulatedScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = search.ThinScans.of(*here(turned.clouds), 1000).scans
    pairs = [(0, 1), (1, 2)]
    with coframe.Checkpoint(tmp_path / "run.db") as checkpoint:
        first = match.match_pairs(scans, pairs, checkpoint=checkpoint)
        monkeypatch.setattr(match, "correspondences", refuse)
        again = match.match_pairs(scans, pairs, checkpoint=checkpoint)
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one.best.motion, other.best.motion)
        monkeypatch.setattr(match, "MATCHER", "another")
        with pytest.raises(AssertionError):
            match.match_pairs(scans, pairs, checkpoint=checkpoint)


def test_progress_counts_every_pair(turned: simulate.SimulatedScene) -> None:
    seen: list[tuple[int, int]] = []
    find(turned.clouds[:3], on_pair=lambda done, total: seen.append((done, total)))
    assert seen[:3] == [(1, 3), (2, 3), (3, 3)]


# The graph


def edge(
    a: int, b: int, poses: np.ndarray, weight: float = 500.0, off: np.ndarray | None = None
) -> Edge:
    motion = geometry.inverse(poses[b]) @ poses[a]
    motion = motion if off is None else off @ motion
    return Edge(a, b, Evidence(motion, weight, overlap=0.4, stiffness=0.1), size=2000)


@pytest.fixture
def poses() -> np.ndarray:
    rng = np.random.default_rng(3)
    return geometry.pose(
        np.array([geometry.random_rotation(rng, 3) for _ in range(6)]),
        rng.normal(scale=5, size=(6, 3)),
    )


WRONG = geometry.exp(np.array([2.0, 1.0, 0.0, 10.0, 0.0, 0.0]))


def test_a_ring_with_wrong_edges_gives_true_poses(poses: np.ndarray) -> None:
    ring = [edge(j, (j + 1) % 6, poses) for j in range(6)] + [edge(0, 2, poses), edge(3, 5, poses)]
    wrong = [edge(1, 4, poses, 450.0, WRONG), edge(2, 5, poses, 450.0, WRONG)]
    solved = graph.best_graph(ring + wrong, 6)
    assert solved.groups == ((0, 1, 2, 3, 4, 5),)
    assert solved.dropped == tuple(wrong)
    assert metrics.rotation_errors(solved.poses, poses).max() < 1e-6
    assert metrics.translation_errors(solved.poses, poses).max() < 1e-6


def test_a_strong_wrong_edge_loses_to_the_cycles_it_breaks(poses: np.ndarray) -> None:
    edges = [edge(a, b, poses) for a, b in itertools.combinations(range(6), 2)]
    edges[3] = edge(edges[3].first, edges[3].second, poses, 1500.0, WRONG)
    solved = graph.best_graph(edges, 6)
    assert solved.dropped == (edges[3],)
    assert metrics.rotation_errors(solved.poses, poses).max() < 1e-6


def test_averaging_spreads_small_errors(poses: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    edges = [
        edge(a, b, poses, off=geometry.exp(rng.normal(scale=0.01, size=6)))
        for a, b in itertools.combinations(range(6), 2)
    ]
    tree = graph.best_graph(edges[:5], 6)
    whole = graph.best_graph(edges, 6)
    assert (
        metrics.rotation_errors(whole.poses, poses).mean()
        < metrics.rotation_errors(tree.poses, poses).mean()
    )


def test_edges_that_do_not_touch_give_groups(poses: np.ndarray) -> None:
    solved = graph.best_graph([edge(0, 3, poses), edge(3, 5, poses), edge(1, 2, poses)], 6)
    assert solved.groups == ((0, 3, 5), (1, 2), (4,))
    assert graph.best_graph([], 3).groups == ((0,), (1,), (2,))


def test_a_rival_edge_makes_a_hypothesis(poses: np.ndarray) -> None:
    chain = [edge(0, 1, poses), edge(1, 2, poses)]
    rival = edge(0, 2, poses, 450.0, WRONG)
    graphs = graph.find_hypotheses([*chain, rival], 3)
    assert len(graphs) > 1
    assert any(rival in each.edges for each in graphs)
    assert len(graph.find_hypotheses(chain, 3)) == 1


# Starts


def test_scans_in_arbitrary_poses_are_matched(
    turned: simulate.SimulatedScene, found: search.Start
) -> None:
    assert found.source == "matched"
    assert found.groups == (tuple(range(6)),)
    assert found.pairs == 15
    assert found.doubts == ()
    assert metrics.rotation_errors(geometry.identity(6, 3), turned.poses).max() > 60
    assert metrics.rotation_errors(found.poses[0], turned.poses).max() < 1


def test_the_same_bits_for_any_number_of_threads(
    turned: simulate.SimulatedScene, found: search.Start
) -> None:
    for threads in (1, 3):
        np.testing.assert_array_equal(find(turned.clouds, threads).poses, found.poses)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_do_not_matter(
    turned: simulate.SimulatedScene, found: search.Start, unit: float
) -> None:
    other = find([unit * cloud for cloud in turned.clouds]).poses[0]
    other[:, :3, 3] /= unit
    np.testing.assert_allclose(
        metrics.relative(other), metrics.relative(found.poses[0]), rtol=0, atol=1e-9
    )


def test_clouds_that_lie_in_place_are_left_there() -> None:
    start = find(
        simulated_scans(4, 800, 90.0, motion_degrees=5.0, motion_shift=0.02, noise_db=45.0).clouds
    )
    assert start.source == "identity"
    assert 2 <= start.pairs <= 4  # Each cloud with one other, which finds nothing better.
    np.testing.assert_array_equal(start.poses[0], geometry.identity(4, 3))


def ground(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Hills and hollows without an inside."""
    rng = np.random.default_rng(7)
    place, width = rng.uniform([-20, -20], [320, 100], (150, 2)), rng.uniform(5, 12, 150)
    square = (x[:, None] - place[:, 0]) ** 2 + (y[:, None] - place[:, 1]) ** 2
    return np.c_[x, y, np.exp(-square / (2 * width**2)) @ rng.uniform(-6, 6, 150)]


def strips(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Windows along x that overlap by half and lie in place."""
    low = 50.0 * np.arange(count)
    return [ground(rng.uniform(x, x + 100, 6000), rng.uniform(0, 80, 6000)) for x in low]


def test_strips_in_place_stay_whichever_way_their_normals_point() -> None:
    """Ground has no outside: the signs of its normals are a guess for each strip."""
    clouds = strips(4, np.random.default_rng(0))
    scans = search.ThinScans.of(*here(clouds), 2000).scans.items
    assert len({float(np.sign(scan.normals[:, 2].sum())) for scan in scans}) == 2
    with unchecked():
        start = find(clouds)
    assert start.source == "identity"
    assert len(start.groups) == 1
    assert start.doubts == ()


def test_clouds_beside_their_place_have_both_starts() -> None:
    """Strips that are some cells off: where they are is one start, where they belong another."""
    clouds = strips(2, np.random.default_rng(1))
    clouds[1] = clouds[1] + [4.0, 3.0, 0.0]
    with unchecked():
        start = find(clouds)
    every = [start, *start.rivals]
    origins = np.array([[0.0, 0.0, 0.0, 1.0], [4.0, 3.0, 0.0, 1.0]])
    assert [each.source for each in every] == ["identity", "matched"]
    ends = [np.einsum("jab,jb->ja", each.poses[0], origins) for each in every]
    gaps = [np.linalg.norm(end[0] - end[1]) for end in ends]
    assert gaps[0] == 5
    assert gaps[1] < 1


def test_a_turntable_s_scans_do_not_lie_in_place() -> None:
    """Each is close to the next, and all lie on top of each other; yet they belong all around."""
    still = simulated_scans(15, 2000, 336.0, motion_degrees=0.0, motion_shift=0.0)
    turns = np.array([geometry.exp_rotation(np.radians([0.0, 24.0 * j, 0.0])) for j in range(15)])
    clouds = [cloud @ R for cloud, R in zip(still.clouds, turns, strict=True)]
    with unchecked():
        start = find(clouds)
    assert start.source == "matched"
    assert (
        metrics.rotation_errors(start.poses[0], geometry.pose(turns, np.zeros((15, 3)))).max() < 3
    )


def test_a_corridor_in_the_plane_has_several_motions_of_one_angle() -> None:
    """Doors are equal and their distances differ: shifts by a door have many votes, too."""
    x = np.arange(0, 40, 0.5)
    doors = [np.c_[np.full(6, at), np.linspace(0.5, 3, 6)] for at in (5.0, 14.0, 26.0, 31.0)]
    plan = np.concatenate([np.c_[x, 0 * x], np.c_[x, 0 * x + 8], *doors])
    a, b = plan[plan[:, 0] < 28], plan[plan[:, 0] > 10]
    turn = geometry.rotation(geometry.exp(np.array([0.7, 0.0, 0.0])))
    one, other = (planar.planar_scan(each, START) for each in (a, b @ turn.T))
    true = np.eye(4)
    true[:2, :2] = turn
    found = planar.find_motions(one, other, START)
    assert min(verify.motion_distance(motion, true) for motion in found) < START.first_gate
    angles = [np.arctan2(motion[1, 0], motion[0, 0]) for motion in found]
    assert sum(abs(angle - 0.7) < 0.1 for angle in angles) > 1


def test_of_many_clouds_in_the_plane_those_are_tried_that_look_alike() -> None:
    rng = np.random.default_rng(0)
    plans = [np.cumsum(rng.normal(size=(60, 2)), 0) for _ in range(4)]
    scans = [planar.planar_scan(plan, START) for plan in plans]
    turn = geometry.rotation(geometry.exp(np.array([2.0, 0.0, 0.0])))
    again = planar.planar_scan(plans[2] @ turn.T + 5.0, START)
    assert np.argmax([planar.similarity(scan, again, START) for scan in scans]) == 2
    few = replace(START, partners=4)
    many = [planar.planar_scan(plans[k % 4] @ turn.T, START) for k in range(12)]
    pairs = match.candidate_pairs(Local(many), rng, few, planar.similarity)
    assert len(pairs) < 12 * 11 / 2
    assert {(a, b) for a, b in itertools.combinations(range(12), 2) if a % 4 == b % 4} <= set(pairs)


def test_clouds_in_the_plane() -> None:
    problem = simulated_scans(4, 300, 90.0, seed=1, dimension=2, noise_db=45.0)
    result = registered(problem.clouds)
    assert result.start == "matched"
    assert metrics.rotation_errors(geometry.identity(4, 2), problem.poses).max() > 30
    assert metrics.rotation_errors(result.poses, problem.poses).max() < 1


def test_many_clouds_try_few_pairs() -> None:
    clouds = simulated_scans(8, 600, 360.0).clouds
    many = search.ThinScans.of(*here(clouds), 300).scans.subset([j % 8 for j in range(40)])
    pairs = match.candidate_pairs(many, np.random.default_rng(0))
    assert len(pairs) < 40 * START.partners
    assert all((j, j + 1) in pairs for j in range(39))
    similarity = match.compare_scans(many, np.random.default_rng(0))
    assert all(int(similarity[j].argmax()) % 8 == j % 8 for j in range(40))


# What cannot be known


def test_a_sphere_from_six_sides_is_ambiguous() -> None:
    result = registered(caps(800, np.random.default_rng(0)))
    assert {doubt.cloud for doubt in result.doubts} == set(range(6))
    assert {j for each in result.alternatives for j in each.clouds} == set(range(6))
    assert all(verdict.verdict != "aligned" for verdict in result.verdicts)
    assert all(
        "ambiguous" in verdict.reason for verdict in result.verdicts if verdict.verdict == "weak"
    )
    assert "ambiguous" in result.warnings[0]


def test_planes_are_ambiguous() -> None:
    rng = np.random.default_rng(0)
    flat = [
        np.c_[rng.uniform(-1, 1, (1500, 2)), rng.normal(scale=0.003, size=1500)] for _ in range(3)
    ]
    start = find([cloud @ geometry.random_rotation(rng, 3).T for cloud in flat])
    assert {doubt.cloud for doubt in start.doubts} == {0, 1, 2}


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (replace(START, min_stiffness=np.inf), "it can slide"),
        (replace(START, bridge_factor=np.inf), "too little surface"),
    ],
)
def test_a_reason_without_alternatives_does_not_count_them(
    turned: simulate.SimulatedScene, recipe: StartRecipe, why: str
) -> None:
    doubts = find(turned.clouds[:2], recipe=recipe).doubts
    assert [doubt.cloud for doubt in doubts] == [0, 1]
    for doubt in doubts:
        assert doubt.motions == ()
        assert doubt.reason.startswith("its pose is ambiguous")
        assert why in doubt.reason
        assert doubt.reason.endswith("give start poses, or scans that overlap more")


def test_clouds_that_nothing_connects_are_not_called_aligned() -> None:
    """Three patches of noise: no surface, nothing to match."""
    rng = np.random.default_rng(0)
    result = registered([rng.normal(size=(400, 3)) for _ in range(3)])
    assert len(result.doubts) == 3
    assert all(verdict.verdict != "aligned" for verdict in result.verdicts)


@pytest.fixture(scope="module")
def two_bodies() -> tuple[coframe.Registration, simulate.SimulatedScene]:
    one = simulated_scans(3, 1500, 60.0)
    rng = np.random.default_rng(5)
    u = rng.normal(size=(40_000, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    bumps = 1 + 0.25 * np.sin(5 * u[:, :1]) * np.cos(4 * u[:, 1:2]) + 0.2 * np.sin(7 * u[:, 2:])
    body = 0.4 * u * bumps
    other = [
        body[(u @ d > 0.0)][:1500] @ geometry.random_rotation(rng, 3).T
        for d in ([0, 0, 1.0], [0.5, 0, 0.8], [0.8, 0.3, 0.5])
    ]
    names = [f"one{j}" for j in range(3)] + [f"other{j}" for j in range(3)]
    return registered([*one.clouds, *other], names=names), one


def test_two_bodies_give_two_groups(
    two_bodies: tuple[coframe.Registration, simulate.SimulatedScene],
) -> None:
    result, one = two_bodies
    assert result.groups == ((0, 1, 2), (3, 4, 5))
    assert "2 groups" in result.warnings[0]
    assert "other0, other1, other2" in result.warnings[0]
    assert all(
        f"in group {1 + j // 3} of 2" in verdict.reason for j, verdict in enumerate(result.verdicts)
    )
    assert metrics.rotation_errors(result.poses[:3], one.poses).max() < 2
    left, right = np.concatenate(result.aligned()[:3]), np.concatenate(result.aligned()[3:])
    assert left[:, 0].max() < right[:, 0].min()


def test_groups_survive_saving(
    two_bodies: tuple[coframe.Registration, simulate.SimulatedScene], tmp_path: Any
) -> None:
    result, _ = two_bodies
    again = coframe.load(result.save(tmp_path))
    for name in ("groups", "start", "pairs_tried", "warnings", "verdicts"):
        assert getattr(again, name) == getattr(result, name)
    assert [d.cloud for d in again.doubts] == [d.cloud for d in result.doubts]


def test_a_stranger_fails(turned: simulate.SimulatedScene) -> None:
    stranger = np.random.default_rng(0).uniform(-1, 1, (2000, 3)) * [1.0, 1.0, 0.3]
    result = registered([*turned.clouds, stranger])
    assert result.groups == (tuple(range(6)), (6,))
    assert result.verdicts[6].verdict == "failed"
    assert (result.labels[6] == -1).all()


def test_a_cloud_in_another_unit_is_asked_about() -> None:
    metres = np.random.default_rng(0).normal(size=(200, 3))
    few = coframe.Options(components=10, points=100, start="identity", threads=1)
    unlike = coframe.register([metres, 1000 * metres], names=["a", "b"], options=few)
    assert "failed" in [verdict.verdict for verdict in unlike.verdicts]
    assert any("b is 1000 times as large as a; check the units" in each for each in unlike.warnings)
    assert unit_doubt([1.0, 49.0], ["a", "b"]) is None


# The public interface


@pytest.mark.parametrize("argument", [{"fixed": [0]}, {"options": coframe.Options(motion="yaw")}])
def test_a_known_frame_is_kept(
    argument: dict[str, Any], turned: simulate.SimulatedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "find_start", refuse)
    small = [cloud[:100] for cloud in turned.clouds[:2]]
    assert coframe.register(small, **argument).start == "identity"


def test_start_is_checked() -> None:
    with pytest.raises(
        coframe.InputError, match="start: expected one of auto, identity, match, found 'guess'"
    ):
        coframe.Options(start="guess")
