# SPDX-License-Identifier: MIT
"""Every tuned number of `fuse`, with its unit, what it does and where it comes from.

The unit of length is the structure's radius: the root mean square distance of points from the
centre of their particle.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FuseRecipe:
    """How a start is sampled, particles are placed, judged, and sites are found."""

    # [radius] Blur of the search over all rotations.
    coarse_blur: float = 0.25
    # [radius] Blur at which poses are compared and refined.
    fine_blur: float = 0.11
    # [cells] of a grid per blur.
    cells_per_blur: float = 2.0
    # [radius] Shift of a particle's centre that is searched.
    max_shift: float = 0.7
    # [share] of points that belong to no site.
    outliers: float = 0.2
    # [exponent] n points at one spot count as n to this power.
    crowd_power: float = 0.5
    # [particles] of a start at most.
    start_particles: int = 100
    # [chains] of random starts.
    chains: int = 6
    # [sweeps] of each chain.
    chain_sweeps: int = 12
    # [poses] of a particle's grid search that are refined.
    candidates: int = 8
    # [sweeps] over all particles.
    sweeps: int = 5
    # [points] of a particle that the search over all rotations uses.
    search_points: int = 200
    # [particles] that a start is judged on, none of its own.
    validation: int = 40
    # [radius] Blur at which peaks become sites.
    site_blur: float = 0.055
    # [share of the highest peak] Lower ones are no sites.
    min_peak: float = 0.15
    # [0 to 1] A turn that explains the structure so well, where arbitrary turns are 0 and none is
    # 1, is a symmetry.
    min_symmetry: float = 0.85
    # [log odds] by which the best pose must beat any other mode.
    min_margin: float = 5.3
    # [robust standard deviations] below the typical fit: such a particle is another structure.
    max_misfit: float = 4.0
