# SPDX-License-Identifier: MIT
"""What a registration returns: poses, mixture, and what they say of every cloud and every point."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from coframe import geometry
from coframe.align.covariance import error_covariance
from coframe.align.verdict import Verdict, verdicts
from coframe.em.joint import UNCONSTRAINED, Constraints
from coframe.em.loop import Fit, Iteration, Status
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.input.normalise import Normalisation
from coframe.result import folder as folders
from coframe.result import plot
from coframe.result.labels import PointLabels
from coframe.start.doubt import Doubt
from coframe.types import Array

TINY = np.finfo(float).tiny
# the paper's T_sigma: components with more than this multiple of the median variance hold outliers
UNRELIABLE = 2.0


@dataclass(frozen=True)
class Registration:
    """Clouds in one common frame. Everything is in the units and coordinates of the input."""

    clouds: tuple[Float[Array, "_ D"], ...]  # v_ji, each in its own frame, as given
    names: tuple[str, ...]
    poses: Float[Array, "M D1 D1"]  # pose j carries cloud j into the common frame: x = R v + t
    mixture: Mixture
    moments: Moments  # of every cloud, in the common frame
    outlier_probability: tuple[Float[Array, " _"], ...]  # posterior of the uniform class, per point
    # most probable component per point, -1 for the uniform class
    labels: tuple[Int[Array, " _"], ...]
    verdicts: tuple[Verdict, ...]  # per cloud: "aligned", "weak" or "failed", and why
    # of each pose's error: a turn [rad] of the cloud about its median, and a shift
    pose_covariance: Float[Array, "M P P"]
    history: tuple[Iteration, ...]
    status: Status
    groups: tuple[
        tuple[int, ...], ...
    ] = ()  # clouds that hang together, largest first; each group has a frame of its own
    start: str = "given"  # where the start poses came from: "given", "identity" or "matched"
    pairs_tried: int = 0  # of clouds, to find them
    doubts: tuple[Doubt, ...] = ()  # clouds whose place is not certain, with other places for them
    warnings: tuple[str, ...] = ()  # sentences
    attributes: tuple[
        Mapping[str, Shaped[Array, " _"]], ...
    ] = ()  # per cloud, columns of its file: red, nx, intensity ...
    files: tuple[str, ...] = ()  # where each cloud was read from
    # that determined the result, the seed among them
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[
        int,
        ...,
        # points of each cloud where that is more than memory holds; all per-point fields have fewer
    ] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """The points of each cloud, whether they are all here or not."""
        return self.sizes or tuple(map(len, self.clouds))

    @property
    def converged(self) -> bool:
        """Whether the run settled by itself."""
        return self.status is Status.CONVERGED

    @property
    def iterations(self) -> int:
        """How many EM iterations were run."""
        return len(self.history)

    @property
    def visibility(self) -> Float[Array, "M K"]:
        """How many points of cloud j component k explains: what each cloud sees of the model."""
        return self.moments.mass

    def reliable(self, multiple: float = UNRELIABLE) -> Bool[Array, " K"]:
        """Components that describe the scene and not its outliers.

        Spheres soak outliers up and grow: those whose variance exceeds `multiple` times the median
        are unreliable (2 in the paper, 2.5 in the authors' program). Ellipsoids beside an outlier
        class that acts do not, and are as large as their patch of surface is; they are unreliable
        only where they are thinner than the uniform class everywhere.
        """
        if self.mixture.spherical:
            return self.mixture.variances <= multiple * np.median(self.mixture.variances)
        return np.log(self.mixture.weights) + self.mixture.log_peaks > np.log(
            self.mixture.outlier_density or TINY
        )

    def inliers(self, multiple: float = UNRELIABLE) -> list[Bool[Array, " _"]]:
        """Per cloud, which points are explained best by a reliable component, not by a wide one or
        by the uniform class.
        """
        # the last entry is the uniform class, label -1
        good = np.append(self.reliable(multiple), False)
        return [good[label] for label in self.labels]

    def model(self, multiple: float = UNRELIABLE) -> Float[Array, "_ D"]:
        """The scene model: the means of the reliable components."""
        return self.mixture.means[self.reliable(multiple)]

    def aligned(self) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame."""
        return [
            geometry.transform(pose, cloud)
            for pose, cloud in zip(self.poses, self.clouds, strict=True)
        ]

    def cleaned(self, multiple: float = UNRELIABLE) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame, without their outliers."""
        return [
            cloud[keep] for cloud, keep in zip(self.aligned(), self.inliers(multiple), strict=True)
        ]

    def merged(self) -> Float[Array, "_ D"]:
        """All points of all clouds in the common frame, cloud after cloud."""
        return np.concatenate(self.aligned())

    def relative_to(self, cloud: int) -> "Registration":
        """The same registration with the frame of one cloud as the common frame."""
        cloud = range(len(self.poses))[cloud]
        motion = geometry.inverse(self.poses[cloud])
        R = geometry.rotation(motion)
        means = geometry.transform(motion, self.mixture.means)

        def seen_from_cloud(poses: Float[Array, "m D1 D1"]) -> Float[Array, "m D1 D1"]:
            """Iterations from before the cloud was there know nothing of its pose."""
            return (geometry.inverse(poses[cloud]) if cloud < len(poses) else motion) @ poses

        return replace(
            self,
            poses=motion @ self.poses,
            mixture=replace(
                self.mixture, means=means, covariances=R @ self.mixture.covariances @ R.T
            ),
            moments=self.moments.moved(np.broadcast_to(motion, self.poses.shape)).recentred(means),
            pose_covariance=_turned(self.pose_covariance, R),
            history=tuple(
                replace(step, poses=seen_from_cloud(step.poses)) for step in self.history
            ),
        )

    def plot(self, *, points: int = 50_000, rng: np.random.Generator | None = None) -> Any:
        """The clouds in the common frame without their outliers, as a Plotly figure of about
        `points` points.
        """
        return plot.figure(
            self.cleaned(),
            self.names,
            points=points,
            rng=np.random.default_rng(0) if rng is None else rng,
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: a verdict per cloud."""
        head = "".join(
            f"<th>{word}</th>"
            for word in ("cloud", "points", "verdict", "overlap", "gap", "reason")
        )
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{count}</td><td>{v.verdict}</td><td>{v.overlap:.0%}</td>"
            f"<td>{v.residual:.3g}</td><td>{escape(v.reason)}</td></tr>"
            for name, count, v in zip(self.names, self.counts, self.verdicts, strict=True)
        )
        summary = f"{len(self.clouds)} clouds, {self.iterations} iterations: {self.status.value}"
        return f"<table><caption>{summary}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write poses.json, merged.ply, model.ply and state.npz; `coframe.load` reads them back."""
        return folders.write(folder, vars(self), reliable=self.reliable())


