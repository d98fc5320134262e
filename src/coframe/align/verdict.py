# SPDX-License-Identifier: MIT
"""Is the result good? A verdict per cloud, from the moments alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array

FAILED_INLIERS = 0.3
# clouds of other objects reach 0.1 by chance, views at the edge of a scene have 0.6
FAILED_OVERLAP = 0.15
WEAK_OVERLAP = 0.3
LARGE = 2.5  # times the typical residual
# times the typical residual, for a cloud with little overlap: clouds of other objects have 1.8 and
# more
SUSPECT = 1.7
# a component is shared when the other clouds put at least this share of the cloud's own mass on it
SHARED = 0.1


@dataclass(frozen=True)
class Verdict:
    """How well one cloud fits the others."""

    verdict: str  # "aligned", "weak" or "failed"
    reason: str
    overlap: float  # share of the cloud's points on surface that other clouds see too
    inliers: float  # share of its points that the model explains
    # gap between this cloud and the others along the surface normal, root mean square [user units]
    residual: float
    expected: (
        float  # the gap that the points' own scatter about the surface would leave [user units]
    )


def gaps(
    moments: Moments, mixture: Mixture
) -> tuple[Float[Array, "M K"], Float[Array, "M K"], Float[Array, "M K"]]:
    """Per cloud and component: the gap to the other clouds along the normal, its variance if only
    noise is at work, a weight.

    The variance is the scatter of points about the mean of their own cloud, which no misalignment
    enlarges.
    """
    n = np.linalg.eigh(mixture.covariances)[1][:, :, 0]
    A, others = moments.mass, moments.mass.sum(0) - moments.mass
    height = np.einsum("jkd,kd->jk", moments.first, n)
    gap = height / np.maximum(A, 1e-9) - (height.sum(0) - height) / np.maximum(others, 1e-9)
    scatter = np.einsum("jkde,kd,ke->jk", moments.second, n, n) - height**2 / np.maximum(A, 1e-9)
    degrees = np.maximum(A - 1, 0).sum(0)
    variance = np.maximum(scatter.sum(0), 0) / np.maximum(degrees, 1)
    seen = (A > 1) & (others > 1) & (degrees > 1)
    weight = np.where(seen, A * others / np.maximum(A + others, 1e-9), 0)
    return gap, variance * (1 / np.maximum(A, 1) + 1 / np.maximum(others, 1)), weight


def verdicts(moments: Moments, mixture: Mixture) -> tuple[Verdict, ...]:
    """A verdict per cloud: does it lie on surface that others see, and does it lie where they do?"""
    gap, variance, weight = gaps(moments, mixture)
    total = np.maximum(weight.sum(1), 1e-9)
    residual, expected = (
        np.sqrt((weight * gap**2).sum(1) / total),
        np.sqrt((weight * variance).sum(1) / total),
    )
    others = moments.mass.sum(0) - moments.mass
    overlap = np.where(others > SHARED * moments.mass, moments.mass, 0).sum(1) / moments.points
    inliers = moments.mass.sum(1) / moments.points
    typical = float(np.median(residual))
    return tuple(
        Verdict(*_judged(*figures, typical), *(float(figure) for figure in figures))
        for figures in zip(overlap, inliers, residual, expected, strict=True)
    )


def _judged(
    overlap: float, inliers: float, residual: float, expected: float, typical: float
) -> tuple[str, str]:
    """The verdict and its reason, worst first."""
    if inliers < FAILED_INLIERS:
        return "failed", f"the model explains only {inliers:.0%} of its points"
    if overlap < FAILED_OVERLAP:
        return "failed", f"only {overlap:.0%} of its points lie on surface that another cloud sees"
    if overlap < WEAK_OVERLAP and residual > SUSPECT * typical:
        return "failed", f"only {overlap:.0%} overlap, and there it is {farther(residual, typical)}"
    if overlap < WEAK_OVERLAP:
        return "weak", f"only {overlap:.0%} of its points lie on surface that another cloud sees"
    if residual > LARGE * max(typical, expected):
        return "weak", f"it lies {farther(residual, typical)}"
    return "aligned", f"{overlap:.0%} overlap, as close to the other clouds as its points allow"


def doubted(verdicts: Sequence[Verdict], reasons: Mapping[int, str]) -> tuple[Verdict, ...]:
    """The verdicts when there are reasons to doubt the places of some clouds: none of these is
    called aligned.
    """
    return tuple(
        (
            replace(verdict, verdict="weak", reason=reasons[j])
            if j in reasons and verdict.verdict != "failed"
            else verdict
        )
        for j, verdict in enumerate(verdicts)
    )


def farther(residual: float, typical: float) -> str:
    """How a gap compares with the usual one."""
    return (
        f"{residual / typical:.1f} x as far off as is typical here"
        if typical > 0
        else "far off, where others have no gap"
    )
