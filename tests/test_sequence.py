# SPDX-License-Identifier: MIT
"""Sequences: a camera in a simulated room is followed, its losses are said and mended, and runs are continued."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scenes import random_poses

import coframe
from coframe import InputError, TrackOptions, geometry, trajectory
from coframe.depth import Intrinsics
from coframe.estep import Cloud
from coframe.io import ply
from coframe.schedule import seeded
from coframe.sequence import backend, frames, frontend
from coframe.sequence.tracking import Tracker

CAMERA = Intrinsics(130.0, 130.0, 79.5, 59.5, 5000.0)
FAST = TrackOptions(points=500, components=250, every=3, window=6, iterations=3)


def render(pose, noise, rng):
    """The depth image of a room with boxes from a pose that looks along z, in units of 1/5000 m."""
    v, u = np.mgrid[0:120, 0:160]
    d = np.stack([(u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy, np.ones(u.shape)], -1) @ geometry.rotation(pose).T
    o = geometry.translation(pose)
    best = np.full(u.shape, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        for axis, sides in enumerate(([-1.6, 1.7], [-1.2, 0.9], [-1.5, 2.2])):  # the room, seen from inside
            for side in sides:
                s = (side - o[axis]) / d[..., axis]
                best = np.where((s > 0) & (s < best), s, best)
        for low, high in BOXES:
            a, b = (low - o) / d, (high - o) / d
            enter, leave = np.minimum(a, b).max(-1), np.maximum(a, b).min(-1)
            best = np.where((enter > 0) & (enter < leave) & (enter < best), enter, best)
    return np.round(5000 * (best + rng.normal(scale=noise, size=best.shape) * best**2)).astype(np.uint16)


BOXES = [
    (np.array(low), np.array(high))
    for low, high in (
        ([-0.5, 0.3, 1.1], [0.1, 0.9, 1.6]),
        ([0.4, -0.1, 1.4], [0.7, 0.9, 1.7]),
        ([-1.3, 0.1, 1.5], [-0.9, 0.9, 1.9]),
        ([-0.2, -0.9, 1.9], [0.9, -0.5, 2.2]),
        ([1.2, 0.2, 0.6], [1.7, 0.9, 1.2]),
    )
]


def path(count):
    """A hand-held sweep to one side and back."""
    t = np.linspace(0, 2 * np.pi, count)
    turns = np.stack([0.05 * np.sin(2 * t), 0.35 * np.sin(t), 0.03 * np.sin(3 * t)], 1)
    places = np.stack([0.25 * np.sin(t), 0.05 * np.sin(2 * t), 0.1 * (1 - np.cos(t))], 1)
    return geometry.pose(geometry.exp_rotation(turns), places)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A TUM folder of 60 frames, and the true path."""
    folder = tmp_path_factory.mktemp("room")
    (folder / "depth").mkdir()
    rng, truth = np.random.default_rng(0), path(60)
    times, lines = 100 + np.arange(60) / 30, ["# timestamp filename"]
    for stamp, pose in zip(times, truth, strict=True):
        Image.fromarray(render(pose, 0.001, rng)).save(folder / f"depth/{stamp:.6f}.png")
        lines.append(f"{stamp:.6f} depth/{stamp:.6f}.png")
    (folder / "depth.txt").write_text("\n".join(lines) + "\n")
    camera = {"fx": CAMERA.fx, "fy": CAMERA.fy, "cx": CAMERA.cx, "cy": CAMERA.cy, "scale": CAMERA.scale}
    (folder / "intrinsics.json").write_text(json.dumps(camera))
    return folder, trajectory.Trajectory(times, truth)


@pytest.fixture(scope="module")
def source(room):
    return frames.open_frames(room[0], step=2)


@pytest.fixture(scope="module")
def tracked(source):
    return coframe.track(source, options=FAST)


