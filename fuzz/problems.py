# SPDX-License-Identifier: MIT
"""Problems for `register`, built from the bytes of a file: small, odd and degenerate clouds in 2-D
and 3-D.

Each byte decides one thing, so that a changed byte is a neighbouring problem. The result must be
sound: every number finite, every pose rigid, every probability one; or the problem is refused by an
InputError.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN

T = TypeVar("T")
# Most problems go through every kind of phase, but through each once.
SHORT = replace(ALIGN, reach_count=1, trial_levels=2, repetitions=1, max_repetitions=1)
SIZES = (12, 30, 8, 60, 5, 4, 20, 12, 30, 8, 60, 5, 4, 20, 15, 3)


class Bytes:
    """Decisions, one byte each; zeros when the bytes are used up."""

    def __init__(self, data: bytes) -> None:
        self.left = iter(data)
        self.rng = np.random.default_rng(self.next() % 64)

    def next(self) -> int:
        return next(self.left, 0)

    def pick(self, values: Sequence[T]) -> T:
        return values[self.next() % len(values)]


def register(path: Path) -> None:
    """One problem, solved and looked at."""
    given = problem(path.read_bytes())
    after = given.pop("after")
    recipe = SHORT if given.pop("short") else ALIGN
    result = coframe.register(**given, recipe=recipe)
    sound(result)
    if after == "extend":
        sound(coframe.extend(result, given["clouds"][0], options=given["options"]))
    elif after == "forget":
        sound(coframe.forget(result, 0))
    elif after == "load":
        with tempfile.TemporaryDirectory() as folder:
            sound(coframe.load(result.save(folder)))
    elif after == "relative":
        sound(result.relative_to(len(result.clouds) - 1))


def problem(data: bytes) -> dict[str, Any]:
    """The arguments of `register` that the bytes stand for."""
    b = Bytes(data)
    D, M = b.pick((3, 3, 2)), b.pick((2, 2, 3, 4))
    common = shape(b, 60, D)
    clouds = [cloud(b, common, D) for _ in range(M)]
    options = coframe.Options(
        components=b.pick((2, 1, 6)),
        points=b.pick((30, 10, 1)),
        iterations=b.pick((1, 3)),
        tolerance=b.pick((1e-4, 0.0, 1.0)),
        motion=b.pick(("rigid", "rigid", "rigid", "translation", "yaw")),
        start=b.pick(("identity",) * 6 + ("auto", "match")),
        seed=b.next(),
        threads=1,
    )
    # iterations of a phase: most problems are small, and so is the time
    limit = b.pick((3, 3, 3, 3, 3, 3, 3, 1000))
    return {
        "clouds": clouds,
        "poses": poses(b, M, D),
        "options": options,
        "weights": [weights(b, len(each)) for each in clouds] if b.next() % 8 == 1 else None,
        "fixed": b.pick(((), (), (), (0,), tuple(range(M)))),
        "on_iteration": lambda step: step.number > limit,
        "after": b.pick(("", "extend", "load", "relative", "forget")),
        "short": b.next() % 8 < 7,
    }


def shape(b: Bytes, N: int, D: int) -> np.ndarray:
    """Points of one of several kinds."""
    rng, kind = b.rng, b.pick((0, 1, 4, 5, 6, 7, 8, 0, 1, 4, 5, 6, 7, 8, 2, 3))
    flat = rng.uniform(-1, 1, (N, D))
    match kind:
        case 0:
            return rng.normal(size=(N, D))
        case 1:  # a plane, or a line
            return flat * ([1, 1, 0] if D == 3 else [1, 0])
        case 2:  # a line
            return rng.uniform(size=(N, 1)) * np.ones(D)
        case 3:  # one point, many times
            return np.full((N, D), 0.1)
        case 4:  # few distinct points
            return rng.integers(0, 2, (N, D)).astype(float)
        case 5:  # a grid
            return rng.integers(0, 5, (N, D)).astype(float)
        case 6:  # a sphere, or a circle
            return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9)
        case 7:  # stray points
            return rng.standard_cauchy((N, D)) ** 3
        case _:  # nearly a line
            return rng.uniform(size=(N, 1)) * np.ones(D) + 10.0 ** -b.pick((3, 6, 9, 12)) * flat


def cloud(b: Bytes, common: np.ndarray, D: int) -> Any:
    """Some of the common points, or points of its own, changed in a few ways."""
    N = b.pick(SIZES)
    points = common[b.rng.permutation(len(common))[:N]] if b.next() % 8 else shape(b, N, D)
    for _ in range(b.pick((1, 0, 2, 1))):
        points = changed(b, points, D)
    return dressed(b, points)


def dressed(b: Bytes, points: np.ndarray) -> Any:
    """In one of the forms that arrays come in."""
    match b.next() % 16:
        case 0:
            with np.errstate(all="ignore"):
                return points.astype(b.pick(("f4", "f2", "i4", "u1", ">f8", "c16", "?", "O")))
        case 1:
            return points[:, : b.pick((3, 2, 1))]
        case 2:
            return np.asfortranarray(points)
        case 3:
            return np.repeat(points, 2, 0)[::2]
        case 4:
            return points.tolist()
        case _:
            return points


def changed(b: Bytes, points: np.ndarray, D: int) -> np.ndarray:
    """One change."""
    N, rng = len(points), b.rng
    with np.errstate(all="ignore"):
        match b.next() % 9:
            case 0:
                return points + rng.normal(size=D) * 0.1
            case 1:
                R = geometry.random_rotation(rng, D)
                return points @ R.T
            case 2:
                return points * 10.0 ** b.pick(
                    (3, -3, 1, -1, 0.3, 0.1, -0.3, 5, -5, 1, 90, -99, 101, -150, 300, -310)
                )
            case 3:
                return points + 10.0 ** b.pick((1, 3, 0, 2, 4, 6, 9, 12))
            case 4:
                return np.repeat(points, b.pick((2, 5, 30)), 0)[:200]
            case 5:
                return points + 10.0 ** -b.pick((1, 2, 4, 8)) * rng.normal(size=(N, D))
            case 6:
                strange = points.copy()
                if N:
                    strange[b.next() % N, b.next() % D] = b.pick(
                        (1e9, -0.0, 5e-324, 1e15, 1e4, 1e5, 1e6, np.nan, np.inf, 1e99, 1e300)
                    )
                return strange
            case 7:
                return points * ([1, 1, 1e-9] if D == 3 else [1, 1e-9])
            case _:
                return np.round(points, 1)


def poses(b: Bytes, M: int, D: int) -> Any:
    """Start poses: mostly none or good ones."""
    kind = b.next() % 8
    if kind < 4:
        return None
    given = geometry.identity(M, D)
    if kind > 4:
        given = np.array(
            [
                geometry.pose(geometry.random_rotation(b.rng, D), b.rng.normal(size=D))
                for _ in range(M)
            ]
        )
    if kind == 6:
        given[0, 0, D] = b.pick((1e3, 1e1, 1e2, 1e5, 1e7, 1e200, np.nan, np.inf))
    if kind == 7 and b.next() % 4 == 0:
        given[0, 0, 0] = b.pick((0.0, 1e200, np.nan, -1.0))
    return given


def weights(b: Bytes, N: int) -> np.ndarray:
    return b.pick(
        (np.ones, lambda n: b.rng.uniform(size=n), lambda n: 10.0 ** b.rng.uniform(-30, 0, n))
    )(N) * b.pick((1.0, 1e300, 1e-310, 1.0, 1.0, 1.0, -1.0, np.nan))


def sound(result: coframe.Registration) -> None:
    """Everything that a registration says is a number, and what should be a motion, a probability
    or a variance is one.
    """
    M, D = len(result.clouds), result.poses.shape[1] - 1
    numbers = [
        result.poses,
        result.mixture.means,
        result.mixture.covariances,
        result.mixture.weights,
        result.pose_covariance,
    ]
    numbers += [
        result.moments.mass,
        result.moments.first,
        result.moments.second,
        result.moments.points,
        result.model(),
    ]
    numbers += [
        np.array([result.mixture.outlier_density]),
        *result.outlier_probability,
        *result.aligned(),
    ]
    numbers += [np.array([v.overlap, v.inliers, v.residual, v.expected]) for v in result.verdicts]
    numbers += [np.array([step.log_likelihood, step.step]) for step in result.history]
    numbers += [] if result.mixture.visibility is None else [result.mixture.visibility]
    assert all(np.isfinite(each).all() for each in numbers)
    for pose in [*result.poses, *(pose for step in result.history for pose in step.poses)]:
        R = geometry.rotation(pose)
        assert np.isfinite(pose).all()
        assert np.abs(R @ R.T - np.eye(D)).max() < 1e-9
        assert np.linalg.det(R) > 0
    assert len(result.verdicts) == M
    assert all(
        v.verdict in ("aligned", "weak", "failed")
        and "nan" not in v.reason
        and "inf" not in v.reason
        for v in result.verdicts
    )
    assert all(
        each.min() >= -1e-9 and each.max() <= 1 + 1e-9 for each in result.outlier_probability
    )
    assert np.linalg.eigvalsh(result.mixture.covariances).min() > 0
    assert all(
        np.diagonal(each).min() >= -1e-12 * np.abs(each).max() for each in result.pose_covariance
    )
    assert len(result.inliers()) == M
