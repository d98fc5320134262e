# SPDX-License-Identifier: MIT
"""The numbers behind the report: overlap and gap of pairs, uncertainty of poses, and warnings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.em.loop import Status
from coframe.geometry import extent
from coframe.result.registration import Registration
from coframe.types import Array, Pose, Poses

# [format] Numbers of a sentence, but for those in brackets, such as a direction.
NUMBER = re.compile(r"\([^)]*\)|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
MANY_OUTLIERS = 0.3  # [limit] [share of all points] beyond which the report warns
NOTHING = 1e-3  # [guard] [points] a component with less of a cloud is not seen by it


def pairs(result: Registration) -> tuple[Float[Array, "M M"], Float[Array, "M M"]]:
    """Overlap, the share of cloud i's points on surface that cloud j sees too, and the gap there.

    The rules are those of the verdicts, for one other cloud instead of all others. The residual is
    a root mean square along the surface normals, in user units; NaN where the two share nothing,
    and on the diagonal.
    """
    mass, M = result.moments.mass, len(result.poses)
    normals = np.linalg.eigh(result.mixture.covariances)[1][:, :, 0]
    height = np.einsum("jkd,kd->jk", result.moments.first, normals) / np.maximum(mass, 1e-9)
    overlap, residual = np.zeros((M, M)), np.full((M, M), np.nan)
    A, h = np.ascontiguousarray(mass.T), np.ascontiguousarray(height.T)
    for i in range(M):
        k = np.flatnonzero(A[:, i] > NOTHING)
        own, other, gap = A[k, i, None], A[k], h[k] - h[k, i, None]
        overlap[i] = own[:, 0] @ (other > ALIGN.verdict.min_shared * own) / result.moments.points[i]
        weight = other * own / (other + own) * ((other > 1) & (own > 1))
        total = weight.sum(0)
        gap *= gap
        gap *= weight
        np.divide(gap.sum(0), total, out=residual[i], where=total > 0)
    residual = np.sqrt(residual)
    np.fill_diagonal(residual, np.nan)
    return overlap, residual


def groups(overlap: Float[Array, "M M"]) -> list[list[int]]:
    """Sets of clouds connected through shared surface, largest first."""
    linked = np.maximum(overlap, overlap.T) >= ALIGN.verdict.failed_overlap
    count, label = connected_components(linked, directed=False)
    return sorted(
        (np.flatnonzero(label == g).tolist() for g in range(count)), key=len, reverse=True
    )


def uncertainty(result: Registration) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Standard deviation of each pose in its least certain direction: turn [deg], shift [unit]."""
    D = result.mixture.dimension
    blocks = result.pose_covariance[:, :-D, :-D], result.pose_covariance[:, -D:, -D:]
    turn, shift = (np.sqrt(np.maximum(_largest(block), 0)) for block in blocks)
    return np.degrees(turn), shift


def _largest(blocks: Float[Array, "M n n"]) -> Float[Array, " M"]:
    sound = np.isfinite(blocks).all((1, 2))
    values = np.full(len(blocks), np.inf)
    values[sound] = np.linalg.eigvalsh(blocks[sound])[:, -1]
    return values


def same_gauge(poses: Poses, result: Registration, corners: Float[Array, "M C D"]) -> Poses:
    """The poses after the common motion (the gauge) that brings them closest to the final ones.

    `corners` are some points of each cloud, in its own frame.
    """
    before = np.concatenate([geometry.transform(T, c) for T, c in zip(poses, corners, strict=True)])
    after = np.concatenate(
        [geometry.transform(T, c) for T, c in zip(result.poses, corners, strict=True)]
    )
    return geometry.procrustes(before, after, np.ones(len(after))) @ poses


