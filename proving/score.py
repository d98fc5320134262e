# SPDX-License-Identifier: MIT
"""What an answer to a problem is worth, and whether many answers are worse than earlier ones.

A cloud is right if its points lie, root mean square, within 5 % of its extent of where they belong.
Each group of connected clouds has a frame of its own, so this is measured after the common motion
of the group that makes most of its clouds right. A cloud is right only together with another one:
alone, or against clouds that are all wrong, a pose says nothing.

Every cloud is one of

- right: with at least one other cloud of its group. A foreign cloud: not called aligned.
- wrong: anything else that has a pose. A foreign cloud: called aligned.
- unplaced: the only cloud of its group, or of an answer that is an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import binomtest, chi2, norm, wilcoxon

from coframe import geometry
from coframe.evaluate.limit import Limit, limit
from coframe.types import Array, Pose, Poses
from proving.problem import Answer, Problem

# [format] [share of the extent] Largest error of a cloud that is right.
RIGHT = 0.05
# [format] Share of true poses that the region should contain which a covariance describes.
REGION = 0.95
# [format] Probability of a loss by chance alone, below which it is called one. A summary of ten
# families makes forty comparisons: a level of 5 % would raise two false alarms in each.
LEVEL = 0.01
# [format] Changes of accuracy by a smaller factor are none: results on other machines differ so.
SAME = 1.01


@dataclass(frozen=True)
class Score:
    """What an answer to one problem is worth. `record()` is the same as a JSON object.

    Attributes
    ----------
    name, family, scene, half, condition, seed, kind
        Of the problem.
    clouds : int
        All, foreign ones included.
    foreign : int
        Those that belong to nothing.
    right, wrong, unplaced : int
        They add up to `clouds`.
    placed : int
        Right, not called failed, not foreign.
    silent : int
        Wrong and called aligned.
    silent_unwarned : int
        Those of them in answers without any warning.
    false_alarms : int
        Right, but not called aligned; without foreign clouds.
    lost : int
        Frames of a track that are called failed; 0 in other problems.
    timed_out : bool
    error : str, optional
        Why there is no answer.
    warnings : int
    errors : list of float
        Of each cloud, over its extent; None where it has no pose, or is foreign.
    angle, shift : float, optional
        [deg], [unit] Mean over clouds, relative to the first one; only where the truth is exact
        and all clouds (but foreign ones) are right in one group. The shift is that of the centre
        of all points.
    ratio_angle, ratio_shift : float, optional
        The same, over the limit. None where the limit is not known or infinite.
    ratio : float, optional
        One number of both: the geometric mean. Ratios are compared by their logarithms, and neither
        of the two is more important; a root mean square would be the larger one alone where they
        differ. Where only one is known, it is that one.
    calibration : float, optional
        Mean squared pose error over the stated covariance, per degree of freedom: 1 if it is true.
    inside : float, optional
        Share of the poses inside the 95 % region.
    calibrated : int
        Number of poses in both.
    ate : float, optional
        [unit] Root mean square error of the positions of a track that are not lost.
    seconds, cpu : float
    memory : int
        [bytes]
    """

    name: str
    family: str
    scene: str
    half: str
    condition: str
    seed: int
    kind: str
    clouds: int
    foreign: int
    right: int
    wrong: int
    unplaced: int
    placed: int
    silent: int
    silent_unwarned: int
    false_alarms: int
    lost: int
    timed_out: bool
    error: str | None
    warnings: int
    errors: list[float | None] = field(default_factory=list)
    angle: float | None = None
    shift: float | None = None
    ratio_angle: float | None = None
    ratio_shift: float | None = None
    ratio: float | None = None
    calibration: float | None = None
    inside: float | None = None
    calibrated: int = 0
    ate: float | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0

    @property
    def placeable(self) -> int:
        return self.clouds - self.foreign

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Score":
        """From `record()`; what else the record has is ignored."""
        return cls(**{f.name: record[f.name] for f in fields(cls) if f.name in record})


def limit_of(problem: Problem) -> Limit | None:
    """The limit of a problem, without foreign clouds; None where noise or surface are not known."""
    own = _own(problem)
    if (
        problem.kind != "register"
        or not problem.exact
        or problem.sigma is None
        or problem.normals is None
        or len(own) < 2
    ):
        return None
    return limit(
        [problem.clouds[j] for j in own],
        problem.truth[own],
        sigma=[problem.sigma[j] for j in own],
        normals=[problem.normals[j] for j in own],
        rng=np.random.default_rng(0),
    )


def score(problem: Problem, answer: Answer, limit: Limit | None = None) -> Score:
    """Score an answer. `limit` is that of the clouds that are not foreign (`limit_of`)."""
    M, own = len(problem.clouds), _own(problem)
    foreign = np.isin(np.arange(M), problem.foreign)
    described: dict[str, Any] = {
        name: getattr(problem, name)
        for name in ("name", "family", "scene", "half", "condition", "seed", "kind")
    }
    cost: dict[str, Any] = {"seconds": answer.seconds, "cpu": answer.cpu, "memory": answer.memory}
    if answer.poses is None or answer.error is not None:
        error = answer.error or "no poses"
        return Score(
            **described,
            **cost,
            clouds=M,
            foreign=int(foreign.sum()),
            right=0,
            wrong=0,
            unplaced=M,
            placed=0,
            silent=0,
            silent_unwarned=0,
            false_alarms=0,
            lost=M if problem.kind == "track" else 0,
            timed_out=error.startswith("timed out"),
            error=error,
            warnings=len(answer.warnings),
            errors=[None] * M,
        )
    verdicts = np.array(answer.verdicts)
    aligned, failed = verdicts == "aligned", verdicts == "failed"
    groups = _groups(problem, answer)
    truth, errors = problem.truth.copy(), np.full(M, np.nan)
    unplaced, right = np.zeros(M, bool), np.zeros(M, bool)
    handles = np.array([_handles(problem, j) for j in range(M)])
    extents = np.array([geometry.extent(_surface(problem, j)) for j in range(M)])
    for group in groups:
        if len(group) == 1:
            unplaced[group] = True
            continue
        of_group = np.array([j for j in group if not foreign[j]], int)
        if len(of_group) == 0:
            continue
        errors[of_group], truth[of_group] = _measured(
            answer.poses[of_group],
            problem.truth[of_group],
            handles[of_group],
            extents[of_group],
            problem.symmetry,
        )
        good = errors[of_group] <= RIGHT
        right[of_group] = good & (good.sum() > 1)
    right[foreign] = ~aligned[foreign]
    unplaced[foreign] = False
    wrong = ~right & ~unplaced
    silent = int((wrong & aligned).sum())
    accuracy: dict[str, Any] = {}
    in_one_frame = any(set(own) <= set(group) for group in groups)
    if (
        problem.exact
        and problem.kind == "register"
        and len(own) > 1
        and right[own].all()
        and in_one_frame
    ):
        accuracy = _accuracy(problem, answer.poses[own], truth[own], limit)
    return Score(
        **described,
        **cost,
        **accuracy,
        **_calibration(problem, answer, truth, [g for g in groups if right[g].all()]),
        clouds=M,
        foreign=int(foreign.sum()),
        right=int(right.sum()),
        wrong=int(wrong.sum()),
        unplaced=int(unplaced.sum()),
        placed=int((right & ~failed & ~foreign).sum()),
        silent=silent,
        silent_unwarned=0 if answer.warnings else silent,
        false_alarms=int((right & ~aligned & ~foreign).sum()),
        lost=int(failed.sum()) if problem.kind == "track" else 0,
        timed_out=False,
        error=None,
        warnings=len(answer.warnings),
        errors=[float(e) if np.isfinite(e) else None for e in errors],
        ate=_position_error(answer.poses, problem.truth, ~failed)
        if problem.kind == "track"
        else None,
    )


def _own(problem: Problem) -> list[int]:
    return [j for j in range(len(problem.clouds)) if j not in problem.foreign]


def _groups(problem: Problem, answer: Answer) -> list[list[int]]:
    """The groups of the answer; clouds in none are alone. A track without groups is one."""
    if not answer.groups and problem.kind == "track":
        return [list(range(len(problem.clouds)))]
    named = {j for group in answer.groups for j in group}
    alone = [[j] for j in range(len(problem.clouds)) if j not in named]
    return [list(group) for group in answer.groups if group] + alone


def _surface(problem: Problem, j: int) -> Float[Array, "n D"]:
    """The points of a cloud on a surface, where that is known; clutter has no right position."""
    cloud = problem.clouds[j]
    if problem.normals is None:
        return cloud
    on_surface = (problem.normals[j] != 0).any(1)
    return cloud[on_surface] if on_surface.any() else cloud


def _handles(problem: Problem, j: int) -> Float[Array, "h D"]:
    """2 D points with the mean and the covariance of a cloud.

    A squared displacement by two rigid motions is a quadratic function of the point, so its mean
    over these is that over all points of the cloud.
    """
    points = _surface(problem, j)
    D = points.shape[1]
    mean = points.mean(0)
    values, axes = np.linalg.eigh((points - mean).T @ (points - mean) / len(points))
    arms = (axes * np.sqrt(D * np.maximum(values, 0))).T
    return np.concatenate([mean + arms, mean - arms])


def _moved(poses: Poses, handles: Float[Array, "M h D"]) -> Float[Array, "M h D"]:
    turned = handles @ np.swapaxes(geometry.rotation(poses), 1, 2)
    return turned + geometry.translation(poses)[:, None]


def _measured(
    poses: Poses,
    truth: Poses,
    handles: Float[Array, "m h D"],
    extents: Float[Array, " m"],
    symmetry: int,
) -> tuple[Float[Array, " m"], Poses]:
    """Errors over extents of the clouds of a group, and of equivalent true poses the nearest.

    Tried as the group's common motion: the one of each cloud that makes it right, and the one of
    all clouds with the least squares. The best, by the number of right clouds and then by the
    median error, is replaced by the least squares over its right clouds while that is no worse.
    """
    finite = np.isfinite(poses).all((1, 2))
    poses = np.where(finite[:, None, None], poses, np.eye(poses.shape[-1]))
    found = _moved(poses, handles)
    turns = _turns(symmetry, poses.shape[-1] - 1)
    targets = np.array([_moved(turn @ truth, handles) for turn in turns])

    def compare(motion: Pose) -> tuple[Float[Array, " m"], Array]:
        moved = found @ geometry.rotation(motion).T + geometry.translation(motion)
        squares = ((moved - targets) ** 2).sum(-1).mean(-1)
        nearest = squares.argmin(0)
        errors = np.sqrt(np.take_along_axis(squares, nearest[None], 0)[0]) / extents
        return np.where(finite, errors, np.inf), nearest

    def fit(rows: Bool[Array, " m"], nearest: Array) -> Pose:
        D = found.shape[-1]
        target = targets[nearest, np.arange(len(found))][rows].reshape(-1, D)
        weights = np.repeat(extents[rows] ** -2.0, found.shape[1])
        return geometry.procrustes(found[rows].reshape(-1, D), target, weights)

    def merit(errors: Float[Array, " m"]) -> tuple[int, float]:
        return int((errors <= RIGHT).sum()), -float(np.median(errors))

    tried = [truth[j] @ geometry.inverse(poses[j]) for j in np.flatnonzero(finite)]
    if finite.any():
        tried.append(fit(finite, np.zeros(len(poses), int)))
    else:
        tried.append(np.eye(poses.shape[-1]))
    errors, nearest = max((compare(motion) for motion in tried), key=lambda pair: merit(pair[0]))
    for _ in range(3):
        good = errors <= RIGHT
        if not good.any():
            break
        refined, chosen = compare(fit(good, nearest))
        if (refined <= RIGHT).sum() < good.sum():
            break
        errors, nearest = refined, chosen
    return errors, turns[nearest] @ truth


def _turns(symmetry: int, D: int) -> Poses:
    """The motions after which a symmetric structure looks the same."""
    angles = 2 * np.pi * np.arange(symmetry) / symmetry
    omega = np.zeros((symmetry, 1 if D == 2 else 3))
    omega[:, -1] = angles
    return geometry.pose(geometry.exp_rotation(omega), np.zeros((symmetry, D)))


def _accuracy(problem: Problem, poses: Poses, truth: Poses, limit: Limit | None) -> dict[str, Any]:
    """Mean angle and shift relative to the first cloud, and both over the limit."""
    motions = truth[0] @ geometry.inverse(poses[0]) @ poses @ geometry.inverse(truth)
    own = _own(problem)
    if limit is None:
        points = [
            geometry.transform(T, _surface(problem, j)) for T, j in zip(truth, own, strict=True)
        ]
        centre = np.concatenate(points).mean(0)
    else:
        centre = limit.centre
    angle = float(geometry.angle(geometry.rotation(motions))[1:].mean())
    moved = geometry.rotation(motions) @ centre + geometry.translation(motions) - centre
    shift = float(np.linalg.norm(moved, axis=1)[1:].mean())
    best = (np.inf, np.inf) if limit is None else (limit.angle, limit.shift)
    ratios = [
        error / least if np.isfinite(least) else None
        for error, least in zip((angle, shift), best, strict=True)
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    return {
        "angle": float(np.degrees(angle)),
        "shift": shift,
        "ratio_angle": ratios[0],
        "ratio_shift": ratios[1],
        "ratio": float(np.prod(known) ** (1 / len(known))) if known else None,
    }


def _calibration(
    problem: Problem, answer: Answer, truth: Poses, groups: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Squared pose errors over the stated covariances, in groups of which all clouds are right."""
    if answer.covariance is None or not problem.exact or problem.kind != "register":
        return {}
    P = answer.covariance.shape[1]
    squares: list[float] = []
    for group in groups:
        clouds = [j for j in group if j not in problem.foreign]
        if len(clouds) < 2 or len(clouds) < len(group):
            continue
        assert answer.poses is not None
        errors = pose_errors(
            answer.poses[clouds], truth[clouds], [problem.clouds[j] for j in clouds]
        )
        for error, C in zip(errors, answer.covariance[clouds], strict=True):
            if np.isfinite(C).all() and np.linalg.eigvalsh(C)[0] > 0:
                squares.append(float(error @ np.linalg.solve(C, error)))
    if not squares:
        return {}
    return {
        "calibration": float(np.mean(squares) / P),
        "inside": float(np.mean(np.array(squares) < chi2.ppf(REGION, P))),
        "calibrated": len(squares),
    }


