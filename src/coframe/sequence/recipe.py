# SPDX-License-Identifier: MIT
"""Every tuned number of `track`, with its unit, what it does and where it comes from.

The unit of length is the extent of the first frame. Origins: [paper], [derived: how], [chosen on:
what, and what it changed], [0.1, varied on: what, and what others change].
"""

import math
from dataclasses import dataclass, replace

from coframe.align.recipe import ALIGN
from coframe.em.recipe import MODEL, ModelRecipe


@dataclass(frozen=True)
class SequenceRecipe:
    """How frames are sampled, localised, kept as key frames, and found again after a loss."""

    # --- Defaults of `TrackOptions` ---

    # [points] drawn from a frame. [chosen on proving/tune, 2026-11-18: the error in three
    # rooms and a street is 0.55 to 0.6 times that with 1500; on freiburg1_desk and in the kitchen
    # nothing is gained]
    points: int = 3000
    # [components] of the mixture that frames are localised against. [chosen on: freiburg1_desk;
    # 800 instead of 1000 is faster at the same error]
    components: int = 800
    # [frames] from one key frame to the next. [chosen on: freiburg1_desk; with 6, 7 frames are
    # lost]
    every: int = 5
    # [key frames] that are registered together; of a submap twice as many. [chosen on:
    # freiburg1_desk]
    window: int = 10
    # [iterations] of the joint registration at each key frame, and of the last one. [chosen on:
    # freiburg1_desk; 4 to 32 in the last one differ by 0.3 mm of ATE]
    iterations: int = 4

    # --- Sampling of a frame (see `sampling`) ---

    # [0 to 1] Preference for surface of rare directions. [0.1, varied on proving/tune, 2026-11-18:
    # 0.99 and 0.467 within chance]
    direction_balance: float = 0.7
    # [1 / component of a unit normal] Resolution at which directions of surface are distinguished,
    # about 40 degrees. [0.1, checked on: freiburg1_desk with thirty frames left out; with 1, one of
    # three seeds does not find where it is]
    direction_resolution: float = 1.5

    # --- Key frames (see `keyframes`) ---

    # [unit, see `viewpoint_distance`] A key frame that leaves the window is dropped if older ones
    # are nearer than this; candidates of a search that are nearer are the same. [0.1, varied on
    # proving/tune, 2026-11-18: 0.15 and 0.0667 not reached]
    same_view: float = 0.1
    # [factor] Components of the last joint registration over those of a window. [0.1, varied on
    # proving/tune, 2026-11-18: 4 nothing, 2 within chance]
    final_components: int = 3

    # --- Localisation of a frame (see `tracker`) ---

    # Stiffness of flat components along their tangents, as `ModelRecipe.slide`. The rings of a
    # lidar and the edge of an image go with the sensor, and so do the middles of the components
    # that they cut out of a surface: along its tangents, these hold a frame back. [chosen on
    # proving/tune, 2026-11-18: with 5, errors on streets are 10 to 26 % larger, in rooms up to
    # 10 %; 0.3 within chance]
    slide: float = 1.0
    # [share of the typical explained share] A frame that is explained less is lost, and one that is
    # explained as well is found again. [0.1, varied on proving/tune, 2026-11-18: 0.9 worse, 0.4
    # nothing]
    min_explained: float = 0.6

    # --- Relocalisation of a segment after a loss (see `relocalise`) ---

    # [rad] Turn of a lost sensor about each axis, in either direction, that is tried. [0.1, varied
    # on proving/tune, 2026-11-18: 0.45 and 0.2 not reached]
    search_turn: float = 0.3
    # [candidates] of the first round of a search that are refined. [0.1, varied on proving/tune,
    # 2026-11-18: 8 and 3 not reached]
    search_candidates: int = 5
    # [ratio] The best candidate must be explained so much better than any that differs. [0.1,
    # varied on proving/tune, 2026-11-18: 1.72 and 0.767 not reached]
    rival_ratio: float = 1.15
    # [unit] Spacing of the points of submaps that are matched. [0.1, varied on proving/tune,
    # 2026-11-18: 0.06 and 0.0267 not reached]
    submap_spacing: float = 0.04

    @property
    def explained_rate(self) -> float:
        """[share] Weight of the newest frame in the running mean of the explained share.

        The mean goes back over about as many frames as a window has key frames. The usual time
        between frames is the median over as many.
        """
        return 1 / self.window

    @property
    def max_gap(self) -> int:
        """[times the usual time between frames] A longer gap begins a new segment.

        In a shorter one the sensor has moved no farther than from one key frame to the next.
        """
        return self.every

    @property
    def direction_cell(self) -> float:
        """[rad] Width of the cells of direction in which visibility is compared.

        The diagonal of a cell of the submaps' points, seen from the unit of length away.
        """
        return math.sqrt(2) * self.submap_spacing

    @property
    def max_conflict(self) -> float:
        """[share of the points in view] that may hide what was seen.

        They hide it if they lie nearer by more than this share of its distance. With more such
        points, two segments contradict each other.
        """
        return ALIGN.evidence.max_share

    @property
    def model(self) -> ModelRecipe:
        """How mixtures are made, and how far they let frames slide."""
        return replace(MODEL, slide=self.slide)

    @property
    def finest_blur(self) -> float:
        """[unit] Standard deviation that is added to the components in the end of a search.

        As much smaller than the smallest reach of `register` as that than the next. Larger ones, by
        the ratio of reaches each, are used before it, and for frames also smaller ones, down to the
        thickness of the components.
        """
        return ALIGN.reach / ALIGN.reach_ratio**ALIGN.reach_count

    @property
    def relocalisation_blurs(self) -> tuple[float, ...]:
        """[unit] From the widest blur, which reaches as far as a start may be off, down."""
        found = [self.finest_blur]
        while ALIGN.reach_ratio * found[0] < ALIGN.reach:
            found.insert(0, ALIGN.reach_ratio * found[0])
        return tuple(found)

    @property
    def blurs(self) -> tuple[float, ...]:
        """[unit] All but the widest: how far off a frame may start."""
        return self.relocalisation_blurs[1:]

    @property
    def wide_blurs(self) -> tuple[float, ...]:
        """[unit] The widest two, for the first round of a search."""
        return self.relocalisation_blurs[:2]

    @property
    def search_shift(self) -> float:
        """[unit] Shift of a lost sensor that is tried: as far as a turn moves what it looks at."""
        return self.search_turn / 2

    @property
    def submap_distance(self) -> float:
        """[unit, see `viewpoint_distance`] Distance between submaps: as far as a shift goes."""
        return 2 * self.search_shift


SEQUENCE = SequenceRecipe()
