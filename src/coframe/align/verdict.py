# SPDX-License-Identifier: MIT
"""Is the result good? A verdict per cloud, from the moments alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import gammainc

from coframe import geometry
from coframe.align.evidence import BLOCK, contradicting, splits
from coframe.align.freedom import Freedom, Review
from coframe.align.recipe import ALIGN, EvidenceRecipe, VerdictRecipe
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array

# [guard] Points: less mass than this is none.
EMPTY = 1e-9
VERDICTS = ("aligned", "weak", "failed")


@dataclass(frozen=True)
class Verdict:
    """How well one cloud fits the others.

    Attributes
    ----------
    verdict : str
        "aligned", "weak" or "failed".
    reason : str
        Why, in a sentence.
    overlap : float
        Share of the cloud's points on surface that other clouds see too.
    inliers : float
        Share of its points that the model explains.
    residual : float
        Root mean square gap between this cloud and the others along the surface normal [unit].
    expected : float
        The gap that the points' own scatter about the surface would leave [unit].
    """

    verdict: str
    reason: str
    overlap: float
    inliers: float
    residual: float
    expected: float


def gaps(
    moments: Moments, mixture: Mixture
) -> tuple[Float[Array, "M K"], Float[Array, "M K"], Float[Array, "M K"]]:
    """Per cloud and component: gap to the other clouds along the normal, its variance, a weight.

    The variance is what noise alone would give: it is the scatter of points about the mean
    of their own cloud, which no misalignment enlarges.
    """
    n = np.linalg.eigh(mixture.covariances)[1][:, :, 0]
    A, others = moments.mass, moments.mass.sum(0) - moments.mass
    height = np.einsum("jkd,kd->jk", moments.first, n)
    gap = height / np.maximum(A, EMPTY) - (height.sum(0) - height) / np.maximum(others, EMPTY)
    scatter = np.einsum("jkde,kd,ke->jk", moments.second, n, n) - height**2 / np.maximum(A, EMPTY)
    degrees = np.maximum(A - 1, 0).sum(0)
    variance = np.maximum(scatter.sum(0), 0) / np.maximum(degrees, 1)
    seen = (A > 1) & (others > 1) & (degrees > 1)
    weight = np.where(seen, A * others / np.maximum(A + others, EMPTY), 0)
    return gap, variance * (1 / np.maximum(A, 1) + 1 / np.maximum(others, 1)), weight


def redundancy(
    moments: Moments, recipe: VerdictRecipe = ALIGN.verdict
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Per cloud: its points on shared surface, and how many of their heights check its pose.

    The height of a point over the surface says how well its cloud fits. But the surface and the
    pose are fitted to the same heights, and a fit uses up as many of them as it has parameters. A
    component is a flat patch with D + 1 of them: a height, D - 1 slopes and a thickness. All points
    on it share these, so that A of T points keep A (1 - (D + 1) / T) heights. The pose has P
    parameters. What is left are the degrees of freedom of the residual: where none are left, any
    points fit any others.
    """
    A, total = moments.mass, moments.mass.sum(0)
    D = moments.about.shape[1]
    shared = np.where(total - A > recipe.min_shared * A, A, 0)
    left = np.maximum(1 - (D + 1) / np.maximum(total, EMPTY), 0)
    return shared.sum(1), (shared * left).sum(1) - geometry.degrees_of_freedom(D)


def chance(freedom: Float[Array, " M"], recipe: VerdictRecipe) -> Float[Array, " M"]:
    """The probability that a cloud which does not fit looks as if it did.

    A cloud does not fit if its gaps are `weak_residual` times as large as those of the others. With
    normally distributed gaps, the square of its residual is then chi-squared with `freedom` degrees
    of freedom, and this is the probability that it comes out no larger than that of the others.
    """
    half = np.maximum(freedom, 0) / 2
    probability = gammainc(np.maximum(half, EMPTY), half / recipe.weak_residual**2)
    return np.where(freedom > 0, probability, 1.0)


def verdicts(
    moments: Moments,
    mixture: Mixture,
    recipe: VerdictRecipe = ALIGN.verdict,
    checked: Sequence[bool] | None = None,
) -> tuple[Verdict, ...]:
    """A verdict per cloud: does it lie on surface that others see, and where they see it?

    `checked`: clouds that agree with others in enough territory to say so, so that little overlap
    leaves no doubt. Most points of a terrestrial scan lie near the instrument, where nobody else
    stood.
    """
    sure = [False] * len(moments.points) if checked is None else checked
    gap, variance, weight = gaps(moments, mixture)
    total = np.maximum(weight.sum(1), EMPTY)
    residual = np.sqrt((weight * gap**2).sum(1) / total)
    expected = np.sqrt((weight * variance).sum(1) / total)
    others = moments.mass.sum(0) - moments.mass
    seen = np.where(others > recipe.min_shared * moments.mass, moments.mass, 0)
    overlap = seen.sum(1) / moments.points
    inliers = moments.mass.sum(1) / moments.points
    typical = float(np.median(residual))
    found = tuple(
        Verdict(*_judge(*figures, typical, known, recipe), *map(float, figures))
        for figures, known in zip(
            zip(overlap, inliers, residual, expected, strict=True), sure, strict=True
        )
    )
    points, freedom = redundancy(moments, recipe)
    parameters = geometry.degrees_of_freedom(mixture.dimension)
    few = {}
    for j in np.flatnonzero(chance(freedom, recipe) > recipe.max_chance).tolist():
        if found[j].verdict == "aligned":
            few[j] = (
                f"its {points[j]:.0f} points on surface that another cloud sees are too few to"
                f" check the {parameters} parameters of its pose"
            )
    return downgrade(found, few)


