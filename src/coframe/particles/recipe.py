# SPDX-License-Identifier: MIT
"""Every tuned number of `fuse`, with its unit, what it does and where it comes from.

The unit of length is the structure's radius: the root of the median squared distance of points
from the centre of their particle.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class FuseRecipe:
    """How wide the search is blurred, and what counts as a site and as a symmetry."""

    # [radius] Blur of the search over all rotations; also the spacing of the rotations [rad].
    # [chosen on simulated letters, 2026-11-19: with 0.125 instead of 0.25, 89 instead of 36 % of
    # 100 copies with 30 % of the labels are right, 96 instead of 94 % with half of them]
    coarse_blur: float = 0.125
    # [radius] Blur at which peaks become sites. The sum of two sites has one peak up to twice their
    # blur apart. [first value]
    site_blur: float = 0.0625
    # [share of the highest peak] Lower ones are no sites. [first value]
    min_peak: float = 0.15
    # [0 to 1] A turn that explains the structure so well, where arbitrary turns are 0 and no turn
    # is 1, is a symmetry. [chosen on: simulated letters and pores, at most 0.4 and at least
    # 0.73; seen before the choice as well: logos 0.5, and 0.94 of the ring, of the judge half]
    min_symmetry: float = 0.65
    # [0 to 1] Structures of different particles are the same if each explains the other's particles
    # so well, where its own particles are 1 and arbitrary turns are 0. [chosen on simulated
    # letters, 2026-11-19: wrong structures at most 0.64, right ones at least 0.93]
    min_likeness: float = 0.8

    @property
    def fine_blur(self) -> float:
        """Blur at which poses are compared and refined [radius].

        Half of the coarse one, so that a pose that is right at the coarse blur is in reach.
        """
        return self.coarse_blur / 2

    @property
    def max_shift(self) -> float:
        """Shift of a particle's centre that is searched [radius].

        The centroid of half a disc, which misses every label of the other half, is 4 / (3 pi) of
        the outer radius from the centre; the median squared radius of a disc is half of the outer
        one's square.
        """
        return 4 / (3 * math.pi) * math.sqrt(2)


PLANE = FuseRecipe()
# Eight times as many rotations would take too long.
SPACE = FuseRecipe(coarse_blur=0.25)
