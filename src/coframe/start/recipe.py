# SPDX-License-Identifier: MIT
"""Every tuned number of the search for start poses, with its unit, what it does and its origin.

Lengths are in spacings: multiples of the distance between neighbouring points of a thin scan, which
is the same for all clouds (see `features`). Evidence is in nats.
Origins: [paper], [derived: how], [chosen on: what, and what it changed], [0.1, unknown].
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StartRecipe:
    """How clouds are thinned out, matched, verified and connected."""

    # --- search ---

    # [points] Size of a thin scan of a cloud in the plane. The next size is tried where this one
    # connects too little, since means of more points are less noisy. [0.1, unknown]
    points_2d: tuple[int, ...] = (120, 40)
    # [points] Size of a thin scan of a cloud in space, as above. [0.1, unknown]
    points_3d: tuple[int, ...] = (2000, 500)
    # [spacings] Clouds are in place already where no two of them are displaced by more against each
    # other than their edges say. [0.1, unknown]
    max_displacement: float = 15.0
    # [share of the clouds] Where matching leaves several groups, the given poses are used if the
    # largest group is in place and has more than this share. [derived: a majority]
    min_group_share: float = 0.5
    # [share of the evidence] A motion is an alternative if it has this much of the evidence for the
    # best one. [0.1, unknown]
    min_alternative_evidence: float = 0.5
    # [share of the evidence] A fit contradicts an edge if less than this share of its evidence is
    # left at the fitted poses. [0.1, unknown]
    min_kept_evidence: float = 0.5
    # [share of the evidence] A cloud is in doubt if the fit contradicts edges that have more than
    # this share of the evidence for its pose. [derived: a majority]
    max_contradicted_evidence: float = 0.5

    # --- features: thin scans, normals, descriptors ---

    # [ratio] The spacing is sought between the median distance from the centre and this fraction of
    # it. [0.1, unknown]
    spacing_range: float = 1000.0
    # [steps] Bisections of that range. [0.1, unknown]
    spacing_bisections: int = 12
    # [cells per point] Clouds with few points are thinned less: the median cloud touches at most
    # this many cells of the grid per point. [0.1, unknown]
    max_cells_per_point: float = 0.7
    # [spacings] Radius of the patch that a normal is fitted to. [0.1, unknown]
    normal_radius: float = 3.0
    # [points] A point of a thin scan is stray if no more than this many points, itself included,
    # are within the radius of a normal. [0.1, unknown]
    max_stray_neighbours: int = 5
    # [points] Neighbours over which the sign of a normal may be carried. [0.1, unknown]
    sign_neighbours: int = 8
    # [ratio] What the roughness of two patches adds to the cost of carrying a sign between them,
    # beside the angle between their normals. [0.1, unknown]
    roughness_cost: float = 0.1
    # [spacings] Radius of the patch that a descriptor describes. [0.1, unknown]
    feature_radius: float = 6.0
    # [count] Bins of each of a descriptor's three angles.
    # [derived: as in fast point feature histograms, Rusu et al. 2009]
    bins: int = 11
    # [steps] Steps of the search for the direction that a cloud was seen from. [0.1, unknown]
    view_steps: int = 20
    # [cosine] Normals that face this direction less are slanted, and draw it towards them.
    # [0.1, unknown]
    slanted_cosine: float = 0.1
    # [ratio] A cloud whose mean normal is shorter was not seen from one direction. [0.1, unknown]
    min_view_length: float = 1e-3
    # [spacings] A surface hides what is deeper below it than this, and a point that is higher above
    # it floats in front of it. [0.1, unknown]
    hidden_depth: float = 3.0
    # [share of the points] A cloud seen from one direction hides fewer of its own points than this.
    # [0.1, unknown]
    max_hidden_share: float = 0.05

    # --- match: which pairs, and their motions ---

    # [pairs] All pairs of clouds are tried if there are no more than this. [0.1, unknown]
    max_pairs: int = 300
    # [clouds] Where there are more, each cloud is tried with so many of the most similar clouds.
    # [0.1, unknown]
    similar_clouds: int = 8
    # [clouds] Where there are more, each cloud is tried with so many that follow it in the list.
    # [0.1, unknown]
    following_clouds: int = 3
    # [count] Descriptors that serve as words when clouds are compared. [0.1, unknown]
    words: int = 200
    # [count] Descriptors of a cloud, about, of which words are drawn. [0.1, unknown]
    word_candidates: int = 500
    # [nats] Weight of a word that every cloud has. [0.1, unknown]
    min_rarity: float = 0.1
    # [count] Motions that the native matcher finds for a pair, each from the correspondences that
    # those before it leave. [0.1, unknown]
    motions_per_pair: int = 2
    # [spacings] Correspondences that are farther off a motion than this are left for the next one.
    # [0.1, unknown]
    max_match_residual: float = 4.0

    # --- verify: evidence for and against a motion ---

    # [spacings] Largest distance between corresponding points in each step of ICP. [0.1, unknown]
    icp_gates: tuple[float, ...] = (5.0, 4.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0)
    # [steps] The first steps of these use few points. [0.1, unknown]
    rough_steps: int = 4
    # [points] So many, about. [0.1, unknown]
    rough_points: int = 700
    # [share of the points] A motion is given up after these steps if fewer points have a
    # correspondence. [0.1, unknown]
    min_matched_share: float = 0.1
    # [points] Correspondences that a motion is fitted to, at least. [0.1, unknown]
    min_matched_points: int = 20
    # [ratio] Damping of an ICP step, relative to the diagonal of its information. [0.1, unknown]
    icp_damping: float = 1e-3
    # [cosine] Between normals of one surface, at least. [0.1, unknown]
    min_normal_cosine: float = 0.7
    # [spacings] A point on the other surface has a neighbour there within this distance.
    # [0.1, unknown]
    neighbour_distance: float = 1.5
    # [spacings] A point on the other surface is this close to its neighbour's tangent plane.
    # [0.1, unknown]
    surface_distance: float = 0.5
    # [spacings] Residuals below this give no further evidence. [0.1, unknown]
    min_residual: float = 0.02
    # [share of the points] Overlap that unrelated surfaces reach: only more is evidence.
    # [0.1, unknown]
    chance_overlap: float = 0.4
    # [ratio] The share of floating points times this is the share of the evidence that they refute.
    # [0.1, unknown]
    conflict_cost: float = 4.0
    # [spacings] Motions that differ by less are the same. [0.1, unknown]
    same_motion: float = 5.0
    # [spacings] Distance from a scan's centre at which motions are compared. [0.1, unknown]
    motion_radius: float = 20.0
    # [information per point] Below this stiffness, other motions along the softest direction are
    # verified, too. [0.1, unknown]
    soft_stiffness: float = 0.02
    # [spacings] How far along that direction, both ways. [0.1, unknown]
    slides: tuple[float, ...] = (6.0, 12.0, 20.0, 30.0)

    # --- graph: which edges are used, and the poses they give ---

    # [nats] Evidence that an edge between large scans needs. [chosen on: scans of bunny, dragon,
    # armadillo and lucy, where unrelated pairs reach 45 nats and true neighbours 100 to 2,000]
    min_evidence: float = 60.0
    # [points] Size of the smaller scan from which the whole evidence is needed; below, it is needed
    # in proportion. [0.1, unknown]
    full_size: int = 1000
    # [share of the evidence] What an edge of the smallest scan still needs. [0.1, unknown]
    min_evidence_share: float = 0.25
    # [share of the points] Overlap that an edge needs. [0.1, unknown]
    min_overlap: float = 0.15
    # [share of the evidence] An edge is unambiguous if the evidence for its next best motion is
    # less than that for its best one by this share. [0.1, unknown]
    min_margin: float = 0.25
    # [information per point] An edge with less stiffness can slide, and is ambiguous.
    # [chosen on: spheres and planes, which stay below 0.003]
    min_stiffness: float = 0.008
    # [times the evidence needed] What an edge needs that alone connects two parts. [0.1, unknown]
    bridge_factor: float = 2.5
    # [spacings] An edge or a cycle that is farther off the poses is inconsistent. [0.1, unknown]
    max_gap: float = 8.0
    # [times the evidence of all edges] What is added to a trusted edge, so that the spanning tree
    # takes it first. [0.1, unknown]
    trust: float = 10.0
    # [spacings] Residuals of an edge beyond this count less and less in the averaging.
    # [0.1, unknown]
    loose_residual: float = 2.0
    # [sweeps] Reweighted solutions of an averaging, of rotations and of translations each.
    # [0.1, unknown]
    averaging_sweeps: int = 20
    # [count] Averagings in a row, each without the edges that the one before leaves inconsistent.
    # [0.1, unknown]
    averagings: int = 2
    # [share of the evidence] An edge makes a hypothesis of its own if it has this share of the
    # evidence of what it contradicts. [0.1, unknown]
    min_rival_evidence: float = 0.5
    # [count] Hypotheses about the poses, at most. [0.1, unknown]
    max_hypotheses: int = 3
    # [count] Inconsistent edges that are tried as trusted ones, at most. [0.1, unknown]
    max_rivals: int = 8

    # --- planar: motions in the plane ---

    # [count] Angles that are tried, all around. [0.1, unknown]
    angles: int = 90
    # [angles] Of two angles that are closer, only the better one counts. [0.1, unknown]
    min_angle_steps: int = 3
    # [count] Motions that are verified. [0.1, unknown]
    planar_motions: int = 6
    # [spacings] Points farther from the centre are left out of the images, which would be unbounded
    # with stray points. [0.1, unknown]
    image_radius: float = 60.0
    # [share] Brightness of the pixels around a point's own. [0.1, unknown]
    halo: float = 0.5


START = StartRecipe()
