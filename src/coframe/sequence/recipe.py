# SPDX-License-Identifier: MIT
"""Every tuned number of `track`, with its unit, what it does and where it comes from.

The unit of length is the extent of the first frame. Origins: [paper], [derived: how], [chosen on:
what, and what it changed], [0.1, unknown].
"""

from dataclasses import dataclass

from coframe.align.recipe import ALIGN


@dataclass(frozen=True)
class SequenceRecipe:
    """How frames are sampled, localised, kept as key frames, and found again after a loss."""

    # --- Defaults of `TrackOptions` ---

    # [points] drawn from a frame. [chosen on: freiburg1_desk, docs/sequences.md]
    points: int = 1500
    # [components] of the mixture that frames are localised against. [chosen on: freiburg1_desk;
    # 800 instead of 1000 is faster at the same error]
    components: int = 800
    # [frames] from one key frame to the next. [chosen on: freiburg1_desk; with 6, 7 frames are
    # lost]
    every: int = 5
    # [key frames] that are registered together. [chosen on: freiburg1_desk]
    window: int = 10
    # [iterations] of the joint registration at each key frame. [chosen on: freiburg1_desk]
    iterations: int = 4
    # [iterations] of the last joint registration. [chosen on: freiburg1_desk; 4 to 32 differ by
    # 0.3 mm of ATE]
    final: int = 4

    # --- Sampling of a frame (see `sampling`) ---

    # [points] of a patch; of each patch as many points are drawn as its area asks for.
    # [0.1, unknown]
    patch_points: int = 32
    # [0 to 1] Preference for surface of rare directions. [0.1, unknown]
    direction_balance: float = 0.7
    # [1 / component of a unit normal] Resolution at which directions of surface are
    # distinguished, about 40 degrees. [0.1, unknown]
    direction_resolution: float = 1.5
    # [rounds] at most, in which points that are too many for one patch go to the others.
    # [0.1, unknown]
    share_rounds: int = 4
    # [share of the wanted points] at which these rounds end. [0.1, unknown]
    share_complete: float = 0.999
    # [points] of a frame, at least; with fewer it counts as empty. [0.1, unknown]
    min_points: int = 200

    # --- Key frames (see `keyframes`) ---

    # [squared unit] Variance added to every component. [derived: as in align/recipe.py]
    min_variance: float = ALIGN.min_variance
    # [share of a point's posterior mass] that the kernels may skip. [derived: as in
    # align/recipe.py]
    tolerance: float = ALIGN.kernel_tolerance
    # [unit] Distance before the sensor of the point that stands for what it looks at.
    # [0.1, unknown]
    look_ahead: float = 0.6
    # [unit, see `viewpoint_distance`] A key frame that leaves the window is dropped if older ones
    # are nearer than this. [0.1, unknown]
    same_view: float = 0.08
    # [key frames] that must be so near before one is dropped. [0.1, unknown]
    same_view_count: int = 1
    # [key frames] that the last joint registration moves, at most. [0.1, unknown]
    final_keyframes: int = 300
    # [factor] Components of the last joint registration over those of a window. [0.1, unknown]
    final_components: int = 3

    # --- Localisation of a frame (see `tracker`) ---

    # [unit] Standard deviations added to the components, one after the other: how far off a frame
    # may start. [0.1, unknown]
    blurs: tuple[float, ...] = (0.025, 0.008, 0.004)
    # [unit] Larger ones, used before these after a loss. [0.1, unknown]
    wide_blurs: tuple[float, ...] = (0.1, 0.04)
    # [share of the typical explained share] A frame that is explained less is lost. [0.1, unknown]
    lost_below: float = 0.6
    # [share of the typical explained share] A frame or segment that was found with wide blurs must
    # be explained at least so well. [0.1, unknown]
    found_above: float = 0.65
    # [share] Weight of the newest frame in the running mean of the explained share. [0.1, unknown]
    explained_rate: float = 0.1
    # [times the usual time between frames] A longer gap begins a new segment. [0.1, unknown]
    max_gap: float = 5.0
    # [frames] over which the usual time between frames is taken. [0.1, unknown]
    gap_frames: int = 20

    # --- Relocalisation of a segment after a loss (see `relocalise`) ---

    # [key frames] of a segment before it is searched for, and before it can be found; its first
    # frames are all key frames, since a mixture of one frame constrains a pose too little.
    # [0.1, unknown]
    min_keyframes: int = 3
    # [factor] Growth of a segment until the next search. [0.1, unknown]
    search_growth: float = 1.5
    # [key frames] The same growth, at least. [0.1, unknown]
    search_step: int = 2
    # [rad] Turn of a lost sensor about each axis, in either direction, that is tried.
    # [0.1, unknown]
    search_turn: float = 0.3
    # [unit] Shift of a lost sensor along each axis, in either direction, that is tried.
    # [0.1, unknown]
    search_shift: float = 0.12
    # [points] of a segment in the first round of a search. [0.1, unknown]
    search_points: int = 300
    # [steps] of `localise` in the first round. [0.1, unknown]
    search_steps: int = 4
    # [candidates] of the first round that are refined. [0.1, unknown]
    search_candidates: int = 5
    # [points] of a segment that refine a candidate. [0.1, unknown]
    segment_points: int = 3000
    # [ratio] The best candidate must be explained so much better than any that differs.
    # [0.1, unknown]
    rival_ratio: float = 1.15
    # [unit, see `viewpoint_distance`] Candidates that are nearer are the same. [0.1, unknown]
    same_candidate: float = 0.1
    # [key frames] after a merge of two segments within which it may be undone. [0.1, unknown]
    probation: int = 5

    # --- Submaps that segments are matched with (see `relocalise`) ---

    # [unit] Spacing of the points that are matched. [0.1, unknown]
    submap_spacing: float = 0.04
    # [key frames] of a submap, at most. [0.1, unknown]
    submap_keyframes: int = 20
    # [unit, see `viewpoint_distance`] Distance between submaps, at least. [0.1, unknown]
    submap_distance: float = 0.3
    # [submaps] that a segment is matched with, at most. [0.1, unknown]
    max_submaps: int = 16
    # [rad] Width of the cells of direction in which visibility is compared. [0.1, unknown]
    direction_cell: float = 0.05
    # [share of the distance to what was seen] Points that are nearer would have hidden it.
    # [0.1, unknown]
    in_front: float = 0.9
    # [share of the points in view] that may hide what was seen; with more, two segments
    # contradict each other. [0.1, unknown]
    max_conflict: float = 0.1

    @property
    def relocalisation_blurs(self) -> tuple[float, ...]:
        """[unit] From the widest blur to the narrowest."""
        return (*self.wide_blurs, *self.blurs)


SEQUENCE = SequenceRecipe()