def _judge(
    overlap: float,
    inliers: float,
    residual: float,
    expected: float,
    typical: float,
    checked: bool,
    recipe: VerdictRecipe,
) -> tuple[str, str]:
    """The verdict and its reason, worst first."""
    if inliers < recipe.weak_overlap:
        return "failed", f"the model explains only {inliers:.0%} of its points"
    little = f"only {overlap:.0%} of its points lie on surface that another cloud sees"
    if overlap < recipe.failed_overlap and not checked:
        return "failed", little
    if (
        not checked
        and overlap < recipe.weak_overlap
        and residual > recipe.failed_residual * typical
    ):
        where = in_comparison(residual, typical)
        return "failed", f"only {overlap:.0%} overlap, and there it is {where}"
    if overlap < recipe.weak_overlap and not checked:
        return "weak", little
    if residual > recipe.weak_residual * max(typical, expected):
        return "weak", f"it lies {in_comparison(residual, typical)}"
    return "aligned", f"{overlap:.0%} overlap, as close to the other clouds as its points allow"


def downgrade(verdicts: Sequence[Verdict], reasons: Mapping[int, str]) -> tuple[Verdict, ...]:
    """The verdicts, none of the clouds that there are reasons to doubt called aligned."""
    return tuple(
        replace(verdict, verdict="weak", reason=reasons[j])
        if j in reasons and verdict.verdict != "failed"
        else verdict
        for j, verdict in enumerate(verdicts)
    )


def contradictions(review: Review, recipe: EvidenceRecipe = ALIGN.evidence) -> dict[int, str]:
    """Clouds that contradict the others clearly more than is typical, in words."""
    shares = review.agreement.shares
    return {
        j: (
            f"{shares[j]:.0%} of its points in common territory contradict the other clouds"
            f" (typical here: {typical:.0%})"
        )
        for j, typical in contradicting(review.agreement, recipe).items()
    }


def divisions(review: Review, recipe: EvidenceRecipe = ALIGN.evidence) -> dict[int, str]:
    """Clouds of a part that contradicts the rest, in words; see `splits`."""
    return {
        j: (
            f"{len(split.side)} clouds and {len(split.rest)} others agree among themselves, but"
            f" {split.across:.0%} of the points between the two parts contradict each other"
            f" (within: {split.within:.0%})"
        )
        for split in reversed(splits(review.agreement, recipe))
        for j in split.doubtful
    }


def freedoms(review: Review, scale: float) -> dict[int, str]:
    """Clouds that the others do not constrain in some direction, in words; `scale`: user units."""
    return {j: _in_words(each, scale) for j, each in enumerate(review.freedoms) if each is not None}


def _in_words(freedom: Freedom, scale: float) -> str:
    end = "and fit as well there: the data do not decide"
    tau = freedom.alternative[:-1, -1]
    D = len(tau)
    move = freedom.twist[-D:]
    if freedom.shift == 0 or (
        freedom.turn > 0 and np.linalg.norm(freedom.twist[:-D]) > np.linalg.norm(move)
    ):
        return f"it can turn by {np.degrees(freedom.turn):.3g} degrees {end}"
    direction = ", ".join(f"{value:.2f}" for value in move / np.linalg.norm(move))
    return f"it can slide along ({direction}) by {freedom.shift * scale:.3g} {end}"


def twins(review: Review, names: Sequence[str]) -> dict[int, str]:
    """Clouds that saw the same as another one, in words."""
    return {
        j: (
            f"it saw the same as {names[i]}: both were made in one place, or in two that look"
            " alike, and the data do not decide"
        )
        for j, i in enumerate(review.twins)
        if i is not None
    }


def unsupported(review: Review, verdicts: Sequence[Verdict]) -> dict[int, str]:
    """Aligned clouds that are connected with most others only through clouds in doubt, and why.

    Doubt travels along the links between clouds. A link is territory of two clouds in which they
    agree. Of the links of a cloud without any territory nothing is known. Where no more than half
    of the clouds that have not failed are connected, or left, without doubt, none are certain.
    """
    links = review.agreement.agree + review.agreement.agree.T >= BLOCK
    aligned = [j for j, verdict in enumerate(verdicts) if verdict.verdict == "aligned"]
    known = [j for j in aligned if links[j].any()]
    parts: list[set[int]] = []
    left = set(known)
    while left:
        part = {min(left)}
        new = set(part)
        while new:
            new = {i for j in new for i in np.flatnonzero(links[j]).tolist()} & left - part
            part |= new
        left -= part
        parts.append(part)
    largest = max(parts, key=len, default=set())
    reason = "it is connected with the other clouds only through clouds that are in doubt"
    doubted = {j: reason for part in parts for j in part if part is not largest}
    placed = [verdict for verdict in verdicts if verdict.verdict != "failed"]
    half = "half of the clouds that it should fit are in doubt"
    if 2 * len(largest) <= len(placed):
        doubted |= dict.fromkeys(largest, half)
    if 2 * len(aligned) <= len(placed):
        doubted = dict.fromkeys(aligned, half) | doubted
    return doubted


def in_comparison(residual: float, typical: float) -> str:
    """A gap beside the usual one, in words."""
    if typical > 0:
        return f"{residual / typical:.1f} x as far off as is typical here"
    return "far off, where others have no gap"