def pose_errors(
    poses: Poses, truth: Poses, clouds: Sequence[Float[Array, "_ D"]]
) -> Float[Array, "M P"]:
    """The errors (omega, tau) that `Registration.pose_covariance` describes.

    Each cloud is turned by omega about its median, and its median shifted by tau, after the mean
    of all clouds' twists is taken out (the gauge of the average cloud).
    """
    medians = np.array([np.median(cloud, 0) for cloud in clouds])
    arms = (geometry.rotation(poses) @ medians[..., None])[..., 0] + geometry.translation(poses)
    centre = arms.mean(0)
    # The motion that all clouds share is not small; what is left after the first pass is.
    for _ in range(3):
        motions = poses @ geometry.inverse(truth)
        R = geometry.rotation(motions)
        shifts = R @ centre + geometry.translation(motions) - centre
        twists = np.concatenate([geometry.log_rotation(R), shifts], 1)
        truth = geometry.about(geometry.exp(twists.mean(0)[None]), centre) @ truth
    twists = twists - twists.mean(0)
    return np.array(
        [geometry.lever(arm - centre) @ twist for arm, twist in zip(arms, twists, strict=True)]
    )


def _position_error(poses: Poses, truth: Poses, kept: Bool[Array, " M"]) -> float | None:
    """ATE: root mean square distance of positions after the rigid motion that makes it least."""
    kept = kept & np.isfinite(poses).all((1, 2))
    if kept.sum() < 3:
        return None
    found, target = geometry.translation(poses[kept]), geometry.translation(truth[kept])
    motion = geometry.procrustes(found, target, np.ones(len(found)))
    squares = ((geometry.transform(motion, found) - target) ** 2).sum(1)
    return float(np.sqrt(squares.mean()))


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Figures over many problems, such as those of a family.

    Errors named `_error` are standard errors. Clouds of one problem succeed and fail together, so
    that problems, not clouds, are taken for independent. The share placed is the mean over
    problems, so that long sequences do not outweigh all others; other shares of clouds are ratios
    of sums over problems, shares of problems have a Wilson interval of 95 %.
    """
    if not scores:
        return {"problems": 0}
    silent = [s.silent > 0 for s in scores]
    ratios = np.array([s.ratio for s in scores if s.ratio is not None and s.ratio > 0])
    some = [s for s in scores if s.placeable]
    placed, placed_error = _share([s.placed / s.placeable for s in some], [1.0] * len(some))
    rated = [s for s in scores if s.calibration is not None and s.inside is not None]
    weights = [s.calibrated for s in rated]
    calibration, calibration_error = _share(
        [s.calibrated * (s.calibration or 0.0) for s in rated], weights
    )
    inside, inside_error = _share([s.calibrated * (s.inside or 0.0) for s in rated], weights)
    tracks = [s for s in scores if s.kind == "track"]
    ate = [s.ate for s in tracks if s.ate is not None]
    return {
        "problems": len(scores),
        **{
            name: sum(getattr(s, name) for s in scores)
            for name in (
                "clouds",
                "foreign",
                "right",
                "wrong",
                "unplaced",
                "placed",
                "silent",
                "silent_unwarned",
                "false_alarms",
                "lost",
                "timed_out",
            )
        },
        "errors": sum(s.error is not None and not s.timed_out for s in scores),
        "share_placed": placed,
        "share_placed_error": placed_error,
        "all_placed": sum(s.placed == s.placeable for s in scores),
        "silent_problems": sum(silent),
        "silent_interval": _wilson(sum(silent), len(silent)),
        "rated": len(ratios),
        "ratio_median": float(np.median(ratios)) if len(ratios) else None,
        "ratio_worst": float(ratios.max()) if len(ratios) else None,
        "ratio_log_error": float(np.log(ratios).std(ddof=1) / np.sqrt(len(ratios)))
        if len(ratios) > 1
        else None,
        "calibration": calibration,
        "calibration_error": calibration_error,
        "inside": inside,
        "inside_error": inside_error,
        "calibrated": sum(weights),
        "ate_median": float(np.median(ate)) if ate else None,
        "seconds": float(sum(s.seconds for s in scores)),
        "seconds_median": float(np.median([s.seconds for s in scores])),
        "cpu": float(sum(s.cpu for s in scores)),
        "memory": max(s.memory for s in scores),
    }


def _share(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float | None, float | None]:
    """A ratio of sums and its standard error; the error is None for one problem."""
    whole = float(np.sum(wholes))
    if whole == 0:
        return None, None
    share = float(np.sum(parts)) / whole
    n = len(parts)
    if n < 2:
        return share, None
    residuals = np.asarray(parts, float) - share * np.asarray(wholes, float)
    return share, float(np.sqrt(n / (n - 1) * (residuals**2).sum()) / whole)


def _wilson(hits: int, count: int) -> tuple[float, float]:
    z = float(norm.ppf(0.975))
    middle = (hits + z**2 / 2) / (count + z**2)
    half = z / (count + z**2) * np.sqrt(hits * (count - hits) / count + z**2 / 4)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def worse(now: Sequence[Score], before: Sequence[Score], level: float = LEVEL) -> list[str]:
    """What has become worse by more than chance, a sentence each; empty if nothing has.

    Problems are compared one by one, by name, since they differ from each other far more than two
    versions do on one of them. Clouds placed, clouds wrong and called aligned, and false alarms:
    if nothing has changed, a problem that differs is as likely to be better as worse (sign test;
    how many clouds of a problem differ does not count, since they fall together). At the level of
    1 % it takes seven problems that are worse and none that is better. Accuracy: Wilcoxon's
    signed-rank test of the logarithms of `ratio`, over problems that have it in both; unlike a t
    test it does not let one problem decide. Changes below 1 % are none.
    """
    earlier = {s.name: s for s in before}
    pairs = [(s, earlier[s.name]) for s in now if s.name in earlier]
    checks: list[tuple[str, Callable[[Score], float]]] = [
        ("fewer clouds are placed", lambda s: -s.placed),
        ("more clouds are wrong and called aligned", lambda s: s.silent),
        ("more right clouds are not called aligned", lambda s: s.false_alarms),
    ]
    found = []
    for sentence, badness in checks:
        changes = np.array([badness(a) - badness(b) for a, b in pairs])
        losses, gains = int((changes > 0).sum()), int((changes < 0).sum())
        if losses > gains:
            p = binomtest(losses, losses + gains, alternative="greater").pvalue
            if p < level:
                found.append(
                    f"{sentence}: by {int(changes.sum())} in all, in {losses} problems, against"
                    f" {gains} problems where it is the other way (p = {p:.1g})"
                )
    logs = np.array([np.log(a.ratio / b.ratio) for a, b in pairs if a.ratio and b.ratio])
    changed = logs[np.abs(logs) > np.log(SAME)]
    if len(changed) and np.median(logs) > np.log(SAME):
        p = float(wilcoxon(changed, alternative="greater").pvalue)
        if p < level:
            found.append(
                f"errors over the limit are larger: by a factor of {np.exp(np.median(logs)):.2f} in"
                f" the median of {len(logs)} problems (p = {p:.1g})"
            )
    return found
