# SPDX-License-Identifier: MIT
"""Every tuned number of `fuse`, with its unit, what it does and where it comes from.

The unit of length is the structure's radius: the root of the median squared distance of points
from the centre of their particle. Numbers without another origin are first values that were tried
on the logos of `data/microscopy` and not varied since.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FuseRecipe:
    """How a start is sampled, particles are placed, judged, and sites are found."""

    # --- Densities (see `search.Level`) ---

    # [radius] Blur of the search over all rotations; also the spacing of the rotations [rad].
    # [first value]
    coarse_blur: float = 0.25
    # [radius] Blur at which poses are compared and refined. [first value;
    # tried on: logos, 0.08 and 0.16 agree with the published poses for 83 and 86 % of the
    # particles, this for 84 %]
    fine_blur: float = 0.11
    # [cells] of a grid per blur. [derived: two samples per standard deviation keep a Gaussian]
    cells_per_blur: float = 2.0
    # [radius] Shift of a particle's centre that is searched. [first value]
    max_shift: float = 0.7
    # [share] of points that belong to no site. [first value]
    outliers: float = 0.2
    # [exponent] n points at one spot count as n to this power: localisations of one label are not
    # independent. [first value; tried on: logos, 1 agrees with the published poses for 83 %,
    # this for 84 %]
    crowd_power: float = 0.5

    # --- Start ---

    # [particles] of a random start at most. [first value]
    start_particles: int = 100
    # [particles] that a start is judged on, none of its own. [first value]
    validation: int = 40
    # [chains] of random starts. [chosen on: logos; all of six ended alike]
    chains: int = 4
    # [sweeps] of each chain. [first value]
    chain_sweeps: int = 12
    # [points] of a particle that the search over all rotations uses. [first value]
    search_points: int = 200

    # --- Joint sweeps ---

    # [poses] of a particle's grid search that are refined. [first value]
    candidates: int = 8
    # [sweeps] over all particles. [chosen on: logos; the fifth changes the score by 1 in 4,000]
    sweeps: int = 5

    # --- Structure and verdicts ---

    # [radius] Blur at which peaks become sites. [derived: half of the fine blur, since the sum of
    # two blurred sites at twice their blur has one peak]
    site_blur: float = 0.055
    # [share of the highest peak] Lower ones are no sites. [first value]
    min_peak: float = 0.15
    # [0 to 1] A turn that explains the structure so well, where arbitrary turns are 0 and no turn
    # is 1, is a symmetry. [chosen on: simulated letters and pores, at most 0.4 and at least
    # 0.73; seen before the choice as well: logos 0.5, and 0.94 of the ring, of the judge half]
    min_symmetry: float = 0.65
    # [log odds] by which the best pose must beat any other mode. [derived: log of 200, so that one
    # in 200 is wrong at the limit]
    min_margin: float = 5.3
    # [robust standard deviations] below the typical fit: such a particle is another structure.
    # [first value]
    max_misfit: float = 4.0