def load(folder: str | os.PathLike[str]) -> Registration:
    """The registration that `Registration.save` wrote to a folder."""
    return Registration(**folders.read(folder))


def in_user_units(
    fit: Fit,
    names: Sequence[str],
    frames: Normalisation,
    origin: Float[Array, " D"],
    constraints: Constraints = UNCONSTRAINED,
) -> Registration:
    """A fit of centred and scaled clouds as the user's result, without the points: see
    `with_points`. Its moments are full.
    """
    covariance = error_covariance(fit.moments, fit.mixture, fit.poses, constraints, fit.independent)
    mixture, moments = (
        frames.leave_mixture(fit.mixture, origin),
        frames.leave_moments(fit.moments, origin),
    )
    return Registration(
        clouds=(),
        names=tuple(names),
        poses=frames.leave_poses(fit.poses, origin),
        mixture=mixture,
        moments=moments,
        outlier_probability=(),
        labels=(),
        verdicts=verdicts(moments, mixture),
        pose_covariance=frames.leave_covariance(covariance),
        history=tuple(frames.leave_iteration(step, origin) for step in fit.history),
        status=fit.status,
        groups=(tuple(range(len(names))),),
    )


def with_points(
    result: Registration, clouds: Sequence[Float[Array, "_ D"]], found: Sequence[PointLabels]
) -> Registration:
    """The result with its clouds, and what is known of their points."""
    return replace(
        result,
        clouds=tuple(clouds),
        outlier_probability=tuple(each.outlier_probability for each in found),
        labels=tuple(each.labels for each in found),
    )


def _turned(covariance: Float[Array, "M P P"], R: Float[Array, "D D"]) -> Float[Array, "M P P"]:
    """Covariances of twists when the common frame turns by R."""
    D, P = len(R), covariance.shape[1]
    both = np.eye(P)
    both[-D:, -D:] = R
    if D == 3:
        both[:3, :3] = R
    return both @ covariance @ both.T
