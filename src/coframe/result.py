# SPDX-License-Identifier: MIT
"""What a registration returns: poses, mixture, and what they say of every cloud and every point."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from coframe import geometry, plot
from coframe.arrays import Array
from coframe.assess import Verdict, pose_covariance, verdicts
from coframe.clouds import LARGEST_NUMBER, Frames, InputError
from coframe.em import Fit, Iteration, Status
from coframe.io import archive, ply
from coframe.io import poses as pose_files
from coframe.io.files import atomic
from coframe.io.scan import is_motion
from coframe.joint import UNCONSTRAINED, Constraints
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.start.doubt import Doubt
from coframe.sweeps import Assignment, Sweep

TINY = np.finfo(float).tiny
VERDICTS = ("aligned", "weak", "failed")
COLOURS, NORMALS = ("red", "green", "blue"), ("nx", "ny", "nz")
UNRELIABLE = 2.0  # the paper's T_sigma: components with more than this multiple of the median variance hold outliers


@dataclass(frozen=True)
class Registration:
    """Clouds in one common frame. Everything is in the units and coordinates of the input."""

    clouds: tuple[Float[Array, "_ D"], ...]  # v_ji, each in its own frame, as given
    names: tuple[str, ...]
    poses: Float[Array, "M D1 D1"]  # pose j carries cloud j into the common frame: x = R v + t
    mixture: Mixture
    moments: Moments  # of every cloud, in the common frame
    outlier_probability: tuple[Float[Array, " _"], ...]  # posterior of the uniform class, per point
    labels: tuple[Int[Array, " _"], ...]  # most probable component per point, -1 for the uniform class
    verdicts: tuple[Verdict, ...]  # per cloud: "aligned", "weak" or "failed", and why
    pose_covariance: Float[Array, "M P P"]  # of each pose's error: a turn [rad] of the cloud about its median, and a shift
    history: tuple[Iteration, ...]
    status: Status
    groups: tuple[tuple[int, ...], ...] = ()  # clouds that hang together, largest first; each group has a frame of its own
    start: str = "given"  # where the start poses came from: "given", "as they lie" or "matched"
    pairs_tried: int = 0  # of clouds, to find them
    doubts: tuple[Doubt, ...] = ()  # clouds whose place is not certain, with other places for them
    warnings: tuple[str, ...] = ()  # sentences
    attributes: tuple[Mapping[str, Shaped[Array, " _"]], ...] = ()  # per cloud, columns of its file: red, nx, intensity ...
    files: tuple[str, ...] = ()  # where each cloud was read from

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

        Spheres soak outliers up and grow: those whose variance exceeds `multiple` times the median are unreliable (2 in the
        paper, 2.5 in the authors' program). Ellipsoids beside an outlier class that acts do not, and are as large as their
        patch of surface is; they are unreliable only where they are thinner than the uniform class everywhere.
        """
        if self.mixture.spherical:
            return self.mixture.variances <= multiple * np.median(self.mixture.variances)
        return np.log(self.mixture.weights) + self.mixture.log_peaks > np.log(self.mixture.outlier_density or TINY)

    def inliers(self, multiple: float = UNRELIABLE) -> list[Bool[Array, " _"]]:
        """Per cloud, which points are explained best by a reliable component, not by a wide one or by the uniform class."""
        good = np.append(self.reliable(multiple), False)  # the last entry is the uniform class, label -1
        return [good[label] for label in self.labels]

    def model(self, multiple: float = UNRELIABLE) -> Float[Array, "_ D"]:
        """The scene model: the means of the reliable components."""
        return self.mixture.means[self.reliable(multiple)]

    def aligned(self) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame."""
        return [geometry.transform(pose, cloud) for pose, cloud in zip(self.poses, self.clouds, strict=True)]

    def cleaned(self, multiple: float = UNRELIABLE) -> list[Float[Array, "_ D"]]:
        """The clouds in the common frame, without their outliers."""
        return [cloud[keep] for cloud, keep in zip(self.aligned(), self.inliers(multiple), strict=True)]

    def merged(self) -> Float[Array, "_ D"]:
        """All points of all clouds in the common frame, cloud after cloud."""
        return np.concatenate(self.aligned())

    def relative_to(self, cloud: int) -> "Registration":
        """The same registration with the frame of one cloud as the common frame."""
        motion = geometry.inverse(self.poses[cloud])
        R = geometry.rotation(motion)
        means = geometry.transform(motion, self.mixture.means)
        return replace(
            self,
            poses=motion @ self.poses,
            mixture=replace(self.mixture, means=means, covariances=R @ self.mixture.covariances @ R.T),
            moments=self.moments.moved(np.broadcast_to(motion, self.poses.shape)).recentred(means),
            pose_covariance=_turned(self.pose_covariance, R),
            history=tuple(replace(step, poses=geometry.inverse(step.poses[cloud]) @ step.poses) for step in self.history),
        )

    def plot(self, *, points: int = 50_000, rng: np.random.Generator | None = None) -> Any:
        """The clouds in the common frame without their outliers, as a Plotly figure of about `points` points."""
        return plot.figure(self.cleaned(), self.names, points=points, rng=np.random.default_rng(0) if rng is None else rng)

    def _repr_html_(self) -> str:
        """What a notebook shows: a verdict per cloud."""
        head = "".join(f"<th>{word}</th>" for word in ("cloud", "points", "verdict", "overlap", "gap", "reason"))
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{len(cloud)}</td><td>{v.verdict}</td><td>{v.overlap:.0%}</td>"
            f"<td>{v.residual:.3g}</td><td>{escape(v.reason)}</td></tr>"
            for name, cloud, v in zip(self.names, self.clouds, self.verdicts, strict=True)
        )
        summary = f"{len(self.clouds)} clouds, {self.iterations} iterations: {self.status.value}"
        return f"<table><caption>{summary}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write poses.json, merged.ply, model.ply and state.npz; `coframe.load` reads them back."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        details = [
            {"file": file, "points": len(cloud), **asdict(verdict)}
            for file, cloud, verdict in zip(
                _seen_from(folder, self.files) or self.names, self.clouds, self.verdicts, strict=True
            )
        ]
        pose_files.write(
            folder / "poses.json",
            self.names,
            self.poses,
            details=details,
            status=self.status.name.lower(),
            iterations=self.iterations,
            start=self.start,
            pairs_tried=self.pairs_tried,
            groups=[[self.names[j] for j in group] for group in self.groups],
            warnings=list(self.warnings),
            version=version("coframe"),
        )
        ply.write(
            folder / "merged.ply",
            self.merged(),
            cloud=np.repeat(np.arange(len(self.clouds), dtype="<i4"), [len(cloud) for cloud in self.clouds]),
            outlier_probability=np.concatenate(self.outlier_probability).astype("<f4"),
            component=np.concatenate(self.labels).astype("<i4"),
            **self._merged_attributes(),
        )
        ply.write(
            folder / "model.ply",
            self.mixture.means,
            variance=self.mixture.variances,
            weight=self.mixture.weights,
            reliable=self.reliable().astype("u1"),
        )
        state: dict[str, Any] = {
            "names": np.array(self.names),
            "files": np.array(_seen_from(folder, self.files), dtype=np.str_),
            "poses": self.poses,
            "covariances": self.mixture.covariances,
            "means": self.mixture.means,
            "weights": self.mixture.weights,
            "outlier_density": self.mixture.outlier_density,
            "visibility": np.empty((0, 0)) if self.mixture.visibility is None else self.mixture.visibility,
            "pose_covariance": self.pose_covariance,
            "verdicts": np.array([json.dumps(asdict(verdict)) for verdict in self.verdicts]),
            "about": self.moments.about,
            "mass": self.moments.mass,
            "first": self.moments.first,
            "second": self.moments.second,
            "points": self.moments.points,
            "history_poses": np.array([step.poses for step in self.history]),
            "history": np.array([[step.number, step.log_likelihood, step.step] for step in self.history]).reshape(-1, 3),
            "status": self.status.name,
            "start": json.dumps(
                {
                    "groups": self.groups,
                    "start": self.start,
                    "pairs_tried": self.pairs_tried,
                    "warnings": self.warnings,
                    "doubts": [
                        {"cloud": d.cloud, "reason": d.reason, "alternatives": [pose.tolist() for pose in d.alternatives]}
                        for d in self.doubts
                    ],
                }
            ),
        }
        with atomic(folder / "state.npz") as temporary:
            np.savez_compressed(temporary, **state)
        return folder

    def _merged_attributes(self) -> dict[str, Shaped[Array, " _"]]:
        """Colours where a cloud has them (the others are grey); normals, turned, and intensity where every cloud has them."""
        columns: dict[str, Array] = {}
        if any(set(COLOURS) <= set(each) for each in self.attributes):
            grey = [np.full(len(cloud), 128, np.uint8) for cloud in self.clouds]
            for name in COLOURS:
                parts = [each.get(name, other) for each, other in zip(self.attributes, grey, strict=True)]
                columns[name] = np.concatenate(parts).astype(np.uint8)
        if self.attributes and all("intensity" in each for each in self.attributes):
            columns["intensity"] = np.concatenate([each["intensity"] for each in self.attributes])
        if self.attributes and self.poses.shape[1] == 4 and all(set(NORMALS) <= set(each) for each in self.attributes):
            normals = [np.stack([each[name] for name in NORMALS], 1) for each in self.attributes]
            turned = [n @ R.T for n, R in zip(normals, geometry.rotation(self.poses), strict=True)]
            columns |= dict(zip(NORMALS, np.concatenate(turned).T.astype(np.float32), strict=True))
        return columns


def load(folder: str | os.PathLike[str]) -> Registration:
    """The registration that `Registration.save` wrote to a folder."""
    folder = Path(folder)
    for name in ("state.npz", "merged.ply"):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: expected a folder written by coframe, found no {name} in it")
    try:
        return _loaded(folder)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: expected a folder written by coframe, found damaged files in it ({reason})") from error


def _loaded(folder: Path) -> Registration:
    s = archive.read(folder / "state.npz")
    sizes = _check_state(s)
    poses, D = s["poses"], sizes["D"]
    vertices = ply.read(folder / "merged.ply")
    _check_merged(vertices, len(poses), sizes["K"])
    points = np.stack([np.asarray(vertices[axis], float) for axis in "xyz"[:D]], 1)
    parts = [np.flatnonzero(vertices["cloud"] == j) for j in range(len(poses))]
    return Registration(
        clouds=tuple(geometry.transform(back, points[part]) for back, part in zip(geometry.inverse(poses), parts, strict=True)),
        names=tuple(s["names"].tolist()),
        poses=poses,
        mixture=Mixture(
            s["means"],
            s["covariances"],
            s["weights"],
            float(s["outlier_density"]),
            s["visibility"] if s["visibility"].size else None,
        ),
        moments=Moments(s["about"], s["mass"], s["first"], s["second"], s["points"]),
        outlier_probability=tuple(np.asarray(vertices["outlier_probability"][part], float) for part in parts),
        labels=tuple(np.asarray(vertices["component"][part], np.int64) for part in parts),
        verdicts=tuple(_verdict(json.loads(str(verdict))) for verdict in s["verdicts"]),
        pose_covariance=s["pose_covariance"],
        history=tuple(
            Iteration(int(number), log_likelihood, step, pose)
            for (number, log_likelihood, step), pose in zip(s["history"], s["history_poses"], strict=True)
        ),
        status=Status[str(s["status"])],
        attributes=_attributes(vertices, parts, poses),
        files=tuple(os.path.normpath(folder.absolute() / file) for file in s.get("files", ())),
        **_beginning(json.loads(str(s["start"])) if "start" in s else {}, len(poses)),
    )


def _check_state(s: Mapping[str, Array]) -> dict[str, int]:
    """A ValueError where the numbers of a state are not a registration; returns the sizes M, K and D."""
    shapes = {"means": "K D", "covariances": "K D D", "weights": "K", "outlier_density": "", "pose_covariance": "M P P"}
    shapes |= {"about": "K D", "mass": "M K", "first": "M K D", "second": "M K D D" if s["second"].ndim == 4 else "M K"}
    shapes |= {"points": "M", "poses": "M D1 D1", "history": "I 3"}
    shapes |= {"visibility": "M K"} if s["visibility"].size else {}
    shapes |= {"history_poses": "I H D1 D1"} if len(s["history"]) else {}
    sizes = archive.numbers(s, shapes)
    D = sizes["D"]
    if sizes["D1"] != D + 1 or sizes["P"] != geometry.degrees_of_freedom(D) or not all(map(is_motion, s["poses"])):
        raise ValueError("its poses are not rotations and translations")
    if not all(is_motion(pose) for poses in s["history_poses"] for pose in poses):
        raise ValueError("the poses of its history are not rotations and translations")
    for name in ("weights", "visibility", "mass", "points", "outlier_density"):
        if (s[name] < 0).any():
            raise ValueError(f"{name} is negative")
    if not s["weights"].sum() > 0 or np.linalg.eigvalsh(s["covariances"]).min() <= 0:
        raise ValueError("a component has no positive variance")
    if any(s[name].shape != (sizes["M"],) or s[name].dtype.kind != "U" for name in ("names", "verdicts")):
        raise ValueError("it has not one name and one verdict a cloud")
    return sizes


def _check_merged(vertices: Array, clouds: int, components: int) -> None:
    """A ValueError where the points are not those of such a registration."""
    limits = {"cloud": (0, clouds - 1), "component": (-1, components - 1), "outlier_probability": (0, 1 + 1e-6)}
    for name, (low, high) in (dict.fromkeys("xyz", (-LARGEST_NUMBER, LARGEST_NUMBER)) | limits).items():
        if not ((vertices[name] >= low) & (vertices[name] <= high)).all():  # false for NaN
            raise ValueError(f"merged.ply has a {name} that is not from {low} to {high}")


def _verdict(about: dict[str, Any]) -> Verdict:
    verdict = Verdict(**about)
    figures = [float(each) for each in (verdict.overlap, verdict.inliers, verdict.residual, verdict.expected)]
    if verdict.verdict not in VERDICTS or not isinstance(verdict.reason, str) or not np.isfinite(figures).all():
        raise ValueError("a verdict is none")
    return Verdict(verdict.verdict, verdict.reason, *figures)


def _attributes(vertices: Array, parts: Sequence[Int[Array, " _"]], poses: Array) -> tuple[Mapping[str, Array], ...]:
    """What `Registration._merged_attributes` wrote, cloud by cloud, normals turned back."""
    names = [name for name in (*COLOURS, "intensity", *NORMALS) if name in (vertices.dtype.names or ())]
    if not names:
        return ()
    found = [{name: vertices[name][part] for name in names} for part in parts]
    if NORMALS[0] in names:
        for each, R in zip(found, geometry.rotation(poses), strict=True):
            each |= dict(zip(NORMALS, (np.stack([each[name] for name in NORMALS], 1) @ R).T, strict=True))
    return tuple(found)


def _seen_from(folder: Path, files: Sequence[str]) -> list[str]:
    """The files as paths from the folder, so that both can move together; as they are where no path leads there."""
    try:
        return [Path(os.path.relpath(file, folder)).as_posix() for file in files]
    except ValueError:  # another drive
        return list(files)


def _beginning(about: dict[str, Any], clouds: int) -> dict[str, Any]:
    """What is known of the start, from JSON."""
    groups = tuple(tuple(int(j) for j in group) for group in about.get("groups", ()))
    doubts = tuple(
        Doubt(int(d["cloud"]), str(d["reason"]), tuple(np.array(pose, float) for pose in d["alternatives"]))
        for d in about.get("doubts", ())
    )
    if not all(0 <= j < clouds for j in (*(j for group in groups for j in group), *(doubt.cloud for doubt in doubts))):
        raise ValueError("its start speaks of clouds that it has not")
    if not all(is_motion(pose) for doubt in doubts for pose in doubt.alternatives):
        raise ValueError("its start has poses that are not rotations and translations")
    return {
        "groups": groups,
        "start": str(about.get("start", "given")),
        "pairs_tried": int(about.get("pairs_tried", 0)),
        "warnings": tuple(str(warning) for warning in about.get("warnings", ())),
        "doubts": doubts,
    }


def in_user_units(
    fit: Fit,
    sweep: Sweep,
    clouds: Sequence[Float[Array, "_ D"]],
    names: Sequence[str],
    frames: Frames,
    origin: Float[Array, " D"],
    constraints: Constraints = UNCONSTRAINED,
) -> Registration:
    """A fit of centred and scaled clouds as the user's result; `sweep` holds all their points."""
    assignments = sweep.assign(fit.poses, fit.mixture)
    moments = fit.moments if fit.moments.full else sweep.moments(fit.poses, fit.mixture, full=True)[0]
    points = float(sweep.points.sum())
    poses = frames.leave_poses(fit.poses, origin)
    covariance = pose_covariance(moments, fit.mixture, fit.poses, constraints, fit.independent)
    mixture, moments = frames.leave_mixture(fit.mixture, origin), frames.leave_moments(moments, origin)
    return Registration(
        clouds=tuple(clouds),
        names=tuple(names),
        poses=poses,
        mixture=mixture,
        moments=moments,
        outlier_probability=tuple(outlier_probability(each, fit.mixture) for each in assignments),
        labels=tuple(each.label for each in assignments),
        verdicts=verdicts(moments, mixture),
        pose_covariance=frames.leave_covariance(covariance),
        history=tuple(step.in_user_units(frames, origin, points) for step in fit.history),
        status=fit.status,
        groups=(tuple(range(len(clouds))),),
    )


