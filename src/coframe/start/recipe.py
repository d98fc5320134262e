# SPDX-License-Identifier: MIT
"""Every tuned number of the search for start poses, with its unit, what it does and its origin.

Lengths are in spacings: multiples of the distance between neighbouring points of a thin scan, which
is the same for all clouds (see `features`). Evidence is in nats.
Origins: [derived: how], [chosen on: what, and what it changed], [0.1, checked on: what other values
change], [0.1, varied on: what, and what others change].
"""

import math
from dataclasses import dataclass

from coframe import geometry


@dataclass(frozen=True)
class StartRecipe:
    """How clouds are thinned out, matched, verified and connected."""

    # --- search ---

    # [points] Size of a thin scan of a cloud in the plane. Twice the spacing is tried where this
    # connects too little, since means of more points are less noisy.
    # [0.1, checked on: laser scans; 80 and 180 remove two doubts, and change no cloud]
    points_2d: int = 120
    # [points] Size of a thin scan of a cloud in space, as above. [0.1, varied on proving/tune,
    # 2026-11-18: 3000 nothing, 1333 better]
    points_3d: int = 2000
    # [spacings] Clouds are in place already where no two of them are displaced by more against each
    # other than their edges say. [0.1, varied on proving/tune, 2026-11-18: 22.5 and 10 not reached]
    max_displacement: float = 15.0
    # [share of the evidence] A motion or an edge rivals another one if it has at least this share
    # of its evidence.
    # [0.1, checked: 0.33 and 0.75 change no bit of four problems in the plane]
    rival_share: float = 0.5

    # --- features: thin scans, normals, descriptors ---

    # [spacings] Radius of the patch that a normal is fitted to. A surface hides what is deeper
    # below it than this, and a point that is higher above it floats in front of it.
    # [0.1, checked on: views in the plane; 4.5 leaves three of five in doubt, 2 none]
    normal_radius: float = 3.0
    # [spacings] Radius of the patch that a descriptor describes. [0.1, varied on proving/tune,
    # 2026-11-18: 9 and 4 better]
    feature_radius: float = 6.0
    # [share of the points] A cloud seen from one direction hides fewer of its own points than this.
    # [0.1, checked on: four problems in space; 0.033 and 0.075 change no bit]
    max_hidden_share: float = 0.05

    # --- match: which pairs, and their motions ---

    # [clouds] Where there are more than twice as many others, each cloud is tried with so many: a
    # quarter are those that follow it in the list, the rest the most similar ones. [0.1, varied on
    # proving/tune, 2026-11-18: 18 and 8 nothing]
    partners: int = 12
    # [count] Motions of a pair that are verified: those that most correspondences agree with.
    # [0.1, varied on proving/tune, 2026-11-18: 3 better, 1 within chance]
    motions_per_pair: int = 2

    # --- verify: evidence for and against a motion ---

    # [spacings] Largest distance between corresponding points in the first step of ICP. Motions
    # that differ by less are the same, edges that are farther off the poses or a cycle are
    # inconsistent, and correspondences within this distance vote for a motion.
    # [0.1, varied on proving/tune, 2026-11-18: 7.5 better, 3.33 within chance]
    first_gate: float = 5.0
    # [spacings] The same in the last steps. Residuals of an edge beyond this count less and less in
    # the averaging.
    # [0.1, checked on: views in the plane; 1.3 leaves three of five in doubt, 3 none]
    last_gate: float = 2.0
    # [spacings] A point on the other surface is this close to its neighbour's tangent plane.
    # [0.1, checked on: views in the plane; 0.33 and 0.75 leave two of five in doubt]
    surface_distance: float = 0.5
    # [share of the points] Overlap that unrelated surfaces reach: only more is evidence.
    # [0.1, checked on: views of 300 points; 0.27 lets two wrong edges in, 0.6 none]
    chance_overlap: float = 0.4
    # [spacings] Distance from a scan's centre at which motions are compared. [0.1, varied on
    # proving/tune, 2026-11-18: 30 and 13.3 nothing]
    motion_radius: float = 20.0
    # [information per point] Below this stiffness, other motions along the softest direction are
    # verified, too. [0.1, checked on: lucy; 0.008 lets one wrong edge in]
    soft_stiffness: float = 0.02

    # --- directions: scans of built places ---

    # [nats] The evidence of a patch of a built place that agrees. Patches share points with a dozen
    # others, so it is less than a point's. [chosen on proving/tune, 2026-11-18: views of different
    # corners of a room reach 57 nats, true neighbours that share a half 80 and more]
    patch_evidence: float = 0.07
    # [ratio] How many that agree are refuted by a patch that contradicts. [chosen on proving/tune,
    # 2026-11-18: in halls 14 prefers a wrong pillar where 1 patch in 60 contradicts; true pairs
    # have at most 1 in 100]
    patch_conflict: float = 25.0

    # --- graph: which edges are used, and the poses they give ---

    # [nats] Evidence that an edge needs between scans of `points_3d` points. Chance grows with the
    # square root of the number of points, and so does what is needed. [chosen on: scans of bunny,
    # dragon, armadillo and lucy, where unrelated pairs reach 45 nats and true neighbours 100 to
    # 2,000]
    min_evidence: float = 60.0
    # [share of the evidence] An edge is unambiguous if the evidence for its next best motion is
    # less than that for its best one by this share.
    # [0.1, checked on: 27 scenes of proving's tune half, from nothing; 0.5 puts a cloud of a street
    # wrong without doubt]
    min_margin: float = 0.25
    # [information per point] An edge with less stiffness can slide, and is ambiguous.
    # [chosen on: spheres and planes, which stay below 0.003]
    min_stiffness: float = 0.008
    # [times the evidence needed] What an edge needs that alone connects two parts.
    # [0.1, checked on: noisy range pairs; 3.75 puts two right pairs in doubt, 1.67 none]
    bridge_factor: float = 2.5

    # --- planar: motions in the plane ---

    # [count] Motions that are verified.
    # [0.1, checked on: views in the plane; 4 leaves three of five in doubt, 9 changes none]
    planar_motions: int = 6
    # [share] What a vote for a shift counts in the cells around its own.
    # [0.1, checked on: views in the plane; 0 leaves three of five in doubt, 0.33 none]
    halo: float = 0.5

    @property
    def sign_neighbours(self) -> int:
        """[points] Neighbours over which the sign of a normal may be carried.

        As many as there are cells around a cell of a grid in the plane.
        """
        return 3**2 - 1

    @property
    def min_normal_cosine(self) -> float:
        """[cosine] Between normals of one surface, at least."""
        return geometry.ALIKE

    @property
    def neighbour_distance(self) -> float:
        """[spacings] A point on the other surface has a neighbour there within this distance.

        Distances between two points of it are the same in both scans if they differ by less. It is
        the diagonal of a cell.
        """
        return math.sqrt(2)

    @property
    def conflict_cost(self) -> float:
        """[ratio] The share of floating points times this is the share of evidence they refute.

        Nothing is left where as many points float as a rival needs of the evidence to be one.
        """
        return 1 / self.min_margin

    @property
    def max_pairs(self) -> int:
        """All pairs of clouds are tried if there are no more than this."""
        return self.partners * (2 * self.partners + 1)


START = StartRecipe()