def test_a_camera_is_followed_through_a_room(room, tracked):
    assert not tracked.lost.any()
    assert trajectory.absolute_errors(tracked, room[1]).rmse < 0.01
    np.testing.assert_array_equal(tracked.poses[0], np.eye(4))
    assert [keyframe.index for keyframe in tracked.keyframes] == [0, 1, *range(2, 60, FAST.every)]
    R = geometry.rotation(tracked.poses)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.tile(np.eye(3), (60, 1, 1)), atol=1e-12)
    assert len(tracked.model(300)) <= 301
    assert tracked.merged().shape[1] == 3


def test_the_same_frames_give_the_same_bits_whatever_the_threads(source, tracked):
    again = coframe.track(source, options=replace(FAST, threads=1), on_frame=lambda step: step.index == 15)
    assert len(again) == 16
    part = coframe.track(source, options=FAST, on_frame=lambda step: step.index == 15)
    np.testing.assert_array_equal(again.poses, part.poses)


def test_units_do_not_matter(source, tracked):
    """Ten frames in millimetres, as clouds."""
    clouds = [source[i].points for i in range(10)]
    metres, thousands = (coframe.track(frames.from_arrays([s * c for c in clouds]), options=FAST) for s in (1.0, 1000.0))
    np.testing.assert_allclose(geometry.rotation(thousands.poses), geometry.rotation(metres.poses), atol=1e-6)
    places = geometry.translation(thousands.poses) / 1000
    np.testing.assert_allclose(places, geometry.translation(metres.poses), atol=1e-6)


def edited(source, change):
    return frames.Frames(source.names, source.times, lambda i: change(i, source[i]))


def test_blank_frames_are_lost_and_tracking_recovers(room, source):
    """The camera is back at a place that it has seen; what it has not, it could not know."""
    blank = range(35, 55)

    def change(i, frame):
        return replace(frame, points=frame.points[:0], weights=frame.weights[:0]) if i in blank else frame

    result = coframe.track(edited(source, change), options=FAST)
    assert result.lost[list(blank)].all()
    assert not result.lost[:35].any()
    assert not result.lost[56:].any()
    assert trajectory.absolute_errors(result.found(), room[1]).rmse < 0.02


def test_a_jump_is_found_again(room, source):
    """Thirty frames are missing: the camera comes back to where it was, a third of a turn of its path away."""
    kept = [*range(25), *range(55, 60)]
    part = frames.Frames(tuple(source.names[i] for i in kept), source.times[kept], lambda i: source[kept[i]])
    result = coframe.track(part, options=FAST)
    found = result.found()
    assert trajectory.absolute_errors(found, room[1]).rmse < 0.02
    assert not result.lost[-2:].any()


def test_frames_of_another_place_are_lost(source):
    rng = np.random.default_rng(0)

    def change(i, frame):
        return replace(frame, points=rng.uniform(-1, 1, frame.points.shape) + 9.0) if i in (10, 11) else frame

    result = coframe.track(edited(source, change), options=FAST, on_frame=lambda step: step.index == 14)
    assert result.lost[[10, 11]].all()
    assert not result.lost[13:].any()


def test_a_saved_state_goes_on_to_the_same_bits(tmp_path, source, tracked):
    tracker = Tracker(FAST)
    for i in range(31):
        tracker.add(tracker.prepared(i, source[i]))
    tracker.save(tmp_path / "state.npz")
    other = Tracker.load(tmp_path / "state.npz")
    for frame in source.prepared(other.prepared, 31):
        other.add(frame)
    result = other.result()
    np.testing.assert_array_equal(result.poses, tracked.poses)
    np.testing.assert_array_equal(result.merged(), tracked.merged())
    with pytest.raises(InputError, match="found nothing"):
        Tracker.load(tmp_path / "absent.npz")
    (tmp_path / "bad.npz").write_text("no state")
    with pytest.raises(InputError, match="found something else"):
        Tracker.load(tmp_path / "bad.npz")
    Tracker(FAST).save(tmp_path / "new.npz")  # before the first frame
    assert len(Tracker.load(tmp_path / "new.npz").result()) == 0


