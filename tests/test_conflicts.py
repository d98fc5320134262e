# SPDX-License-Identifier: MIT
"""Edges that contradict each other, and what scans in the plane looked through."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from coframe import geometry
from coframe.compute.per_cloud import Local
from coframe.start import conflicts, graph, match, planar, verify
from coframe.start.features import ThinScan
from coframe.start.match import Edge
from coframe.start.recipe import START

POSES = geometry.pose(
    geometry.exp_rotation(np.outer([0.0, 1.1, -2.0, 0.4], [0.0, 0.0, 1.0])),
    np.array([[0.0, 0.0, 0.0], [9.0, 4.0, 0.0], [-6.0, 3.0, 0.0], [2.0, -8.0, 0.0]]),
)


def wall(count: int) -> np.ndarray:
    """A wall that goes ahead and turns as it likes."""
    rng = np.random.default_rng(3)
    turn = np.cumsum(np.cumsum(rng.normal(scale=0.06, size=count)) * 0.9)
    return np.cumsum(np.stack([np.cos(turn), np.sin(turn)], 1), 0)


@pytest.fixture(scope="module")
def scans() -> list[ThinScan]:
    """Four scans of a wall in frames of their own, each shares two thirds with the next."""
    points = wall(200)
    found = []
    for j, pose in enumerate(POSES):
        cut = points[30 * j : 30 * j + 90] - points.mean(0)
        back = geometry.inverse(pose)
        found.append(
            planar.planar_scan(geometry.transform(back, np.c_[cut, 0 * cut[:, :1]])[:, :2], START)
        )
    return found


def true_motion(a: int, b: int) -> np.ndarray:
    return geometry.inverse(POSES[b]) @ POSES[a]


def edges_of(scans: list[ThinScan]) -> list[Edge]:
    """At the true motions, of scans that share some of the wall."""
    pairs = [(a, b) for a in range(4) for b in range(a + 1, min(a + 3, 4))]
    return [match.edge_at(scans[a], scans[b], (a, b), true_motion(a, b)) for a, b in pairs]


def test_a_pair_that_prefers_a_wrong_motion_is_overruled_by_what_others_see_there(
    scans: list[ThinScan],
) -> None:
    true = edges_of(scans)
    beside = geometry.pose(geometry.exp_rotation(np.array([0.0, 0.0, 2.0])), np.array([20.0, 5, 0]))
    strong = 1.03 * true[0].best.weight
    wrong = replace(true[1].best, motion=true_motion(0, 2) @ beside, weight=strong)
    edges = [true[0], replace(true[1], best=wrong, others=()), *true[2:]]
    before = graph.solve_graph(edges, 4)[0][0]
    assert graph.distance_to(before.poses, true[0], START) > START.first_gate
    found = conflicts.resolved(Local(scans), edges)
    after = graph.solve_graph(found, 4)[0][0]
    assert all(graph.distance_to(after.poses, edge, START) < START.first_gate for edge in true)


def test_edges_that_agree_stay_as_they_are(scans: list[ThinScan]) -> None:
    edges = edges_of(scans)
    found = conflicts.resolved(Local(scans), edges)
    assert all(one is other for one, other in zip(found, edges, strict=True))


# What was seen through


def room() -> np.ndarray:
    """Walls of a room with a niche, one spacing apart."""
    corners = [(0, 0), (40, 0), (40, 30), (26, 30), (26, 50), (14, 50), (14, 30), (0, 30), (0, 0)]
    sides = []
    for one, other in itertools.pairwise(corners):
        length = int(np.hypot(*np.subtract(other, one)))
        sides.append(np.linspace(one, other, length, endpoint=False))
    return np.concatenate(sides)


def seen(points: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The points that are the nearest ones in their direction, roughly."""
    away = points - place
    distance = np.linalg.norm(away, axis=1)
    bearing = np.arctan2(away[:, 1], away[:, 0])
    kept = [
        distance[i] <= distance[np.abs(np.angle(np.exp(1j * (bearing - angle)))) < 0.03].min() + 4
        for i, angle in enumerate(bearing)
    ]
    return points[np.array(kept)]


def test_what_a_scan_in_the_plane_looked_through_speaks_against_a_motion() -> None:
    points = room()
    one = planar.planar_scan(seen(points, np.array([10.0, 8.0])) - 20.0, START)
    other = planar.planar_scan(seen(points, np.array([32.0, 22.0])) - 20.0, START)
    assert one.place is not None
    assert other.place is not None
    right = verify.evidence_for(one, other, np.eye(4))
    assert right.weight > 0
    blind = [replace(each, place=None) for each in (one, other)]
    assert right.weight == verify.evidence_for(*blind, np.eye(4)).weight
    inside = geometry.pose(np.eye(3), np.array([0.0, 12.0, 0.0]))
    alike = verify.evidence_for(*blind, inside).weight
    assert verify.evidence_for(one, other, inside).weight < alike / 2


def test_a_scan_that_nobody_can_see_from_within_has_no_place() -> None:
    x = np.arange(0.0, 40.0)
    walls = [np.c_[x, np.full(40, float(height))] for height in (0, 8, 16, 24)]
    assert planar.planar_scan(np.concatenate(walls), START).place is None