def side_by_side(
    parts: Sequence[Registration], groups: Sequence[Sequence[int]], clouds: Sequence[Float[Array, "_ D"]], names: Sequence[str]
) -> Registration:
    """Registrations of groups that have nothing in common as one, their frames beside each other along x so that none overlap.

    A group of one cloud has no part: nothing is known of it, and its points are outliers. `parts` are those of the others.
    """
    M, D = len(clouds), clouds[0].shape[1]
    K = [len(part.mixture) for part in parts]
    first = np.cumsum([0, *K])
    poses, covariance = geometry.identity(M, D), np.zeros((M, *parts[0].pose_covariance.shape[1:]))
    mass, visibility = np.zeros((M, first[-1])), np.zeros((M, first[-1]))
    first_moments, second = np.zeros((M, first[-1], D)), np.zeros((M, first[-1], *parts[0].moments.second.shape[2:]))
    points = np.array([float(len(cloud)) for cloud in clouds])
    means = np.zeros((first[-1], D))
    outlier, labels = [np.ones(len(c)) for c in clouds], [np.full(len(c), -1, np.int64) for c in clouds]
    found = [Verdict("failed", "no other cloud could be matched with it", 0.0, 0.0, 0.0, 0.0) for _ in clouds]
    right = 0.0
    for g, group in enumerate(groups):
        members = list(group)
        if g < len(parts):
            part, k = parts[g], slice(first[g], first[g + 1])
            poses[members], covariance[members] = part.poses, part.pose_covariance
            mass[members, k], first_moments[members, k], second[members, k] = (
                part.moments.mass,
                part.moments.first,
                part.moments.second,
            )
            visibility[members, k] = part.mixture.weights if part.mixture.visibility is None else part.mixture.visibility
            points[members], means[k] = part.moments.points, part.mixture.means
            for i, j in enumerate(members):
                outlier[j], found[j] = part.outlier_probability[i], part.verdicts[i]
                labels[j] = np.where(part.labels[i] < 0, -1, part.labels[i] + first[g])
        boxes = [geometry.transform(poses[j], clouds[j]) for j in members]
        left, width = min(box[:, 0].min() for box in boxes), max(np.ptp(box[:, 0]) for box in boxes)
        shift = np.zeros(D)
        shift[0] = right + 0.2 * width - left if g else 0.0
        poses[members, :D, D] += shift
        if g < len(parts):
            means[k] += shift
        right = max(box[:, 0].max() for box in boxes) + shift[0]
    shares = np.repeat([len(group) / M for group in groups[: len(parts)]], K)
    weights = np.concatenate([part.mixture.weights for part in parts]) * shares
    covariances = np.concatenate([part.mixture.covariances for part in parts])
    density = float(np.mean([part.mixture.outlier_density for part in parts]))
    longest = max(parts, key=lambda part: part.iterations)
    return Registration(
        clouds=tuple(clouds),
        names=tuple(names),
        poses=poses,
        mixture=Mixture(means, covariances, weights, density, visibility),
        moments=Moments(means, mass, first_moments, second, points),
        outlier_probability=tuple(outlier),
        labels=tuple(labels),
        verdicts=tuple(found),
        pose_covariance=covariance,
        history=_padded(longest, groups[list(parts).index(longest)], poses),
        status=next((part.status for part in parts if not part.converged), Status.CONVERGED),
        groups=tuple(tuple(group) for group in groups),
    )


def _padded(part: Registration, group: Sequence[int], poses: Float[Array, "M D1 D1"]) -> tuple[Iteration, ...]:
    """The history of one group, the clouds of the others staying where they ended."""
    steps = []
    for step in part.history:
        all_poses = poses.copy()
        all_poses[list(group)] = step.poses
        steps.append(replace(step, poses=all_poses))
    return tuple(steps)


def outlier_probability(assignment: Assignment, mixture: Mixture) -> Float[Array, " N"]:
    """The posterior of the uniform class, per point."""
    if mixture.outlier_density == 0:  # far points have density 0 as well
        return np.zeros(len(assignment.density))
    return mixture.outlier_density / assignment.density


def _turned(covariance: Float[Array, "M P P"], R: Float[Array, "D D"]) -> Float[Array, "M P P"]:
    """Covariances of twists when the common frame turns by R."""
    D, P = len(R), covariance.shape[1]
    both = np.eye(P)
    both[-D:, -D:] = R
    if D == 3:
        both[:3, :3] = R
    return both @ covariance @ both.T
