# SPDX-License-Identifier: MIT
"""Motions between scans in the plane: for every angle, the shift at which most points meet.

Curves have no descriptors worth matching, but the plane has one angle only. Scans are those of
`features`, in the plane z = 0.
"""

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.start import planar_kernels
from coframe.start.features import ThinScan, fit_normals, orient_normals
from coframe.start.patches import best_place
from coframe.start.recipe import StartRecipe
from coframe.start.verify import Motion, motion_distance
from coframe.types import Array


def planar_scan(points: Float[Array, "n 2"], recipe: StartRecipe) -> ThinScan:
    """A scan of points in the plane; its normals are in the plane, too."""
    space = np.c_[points, np.zeros(len(points))]
    tree = cKDTree(space)
    normals = orient_normals(space, fit_normals(space, tree, recipe, planar=True), recipe)
    return ThinScan(space, normals, tree, None, recipe, place=find_place(space, normals, recipe))


def find_place(
    points: Float[Array, "n 3"], normals: Float[Array, "n 3"], recipe: StartRecipe
) -> Float[Array, " 2"] | None:
    """The place within a scan that it was seen from, if there is one that few points are hidden
    from.
    """
    flat, across = points[:, :2].copy(), normals[:, :2].copy()
    place, hidden = best_place(
        lambda tried: int(planar_kernels.count_hidden(flat, across, tried, recipe.normal_radius)),
        flat,
    )
    return place if hidden < recipe.max_hidden_share else None


def find_motions(a: ThinScan, b: ThinScan, recipe: StartRecipe) -> list[Motion]:
    """Motions that bring most points of a near points of b, best first."""
    angles = _angles(recipe)
    shifts, votes = _vote(a, b, angles, 1, recipe)
    kept: list[Motion] = []
    for flat in np.argsort(-votes, axis=None, kind="stable").tolist():
        k, peak = divmod(flat, votes.shape[1])
        R = geometry.exp_rotation(np.array([0.0, 0.0, 2 * np.pi * k / angles]))
        motion = geometry.pose(R, np.array([*shifts[k, peak], 0.0]))
        if len(kept) == recipe.planar_motions or votes[k, peak] == 0:
            break
        if all(motion_distance(motion, each, recipe) > recipe.first_gate for each in kept):
            kept.append(motion)
    return kept


def similarity(a: ThinScan, b: ThinScan, recipe: StartRecipe) -> float:
    """The share of points that meet at the best motion, roughly: of every second point and angle.

    Costs an eighth of `find_motions`.
    """
    votes = _vote(a, b, _angles(recipe) // 2, 2, recipe)[1]
    return float(votes.max()) / min(len(a), len(b))


def _angles(recipe: StartRecipe) -> int:
    """Neighbouring angles differ by no more than neighbouring points do."""
    return int(np.ceil(2 * np.pi * recipe.motion_radius / recipe.neighbour_distance))


def _vote(
    a: ThinScan, b: ThinScan, angles: int, every: int, recipe: StartRecipe
) -> tuple[Float[Array, "angles peaks 2"], Float[Array, "angles peaks"]]:
    """For each angle the shifts that most of the points vote for, and how many."""
    # A line of all points reaches so far. Shifts would be unbounded with stray points.
    radius = recipe.points_2d / 2
    columns = []
    for scan in (a, b):
        near = np.flatnonzero(np.linalg.norm(scan.points, axis=1) <= radius)[::every]
        columns.append((scan.points[near, :2], scan.normals[near, :2]))
    (p, p_normals), (q, q_normals) = columns
    shifts, votes = planar_kernels.find_shifts(
        p, q, p_normals, q_normals, angles, recipe.halo, recipe.min_normal_cosine, recipe.first_gate
    )
    return shifts, votes
