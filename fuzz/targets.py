# SPDX-License-Identifier: MIT
"""What is fuzzed: one function per kind of file, which reads it and looks at what came out."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import coframe
from coframe import geometry
from coframe.io import clouds as cloud_files
from coframe.io import images, npz, trajectory
from coframe.io import poses as pose_files
from coframe.io.depth import Intrinsics
from coframe.report import run
from coframe.result import folder as folders
from coframe.sequence import state
from coframe.sequence.tracker import Tracker
from fuzz import problems

_unpacked = cache(npz.read)
SMALL = [np.random.default_rng(seed).normal(size=(9, 2)) for seed in (0, 1)]
QUICK = coframe.Options(components=1, points=9, iterations=1, threads=1, start="identity")
CORPUS = Path(__file__).resolve().parents[1] / "tests" / "corpus"
CAMERA = Intrinsics(5.0, 5.0, 2.0, 2.0, 1000.0)


@dataclass(frozen=True)
class Target:
    """A reader.

    The case is written to `name` in a folder of its own, beside what `prepare` puts there.
    """

    name: str
    read: Callable[[Path], object]
    prepare: Callable[[Path], None] = lambda folder: None


def cloud(path: Path) -> None:
    """At once or, one file in four, in pieces."""
    if path.stat().st_size % 4 == 0:
        for block in cloud_files.blocks(path, 3):
            assert len(block) <= 3
        return
    for scan in cloud_files.read_all(path, samples=None, intrinsics=CAMERA):
        check_columns(scan)


def mesh(path: Path) -> None:
    """A mesh by its vertices or, one in two, by points drawn from its faces."""
    for scan in cloud_files.read_all(path, samples=20 if path.stat().st_size % 2 else None):
        check_columns(scan)


def check_columns(scan: cloud_files.Scan) -> None:
    """Every column has as many rows as there are points."""
    N, D = scan.points.shape
    assert D in (2, 3)
    assert scan.points.dtype == np.float64
    assert all(len(column) == N for column in scan.attributes().values())
    assert scan.pose is None or np.isfinite(scan.pose).all()
    scan.measured()


def poses(path: Path) -> None:
    for pose in pose_files.read(path).values():
        check_rigid(pose)


def check_rigid(pose: np.ndarray) -> None:
    assert np.isfinite(pose).all()
    R = geometry.rotation(pose)
    assert np.abs(R @ R.T - np.eye(len(R))).max() < 2e-3


def path_of_sensor(read: Callable[[Path], coframe.Trajectory], path: Path) -> None:
    found = read(path)
    for pose in found.poses:
        check_rigid(pose)
    assert np.isfinite(found.times).all()
    assert np.isfinite(found.length)


def result(path: Path) -> None:
    """A whole result: everything that it offers is there and finite."""
    found = coframe.load(path.parent)
    M, D = len(found.clouds), found.poses.shape[1] - 1
    assert (
        len(found.names)
        == len(found.verdicts)
        == len(found.labels)
        == len(found.outlier_probability)
        == M
    )
    for pose in found.poses:
        check_rigid(pose)
    assert np.isfinite(found.merged()).all()
    assert all(len(keep) == len(c) for keep, c in zip(found.inliers(), found.clouds, strict=True))
    assert found.model().shape[1] == D
    assert np.isfinite(found.relative_to(M - 1).poses).all()
    found._repr_html_()


def merged(path: Path) -> None:
    """The points of a result whose state is good, and read once."""
    with mock.patch.object(folders.npz, "read", lambda file: dict(_unpacked(file))):
        result(path)


def sequence(path: Path) -> None:
    """The first frames of a folder."""
    source = coframe.open_frames(path.parent, step=1)
    for i in range(min(len(source), 2)):
        frame = source[i]
        assert np.isfinite(frame.points).all()
        assert np.isfinite(frame.weights).all()
        assert len(frame.weights) == len(frame)


def intrinsics(path: Path) -> None:
    """A camera: all numbers finite, those that are divided by positive."""
    camera = images.read_intrinsics(path)
    assert np.isfinite([camera.fx, camera.fy, camera.cx, camera.cy, camera.scale]).all()
    assert min(camera.fx, camera.fy, camera.scale) > 0


def tracker_state(path: Path) -> None:
    """The state of a tracker, as the checkpoint of `track` holds it."""
    tracker = Tracker()
    with state.refusing(path, "the state of a run of track", "begin anew"):
        state.restore(tracker, npz.read(path))
    for pose in coframe.Track.of(tracker).poses:
        check_rigid(pose)


def track_result(path: Path) -> None:
    """The result of `track`."""
    found = coframe.Track.load(path.parent)
    for pose in found.poses:
        check_rigid(pose)
    assert np.isfinite(found.merged()).all()
    assert len(found.record()["lost"]) == found.lost.sum()


def small_run(checkpoint: coframe.Checkpoint, **arguments: Any) -> coframe.Registration:
    """A run through each kind of phase once: what is tried is the checkpoint, not the method."""
    return coframe.register(
        SMALL,
        geometry.identity(2, 2),
        options=QUICK,
        checkpoint=checkpoint,
        recipe=problems.SHORT,
        **arguments,
    )


def resume_checkpoint(path: Path) -> None:
    """A run that goes on from its checkpoint: to the result, or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / path.name
        shutil.copy(path, copy)
        with coframe.Checkpoint(copy, resume=True) as checkpoint:
            found = small_run(checkpoint)
        for pose in found.poses:
            check_rigid(pose)


