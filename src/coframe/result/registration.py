# SPDX-License-Identifier: MIT
"""What a registration returns: poses, mixture, and what they say of every cloud and every point."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from coframe import geometry
from coframe.align.alternatives import Alternative
from coframe.align.residuals import Adjustment
from coframe.align.verdict import VERDICTS, Verdict
from coframe.em.loop import Iteration, Status
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError
from coframe.result import folder as folders
from coframe.result import plot
from coframe.start.doubt import Doubt
from coframe.types import Array, Poses

# [paper] T_sigma: spheres with more than this multiple of the median variance contain outliers.
UNRELIABLE = 2.0


@dataclass(frozen=True, eq=False, repr=False)
class Registration:
    """Clouds in one common frame, in the units and coordinates of the input.

    Attributes
    ----------
    clouds : tuple of (N_j, D) arrays
        v_ji, each cloud in its own frame, as given.
    names : tuple of str
    poses : (M, D+1, D+1) array
        Pose j carries cloud j into the common frame: x = R v + t.
    mixture : Mixture
        The scene model.
    moments : Moments
        Of every cloud, in the common frame.
    outlier_probability : tuple of (N_j,) arrays
        Posterior of the uniform class, per point.
    labels : tuple of (N_j,) arrays
        Most probable component per point, -1 for the uniform class.
    verdicts : tuple of Verdict
        Per cloud: "aligned", "weak" or "failed", and why.
    pose_covariance : (M, P, P) array
        Covariance of each pose's error (omega, tau): the cloud is turned by omega [rad] about its
        median, and its median is shifted by tau [unit], both in the common frame. The same
        convention holds for `PosePrior`.
    history : tuple of Iteration
    status : Status
        "converged", "iteration_limit" or "stopped".
    groups : tuple of tuples of int
        Clouds that belong together, largest group first; each group has a frame of its own.
    start : str
        Where the start poses came from: "given", "inside" (the files, whose scans agree with them),
        "identity", "matched", "targets", "turntable" or "centred".
    pairs_tried : int
        Pairs of clouds that were matched to find them.
    doubts : tuple of Doubt
        Clouds that may lie elsewhere, and why.
    alternatives : tuple of Alternative
        Where they could lie, with the evidence for either place.
    warnings : tuple of str
    attributes : tuple of mappings
        Per cloud, the columns of its file: red, nx, intensity ...
    files : tuple of str
        The file of each cloud.
    options : mapping
        What determined the result, the seed among it.
    sizes : tuple of int
        Points of each cloud where that is more than memory holds; all per-point fields have fewer.
    elsewhere : bool
        Whether it was loaded from a folder that was copied or received, or that release 0.1 wrote.
        Then `files` may name anything, and `coframe export` does not read them unasked.
    targets : Adjustment or None
        Residuals of targets, control points and check points, where there were any.
    crs : str
        The coordinate reference system of the common frame, such as "EPSG:25832"; "" if unknown.
    """

    clouds: tuple[Float[Array, "_ D"], ...]
    names: tuple[str, ...]
    poses: Poses
    mixture: Mixture
    moments: Moments
    outlier_probability: tuple[Float[Array, " _"], ...]
    labels: tuple[Int[Array, " _"], ...]
    verdicts: tuple[Verdict, ...]
    pose_covariance: Float[Array, "M P P"]
    history: tuple[Iteration, ...]
    status: Status
    groups: tuple[tuple[int, ...], ...] = ()
    start: str = "given"
    pairs_tried: int = 0
    doubts: tuple[Doubt, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()
    attributes: tuple[Mapping[str, Shaped[Array, " _"]], ...] = ()
    files: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    elsewhere: bool = False
    targets: Adjustment | None = None
    crs: str = ""

    def __repr__(self) -> str:
        counts = Counter(verdict.verdict for verdict in self.verdicts)
        verdicts = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
        groups = f" in {len(self.groups)} groups" if len(self.groups) > 1 else ""
        said = len(self.warnings)
        warnings = f"; {said} warning{'s' if said > 1 else ''}" if said else ""
        return (
            f"Registration of {len(self.poses)} clouds{groups}: {verdicts}{warnings}\n"
            f"  {sum(self.counts):,} points, {self.mixture!r}, start: {self.start}\n"
            f"  {self.iterations} iterations: {self.status.sentence}"
        )

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
        """p_jk, what each cloud sees of the model: the priors of cloud j over the components."""
        if self.mixture.visibility is not None:
            return self.mixture.visibility
        return np.tile(self.mixture.weights, (len(self.poses), 1))

    def reliable(self, multiple: float | None = None) -> Bool[Array, " K"]:
        """Components that describe the scene and not its outliers.

        Spheres soak outliers up and grow: those whose variance exceeds `multiple` times the median
        are unreliable. Ellipsoids beside an outlier class that acts do not, and are as large as
        their patch of surface is; they are unreliable only where they are thinner than the uniform
        class everywhere.

        Parameters
        ----------
        multiple : float, optional
            For mixtures of spheres only, as from `coframe.paper`; default: 2, as in the paper (2.5
            in the authors' program).

        Returns
        -------
        (K,) array of bool
        """
        if self.mixture.spherical:
            variances = self.mixture.variances
            limit = UNRELIABLE if multiple is None else multiple
            return variances <= limit * np.median(variances)
        if multiple is not None:
            raise InputError(
                f"multiple: expected a mixture of spheres, as from coframe.paper, found ellipsoids;"
                f" leave multiple={multiple} out"
            )
        density = self.mixture.outlier_density or np.finfo(float).tiny
        return np.log(self.mixture.weights) + self.mixture.log_peaks > np.log(density)

    def inliers(self, multiple: float | None = None) -> list[Bool[Array, " _"]]:
        """Per cloud, which points a reliable component explains best; see `reliable`."""
        good = np.append(self.reliable(multiple), False)  # the last entry is the uniform class, -1
        return [good[label] for label in self.labels]

    def model(self, multiple: float | None = None) -> Float[Array, "_ D"]:
        """The scene model: the means of the reliable components; see `reliable`."""
        return self.mixture.means[self.reliable(multiple)]

    def aligned(self) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame."""
        return [
            geometry.transform(pose, cloud)
            for pose, cloud in zip(self.poses, self.clouds, strict=True)
        ]

    def cleaned(self, multiple: float | None = None) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame, without their outliers."""
        return [
            cloud[keep] for cloud, keep in zip(self.aligned(), self.inliers(multiple), strict=True)
        ]

    def merged(self) -> Float[Array, "_ D"]:
        """All points of all clouds in the common frame, cloud after cloud."""
        return np.concatenate(self.aligned())

    def relative_to(self, cloud: int) -> "Registration":
        """The same registration with the frame of one cloud as the common frame.

        Residuals of targets, which are in the frame of the control points, are left out.
        """
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
            alternatives=tuple(
                replace(each, poses=motion @ each.poses) for each in self.alternatives
            ),
            targets=None,
            crs="",
        )

    def with_targets(self, found: Adjustment | None) -> "Registration":
        """The same registration with residuals of targets, and warnings where they are large."""
        return replace(self, targets=found, warnings=(*self.warnings, *_target_warnings(found)))

    def plot(self, *, points: int = 50_000, rng: np.random.Generator | None = None) -> Any:
        """The clouds in the common frame without their outliers, as a Plotly figure.

        Parameters
        ----------
        points : int
            Points that are drawn, about.
        rng : numpy.random.Generator, optional
            Chooses them.
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
            f"<tr><td>{escape(name)}</td><td>{count}</td><td>{v.verdict}</td>"
            f"<td>{v.overlap:.0%}</td><td>{v.residual:.3g}</td><td>{escape(v.reason)}</td></tr>"
            for name, count, v in zip(self.names, self.counts, self.verdicts, strict=True)
        )
        summary = f"{len(self.clouds)} clouds, {self.iterations} iterations: {self.status.sentence}"
        return (
            f"<table><caption>{summary}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write poses.json, merged.ply, model.ply and state.npz; `coframe.load` reads them back."""
        return folders.write(folder, vars(self), reliable=self.reliable())


def load(folder: str | os.PathLike[str]) -> Registration:
    """The registration that `Registration.save` wrote to a folder."""
    return Registration(**folders.read(folder))


def _target_warnings(found: Adjustment | None) -> list[str]:
    if found is None:
        return []
    said = []
    suspects = [each for each in found.residuals if each.suspicious]
    worst = sorted(
        suspects, key=lambda each: -float(np.max(np.abs(each.residual) / np.array(each.sd)))
    )[:5]
    if worst:
        listed = ", ".join(f"{each.name} in {each.scan} ({each.distance:.3g})" for each in worst)
        more = f" and {len(suspects) - len(worst)} more" if len(suspects) > len(worst) else ""
        said.append(
            f"targets lie farther off than their standard deviations explain: {listed}{more};"
            " check their names and positions, or hold them out as check points"
        )
    low, high = found.limits
    if not found.consistent:
        word = "small" if found.chi_square > high else "large"
        said.append(
            f"standard deviations of targets and control points are too {word}: chi-square"
            f" {found.chi_square:.3g}, expected {low:.3g} to {high:.3g}; check them, and units"
        )
    return said


def _turned(covariance: Float[Array, "M P P"], R: Float[Array, "D D"]) -> Float[Array, "M P P"]:
    """Covariances of twists when the common frame turns by R."""
    D, P = len(R), covariance.shape[1]
    both = np.eye(P)
    both[-D:, -D:] = R
    if D == 3:
        both[:3, :3] = R
    return both @ covariance @ both.T