def travelled(
    start: Poses, result: Registration, centres: Float[Array, "M D"]
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """The turn [deg] of each cloud and the movement [unit] of its centre from its start pose."""
    turn = np.degrees(geometry.angle(geometry.rotation(result.poses @ geometry.inverse(start))))
    moved = [
        geometry.transform(b, c[None])[0] - geometry.transform(a, c[None])[0]
        for a, b, c in zip(start, result.poses, centres, strict=True)
    ]
    return turn, np.linalg.norm(moved, axis=1)


def turns(pose: Pose) -> list[float]:
    """The angle of a pose in the plane; in space, its angles about z, y and x, of which that about
    x comes first [deg].
    """
    R = geometry.rotation(pose)
    about_z = np.arctan2(R[1, 0], R[0, 0])
    if len(R) == 2:
        return [float(np.degrees(about_z))]
    about_y = np.arctan2(-R[2, 0], np.hypot(R[0, 0], R[1, 0]))
    about_x = np.arctan2(R[2, 1], R[2, 2])
    return [float(angle) for angle in np.degrees([about_z, about_y, about_x])]


@dataclass(frozen=True)
class Notice:
    """A warning at the top of the report."""

    level: str  # "failed" or "weak"
    cloud: str | None  # name of the cloud, if the warning is about one
    message: str


def notices(result: Registration, overlap: Float[Array, "M M"], outliers: float) -> list[Notice]:
    """Warnings: those of the result first, then the worst clouds, then what the figures say."""
    figures = _figures(result, overlap, outliers)
    loose = _loose(result)
    own = {*figures, _loose_warning(loose)}
    found = [
        Notice("weak", None, _sentence(warning))
        for warning in result.warnings
        if warning not in own
    ]
    found += [
        Notice(v.verdict, name, f"{v.verdict}: {v.reason}")
        for level in ("failed", "weak")
        for name, v in zip(result.names, result.verdicts, strict=True)
        if v.verdict == level
    ]
    found += [Notice("weak", None, _sentence(warning)) for warning in figures]
    found += [
        Notice(
            "weak",
            name,
            "hardly determined by the data (see ± turn and ± shift below); add clouds that overlap"
            " more",
        )
        for name in loose
    ]
    return found


def grouped(notices: Sequence[Notice]) -> list[Notice]:
    """Notices about several clouds for the same reason as one, with all of their names.

    Parameters
    ----------
    notices
        In their order.

    Returns
    -------
    list of Notice
    """
    alike: dict[tuple[str, str], list[Notice]] = {}
    for each in notices:
        reason = (
            each.message
            if each.cloud is None
            else NUMBER.sub(lambda match: "#" if match[1] else match[0], each.message)
        )
        alike.setdefault((each.level, f"{each.cloud is None} {reason}"), []).append(each)
    return [
        same[0]
        if len(same) == 1
        else replace(
            same[0],
            cloud=", ".join(str(each.cloud) for each in same),
            message=_with_ranges([each.message for each in same]),
        )
        for same in alike.values()
    ]


def _with_ranges(sentences: Sequence[str]) -> str:
    """A sentence for several that differ in numbers: from the smallest to the largest of each."""
    ranges = []
    numbers = [filter(None, NUMBER.findall(sentence)) for sentence in sentences]
    for found in zip(*numbers, strict=True):
        low, high = min(found, key=float), max(found, key=float)
        ranges.append(low if float(low) == float(high) else f"{low} to {high}")
    words = iter(ranges)
    return NUMBER.sub(lambda match: next(words) if match[1] else match[0], sentences[0])


def complete(result: Registration) -> Registration:
    """The result with all warnings that the report has, so that terminal, files and report agree.

    Parameters
    ----------
    result
        The registration.

    Returns
    -------
    Registration
    """
    outliers = 1 - sum(int(keep.sum()) for keep in result.inliers()) / sum(map(len, result.clouds))
    found = _figures(result, pairs(result)[0], outliers)
    loose = _loose(result)
    found += [_loose_warning(loose)] if loose else []
    new = [warning for warning in found if warning not in result.warnings]
    return replace(result, warnings=(*result.warnings, *new))


def _sentence(warning: str) -> str:
    return f"{warning[:1].upper()}{warning[1:]}."


def _figures(result: Registration, overlap: Float[Array, "M M"], outliers: float) -> list[str]:
    """Warnings about the whole that follow from the figures of a result."""
    found = []
    apart = groups(overlap)
    if len(apart) > 1 and len(result.groups) < 2:  # Otherwise a warning says so already.
        sizes = ", ".join(str(len(group)) for group in apart)
        found.append(
            f"the clouds form {len(apart)} sets ({sizes}) that share hardly any surface, and the"
            " data do not determine how the sets lie to each other; add clouds in between, or rely"
            " on the start poses"
        )
    published = result.options.get("method") == "paper"  # which always runs all iterations
    if result.status is not Status.CONVERGED and not published:
        found.append(f"the run {result.status.sentence}")
    if outliers > MANY_OUTLIERS:
        found.append(
            f"{outliers:.0%} of all points fit no component of the model; check that the clouds"
            " show the same scene, or remove what does not belong to it"
        )
    return found


def _loose(result: Registration) -> list[str]:
    """The clouds whose pose the data hardly determine."""
    turn, shift = uncertainty(result)
    size = max(extent(cloud) for cloud in result.clouds)
    return [
        name
        for name, a, b in zip(result.names, turn, shift, strict=True)
        if not (a < 10 and b < 0.1 * size)
    ]


def _loose_warning(names: Sequence[str]) -> str:
    return (
        f"the data hardly determine the pose of {', '.join(names)} (see ± turn and ± shift in the"
        " report); add clouds that overlap more"
    )