@pytest.mark.parametrize("D", [2, 3])
def test_a_step_of_the_front_end_leads_to_the_least_misfit(D):
    """On clusters that cannot be confused, a few steps undo a small motion."""
    rng = np.random.default_rng(D)
    places = rng.uniform(-1, 1, (12, D))
    points = np.repeat(places, 20, axis=0) + rng.normal(scale=0.01, size=(240, D))
    mixture = seeded(points, 1, 12, 1e-6, np.eye(D))
    target = frontend.Target.of(mixture, (0.05, 0.0), 2.0)
    off = random_poses(rng, 1, D, degrees=2.0, shift=0.01)[0]
    placed = frontend.place(target, Cloud.of(geometry.transform(geometry.inverse(off), points)), np.eye(D + 1))
    np.testing.assert_allclose(placed.pose, off, atol=2e-3)
    assert placed.explained > 0.8
    assert placed.steps <= frontend.MOST_STEPS


def test_the_window_takes_recent_key_frames_and_old_ones_that_look_the_same_way():
    poses = [geometry.pose(np.eye(3), np.array([x, 0.0, 0.0])) for x in (0, 1, 2, 3, 4, 3, 2, 1, 0.1)]
    keyframes = [backend.Keyframe(i, Cloud.of(np.eye(3)), pose) for i, pose in enumerate(poses)]
    assert backend.window(keyframes, poses[-1], 4, 1.0).tolist() == [0, 1, 7, 8]
    assert backend.window(keyframes[:3], poses[2], 4, 1.0).tolist() == [0, 1, 2]
    turned = geometry.pose(geometry.exp_rotation(np.array([0.0, np.pi, 0.0])), np.zeros(3))
    assert backend.apart(np.array([poses[0], turned]), poses[0], 1.0)[1] > 1


def test_options_are_checked():
    with pytest.raises(InputError, match="every: expected a whole number"):
        TrackOptions(every=0)


def run(*arguments, cwd):
    command = [sys.executable, "-m", "coframe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


SMALL = ["--points", "300", "--components", "150"]


def test_the_command_writes_its_files(room, tmp_path):
    done = run("track", str(room[0]), "-o", "out", *SMALL, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "60 of 60 frames, 0 lost" in done.stdout
    found = trajectory.read_tum(tmp_path / "out/trajectory.txt")
    assert trajectory.absolute_errors(found, room[1]).rmse < 0.02
    assert {"x", "variance", "weight"} <= set(ply.read(tmp_path / "out/model.ply").dtype.names)
    assert "frame" in ply.read(tmp_path / "out/merged.ply").dtype.names
    assert json.loads((tmp_path / "out/track.json").read_text())["lost"] == []


def test_an_interrupted_run_goes_on_to_the_same_result(room, tmp_path):
    whole = run("track", str(room[0]), "-o", "whole", *SMALL, "-q", cwd=tmp_path)
    assert (whole.returncode, whole.stdout) == (0, "")
    code = "import coframe.cli as cli; cli.track.CHECKPOINT = 1; cli.main()"
    command = [sys.executable, "-c", code, "track", str(room[0]), "-o", "part", *SMALL]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.time() + 60
    while not (tmp_path / "part/state.npz").exists() and time.time() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert 0 < len(trajectory.read_tum(tmp_path / "part/trajectory.txt")) < 60
    done = run("track", str(room[0]), "-o", "part", "--resume", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "part/trajectory.txt").read_bytes() == (tmp_path / "whole/trajectory.txt").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], ["absent", "found nothing"]),
        (["."], ["expected depth.txt, depth images or clouds"]),
        ([".", "--intrinsics", "absent.json"], ["absent.json", "fx"]),
    ],
)
def test_bad_input_is_one_line_and_2(tmp_path, arguments, words):
    done = run("track", *arguments, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words)
    assert not (tmp_path / "out").exists()