def about_run(path: Path) -> None:
    """What the report knows of a run."""
    found = run.load(path.parent, (2, 4, 4))
    assert found.start is None or found.start.shape == (2, 4, 4)


def _beside(*files: tuple[str, bytes]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        for name, content in files:
            (folder / name).write_bytes(content)

    return prepare


def _seed(target: str, seed: str, name: str) -> Callable[[Path], None]:
    """A good file beside the case."""

    def prepare(folder: Path) -> None:
        shutil.copy(CORPUS / target / seed, folder / name)

    return prepare


CLOUDS = ("ply", "pcd", "xyz", "csv", "pts", "npy", "npz", "las", "laz", "e57", "bin", "png")
MESHES = ("obj", "stl", "off")
POSES = ("json", "matrix", "aln", "mlp", "conf", "tum", "kitti", "open3d")
TARGETS: dict[str, Target] = {
    **{kind: Target(f"a.{kind}", cloud) for kind in CLOUDS},
    **{kind: Target(f"a.{kind}", mesh) for kind in MESHES},
    **{f"poses-{form}": Target(f"a{pose_files.FORMATS[form] or '.txt'}", poses) for form in POSES},
    "poses-e57": Target("a.e57", poses),
    "trajectory-tum": Target("a.txt", partial(path_of_sensor, trajectory.read_tum)),
    "trajectory-kitti": Target("a.txt", partial(path_of_sensor, trajectory.read_kitti)),
    "result-state": Target("state.npz", result, _seed("result-merged", "seed.ply", "merged.ply")),
    "result-merged": Target("merged.ply", merged, _seed("result-state", "seed.npz", "state.npz")),
    "intrinsics": Target("intrinsics.json", intrinsics),
    "sequence-list": Target("depth.txt", sequence, _seed("png", "seed.png", "a.png")),
    "sequence-camera": Target("intrinsics.json", sequence, _seed("png", "seed.png", "a.png")),
    "sequence-image": Target(
        "a.png", sequence, _beside(("intrinsics.json", json.dumps(vars(CAMERA)).encode()))
    ),
    "track-state": Target("track.npz", tracker_state),
    "track-result": Target("state.npz", track_result),
    "run": Target("run.json", about_run),
    "checkpoint": Target("checkpoint.db", resume_checkpoint),
    "register": Target("problem", problems.register),
}
