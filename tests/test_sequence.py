# SPDX-License-Identifier: MIT
"""Sequences: a camera in a simulated room is followed, its losses are said and mended, and runs are
continued.
"""

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
from coframe import Checkpoint, InputError, Track, TrackOptions, geometry
from coframe.em import localise, localise_kernels
from coframe.em.estep import Cloud
from coframe.em.recipe import LOCALISE
from coframe.em.seeding import seed
from coframe.evaluate import trajectory_errors
from coframe.io import depth, frames, ply, trajectory
from coframe.io.depth import Intrinsics
from coframe.sequence import keyframes as backend
from coframe.sequence import state
from coframe.sequence.recipe import SEQUENCE
from coframe.sequence.tracker import Tracker

CAMERA = Intrinsics(130.0, 130.0, 79.5, 59.5, 5000.0)
PATHS = ["trajectory.txt", "trajectory.kitti.txt", "trajectory.json"]
FAST = TrackOptions(points=500, components=250, every=3, window=6, iterations=3)


def render(pose, noise, rng):
    """The depth image of a room with boxes from a pose that looks along z, in units of 1/5000 m."""
    v, u = np.mgrid[0:120, 0:160]
    d = (
        np.stack([(u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy, np.ones(u.shape)], -1)
        @ geometry.rotation(pose).T
    )
    o = geometry.translation(pose)
    best = np.full(u.shape, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        # the room, seen from inside
        for axis, sides in enumerate(([-1.6, 1.7], [-1.2, 0.9], [-1.5, 2.2])):
            for side in sides:
                s = (side - o[axis]) / d[..., axis]
                best = np.where((s > 0) & (s < best), s, best)
        for low, high in BOXES:
            a, b = (low - o) / d, (high - o) / d
            enter, leave = np.minimum(a, b).max(-1), np.maximum(a, b).min(-1)
            best = np.where((enter > 0) & (enter < leave) & (enter < best), enter, best)
    return np.round(5000 * (best + rng.normal(scale=noise, size=best.shape) * best**2)).astype(
        np.uint16
    )


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
    camera = {
        "fx": CAMERA.fx,
        "fy": CAMERA.fy,
        "cx": CAMERA.cx,
        "cy": CAMERA.cy,
        "scale": CAMERA.scale,
    }
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
    assert trajectory_errors.absolute_errors(tracked, room[1]).rmse < 0.01
    np.testing.assert_array_equal(tracked.poses[0], np.eye(4))
    made, kept = (
        [0, 1, *range(2, 60, FAST.every)],
        [keyframe.index for keyframe in tracked.keyframes],
    )
    # on the way back, some look where others did
    assert kept == [index for index in made if index in kept]
    assert kept[-FAST.window :] == made[-FAST.window :]
    assert len(kept) > len(made) / 2
    R = geometry.rotation(tracked.poses)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.tile(np.eye(3), (60, 1, 1)), atol=1e-12)
    assert len(tracked.model(300)) <= 301
    assert tracked.merged().shape[1] == 3


def part_of(source, first, last):
    """Some frames of a sequence as one of its own, numbered anew."""
    chosen = range(first, last)
    return frames.FrameSource(
        tuple(source.names[i] for i in chosen), source.times[chosen], lambda i: source[chosen[i]]
    )


@pytest.mark.parametrize("localise_only", [False, True])
def test_frames_are_found_in_a_map(room, source, tracked, tmp_path, localise_only):
    """The way back through the room, in the map of the whole way, from a folder or as a value."""
    tracked.save(tmp_path / "map")
    given = tmp_path / "map" if localise_only else tracked
    found = coframe.track(
        part_of(source, 25, 60), options=FAST, map=given, localise_only=localise_only
    )
    assert found.lost.sum() == 0
    # Poses are in the frame of the map, and nothing aligns them with the truth here.
    first = geometry.translation(room[1].poses[0])
    R = geometry.rotation(room[1].poses[0])
    moved = geometry.translation(found.poses) @ R.T + first
    errors = np.linalg.norm(moved - geometry.translation(room[1].poses[25:]), axis=1)
    assert np.sqrt(np.mean(errors**2)) < 0.02
    of_map = [keyframe for keyframe in found.keyframes if keyframe.index < 0]
    new = [keyframe for keyframe in found.keyframes if keyframe.index >= 0]
    assert [len(k.cloud) for k in of_map] == [len(k.cloud) for k in tracked.keyframes]
    if localise_only:
        assert not new
        for one, other in zip(of_map, tracked.keyframes, strict=True):
            np.testing.assert_array_equal(one.pose, other.pose)
    else:
        assert new
    found.save(tmp_path / "out")
    again = Track.load(tmp_path / "out")
    assert [k.index for k in again.keyframes] == [k.index for k in found.keyframes]


def test_frames_that_are_not_in_the_map_are_lost(source, tracked):
    rng = np.random.default_rng(3)
    elsewhere = [rng.normal(size=(800, 3)) * [3.0, 0.1, 2.0] for _ in range(12)]
    found = coframe.track(elsewhere, options=FAST, map=tracked)
    assert found.lost.all()


def test_a_map_that_cannot_be_used_is_refused(source, tracked, tmp_path):
    with pytest.raises(InputError, match="map: expected a track with at least 3 key frames"):
        coframe.track(source, map=replace(tracked, keyframes=tracked.keyframes[:2]))
    with pytest.raises(InputError, match="localise_only: expected a map"):
        coframe.track(source, localise_only=True)
    with pytest.raises(InputError, match="expected a result of track"):
        coframe.track(source, map=tmp_path)


def test_the_same_frames_give_the_same_bits_whatever_the_threads(source, tracked):
    again = coframe.track(
        source, options=replace(FAST, threads=1), on_frame=lambda step: step.index == 15
    )
    assert len(again) == 16
    part = coframe.track(source, options=FAST, on_frame=lambda step: step.index == 15)
    np.testing.assert_array_equal(again.poses, part.poses)


def test_units_do_not_matter(source, tracked):
    """Ten frames in millimetres, as clouds."""
    clouds = [source[i].points for i in range(10)]
    metres, thousands = (
        coframe.track(frames.from_arrays([s * c for c in clouds]), options=FAST)
        for s in (1.0, 1000.0)
    )
    np.testing.assert_allclose(
        geometry.rotation(thousands.poses), geometry.rotation(metres.poses), atol=1e-6
    )
    places = geometry.translation(thousands.poses) / 1000
    np.testing.assert_allclose(places, geometry.translation(metres.poses), atol=1e-6)


def test_points_with_times_are_corrected_for_the_motion_of_the_sensor():
    """A sensor that moves by 20 cm and turns by 4 degrees while it measures one frame."""
    rng = np.random.default_rng(0)
    walls = rng.uniform(-1, 1, (3000, 3)) * [4, 3, 2]
    sides = np.repeat(np.arange(3), 1000)
    walls[np.arange(3000), sides] = np.array([4, 3, 2])[sides] * rng.choice([-1, 1], 3000)
    step = geometry.exp(np.array([0, 0, np.radians(4), 0.2, 0, 0]))
    truth = [geometry.exp(np.array([0, 0, 0, -1.0, 0, 0]))]
    for _ in range(9):
        truth.append(truth[-1] @ step)
    shares = np.linspace(-0.5, 0.5, 3000)
    within = geometry.exp(shares[:, None] * geometry.log(step))

    def frame(i, known):
        seen = geometry.inverse(truth[i] @ within)
        points = np.einsum("nij,nj->ni", seen[:, :3, :3], walls) + seen[:, :3, 3]
        offsets = 0.1 * shares if known else None
        return frames.Frame(0.1 * i, points, np.ones(3000), f"{i}", offsets)

    def errors(known):
        """Of the last frame's place, and how far off the walls key frames are at true poses."""
        names = tuple(map(str, range(10)))
        source = frames.FrameSource(names, 0.1 * np.arange(10), lambda i: frame(i, known))
        found = coframe.track(source, options=replace(FAST, points=1000))
        motion = geometry.inverse(found.poses[3]) @ found.poses[9]
        true = geometry.inverse(truth[3]) @ truth[9]
        place = np.linalg.norm(geometry.translation(geometry.inverse(true) @ motion))
        # The first frames come before a velocity is known.
        late = [each for each in found.keyframes if each.index > 2]
        points = [geometry.transform(truth[each.index], each.cloud.points) for each in late]
        off = np.abs(np.abs(np.concatenate(points)) - [4, 3, 2]).min(1)
        return place, np.sqrt((off**2).mean())

    place, off = errors(True)
    assert place < 0.02
    assert off < 0.5 * errors(False)[1]


def along_a_tunnel(x, rng, *, ends):
    """What a lidar at x sees of a straight tunnel, or of a hall of its size with walls at its
    ends.
    """
    rays = rng.normal(size=(4000, 3))
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    far = np.full(4000, np.inf)
    walls = [(1, 1.8), (1, -2.2), (2, 1.4), (2, -1.6)]
    walls += [(0, -4 - x), (0, 6 - x)] if ends else []
    for axis, side in walls:
        hit = side / rays[:, axis]
        far = np.where((hit > 0) & (hit < far), hit, far)
    seen = far < 15
    return rays[seen] * far[seen][:, None] + rng.normal(scale=0.005, size=(int(seen.sum()), 3))


@pytest.mark.parametrize("ends", [False, True], ids=["tunnel", "hall"])
def test_a_direction_that_nothing_determines_is_said(tmp_path, ends):
    rng = np.random.default_rng(1)
    clouds = [along_a_tunnel(0.05 * i, rng, ends=ends) for i in range(18)]
    result = coframe.track(clouds, options=TrackOptions(points=1000, components=300))
    if ends:
        assert result.degenerate == ()
        np.testing.assert_allclose(result.poses[-1, :3, 3], [0.85, 0, 0], atol=0.01)
        return
    (stretch,) = result.degenerate
    assert stretch.first <= 3
    assert stretch.last >= 14
    assert abs(stretch.direction[0]) > 0.99
    assert stretch.ratio < 0.05
    result.save(tmp_path)
    (loaded,) = Track.load(tmp_path).degenerate
    np.testing.assert_array_equal(loaded.direction, stretch.direction)
    assert json.loads((tmp_path / "track.json").read_text())["degenerate"][0]["first"] <= 3
    page = coframe.report.track.html(result)
    assert f"undetermined: frames {stretch.first} to" in page


def edited(source, change):
    return frames.FrameSource(source.names, source.times, lambda i: change(i, source[i]))


def test_blank_frames_are_lost_and_tracking_recovers(room, source):
    """The camera is back at a place that it has seen; what it has not, it could not know."""
    blank = range(10, 30)

    def change(i, frame):
        return (
            replace(frame, points=frame.points[:0], weights=frame.weights[:0])
            if i in blank
            else frame
        )

    result = coframe.track(edited(source, change), options=FAST)
    assert result.lost[list(blank)].all()
    assert not result.lost[:10].any()
    assert not result.lost[30:].any()
    assert trajectory_errors.absolute_errors(result.found(), room[1]).rmse < 0.02


def test_a_jump_is_found_again(room, source):
    """Thirty frames are missing.

    What the camera sees at first it has hardly seen before; then it comes back to its start.
    """
    kept = [*range(20), *range(50, 60), *range(1, 9)]
    times = np.array([*range(20), *range(50, 68)]) / 30
    part = frames.FrameSource(
        tuple(source.names[i] for i in kept),
        times,
        lambda i: replace(source[kept[i]], time=times[i]),
    )
    said = []
    result = coframe.track(part, options=FAST, on_frame=lambda step: said.append(step.lost))
    assert not any(said[:20])
    assert said[20]
    assert not said[-1]
    assert not result.lost.any()  # what comes before the camera was found is known afterwards
    truth = trajectory.Trajectory(times, room[1].poses[kept])
    assert trajectory_errors.absolute_errors(result, truth).rmse < 0.02


def test_frames_of_another_place_are_lost(source):
    rng = np.random.default_rng(0)

    def change(i, frame):
        return (
            replace(frame, points=rng.uniform(-1, 1, frame.points.shape) + 9.0)
            if i in (10, 11)
            else frame
        )

    result = coframe.track(
        edited(source, change), options=FAST, on_frame=lambda step: step.index == 17
    )
    assert np.flatnonzero(result.lost).tolist() == [10, 11]


@pytest.mark.slow
def test_another_room_is_a_segment_of_its_own_and_lost(room, source):
    """While the camera looks at what it has never seen, however well that hangs together, it is
    lost; then found again.
    """
    rng, away = (
        np.random.default_rng(1),
        path(60) @ geometry.pose(geometry.exp_rotation(np.array([0.0, np.pi, 0.0])), np.zeros(3)),
    )

    def change(i, frame):
        if not 20 <= i < 34:
            return frame
        seen = depth.points(render(away[i], 0.001, rng), CAMERA, step=2)
        return replace(frame, points=seen, weights=np.ones(len(seen)))

    said = []
    result = coframe.track(
        edited(source, change), options=FAST, on_frame=lambda step: said.append(step.lost)
    )
    assert result.lost[20:34].all()
    assert not result.lost[:20].any()
    assert not result.lost[34:].any()
    assert all(said[20:36])  # what is known later was not known then
    assert not any(said[-10:])
    assert trajectory_errors.absolute_errors(result.found(), room[1]).rmse < 0.02


@pytest.mark.slow
def test_a_wrong_merge_of_segments_is_undone(source):
    tracker = Tracker(FAST)
    for i in range(24):
        tracker.add(tracker.prepare(i, source[i]))
    old = [keyframe.pose for keyframe in tracker.keyframes]
    tracker.target = None  # the camera is lost,
    for i in range(24, 27):
        assert tracker.add(tracker.prepare(i, source[i])).lost
    assert tracker.segment == 1
    # and believed to be where it is not
    tracker._merge_into(0, geometry.exp(np.array([0.0, 0.7, 0.0, 0.0, 0.0, -0.6])))
    assert tracker.main == tracker.segment
    lost = [tracker.add(tracker.prepare(i, source[i])).lost for i in range(27, 36)]
    assert any(lost)
    np.testing.assert_array_equal(
        [keyframe.pose for keyframe in tracker.keyframes[: len(old)]], old
    )


@pytest.mark.slow
def test_a_jump_in_a_real_sequence_is_found_in_its_right_place(data):
    """Thirty frames are missing; half of what is in view after them was never seen before."""
    tum = data("tum_freiburg1_desk")
    whole = frames.open_frames(tum, intrinsics="freiburg1")
    kept = [*range(100, 150), *range(180, 205)]
    part = frames.FrameSource(
        tuple(whole.names[i] for i in kept), whole.times[kept], lambda i: whole[kept[i]]
    )
    said = []
    result = coframe.track(part, on_frame=lambda step: said.append(step.lost))
    assert said[50]
    assert not said[-1]
    truth = trajectory.read_tum(tum / "groundtruth.txt")
    assert result.lost.sum() < 10
    assert trajectory_errors.absolute_errors(result.found(), truth).rmse < 0.03


def restored(tracker):
    """Another tracker in the state that this one is in."""
    other = Tracker(FAST)
    state.restore(other, state.pack(tracker))
    return other


def test_a_state_with_lost_frames_goes_on_to_the_same_bits(source):
    """Frames that show nothing have no pose and no key frame, in memory and in the checkpoint."""
    blank = edited(
        source,
        lambda i, frame: (
            replace(frame, points=frame.points[:0], weights=frame.weights[:0])
            if i % 4 == 3
            else frame
        ),
    )
    one = Tracker(FAST)
    for i in range(12):
        one.add(one.prepare(i, blank[i]))
    other = restored(one)
    assert other.base == one.base
    assert -1 in one.base
    for tracker in (one, other):
        tracker.add(tracker.prepare(12, blank[12]))
    np.testing.assert_array_equal(Track.of(other).poses, Track.of(one).poses)
    np.testing.assert_array_equal(Track.of(other).lost, np.arange(13) % 4 == 3)
    assert len(Track.of(restored(Tracker(FAST)))) == 0  # before the first frame


def test_a_state_with_a_segment_and_a_merge_is_restored(source):
    tracker = Tracker(FAST)
    for i in range(9):
        tracker.add(tracker.prepare(i, source[i]))
    tracker.target = None
    for i in range(9, 13):
        tracker.add(tracker.prepare(i, source[i]))
    tracker.proposal = np.eye(4)
    other = restored(tracker)
    np.testing.assert_array_equal(other.proposal, np.eye(4))
    tracker._merge_into(0, np.eye(4))
    other = restored(tracker)
    assert (other.merge.first, other.merge.count) == (tracker.merge.first, tracker.merge.count)
    assert [k.segment for k in other.keyframes] == [k.segment for k in tracker.keyframes]
    np.testing.assert_array_equal(other.merge.poses, tracker.merge.poses)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("segments", lambda a: a + 99, "a segment that the sequence cannot have"),
        ("base", lambda a: a + 99, "a key frame that does not exist"),
        ("base", lambda a: a.astype(float), "not whole"),
        ("index", lambda a: a - 2, "a frame that does not exist"),  # -1: one of an earlier track
        ("order", lambda a: 0 * a, "no permutation"),
        ("sizes", lambda a: a + 1, "do not add up"),
        ("relative", lambda a: 2 * a, "not rotations and translations"),
        ("weights", lambda a: 0 * a, "sum to 0"),
        ("covariances", lambda a: -a, "no positive variance"),
        ("numbers", lambda a: 0 * a, "no unit of length"),
        ("merge", lambda a: a + 99, "key frames that do not exist"),
        ("times", lambda a: a[1:], "not finite numbers of shape"),
        ("recent_index", lambda a: 0 * a - 1, "has no pose"),
    ],
)
def test_a_state_that_is_inconsistent_is_refused_in_words(source, name, change, words):
    tracker = Tracker(FAST)
    for i in range(4):
        tracker.add(tracker.prepare(i, source[i]))
    arrays = state.pack(tracker)
    arrays |= {"merge": np.array([1, 2]), "merge_poses": np.tile(np.eye(4), (2, 1, 1))}
    state.restore(Tracker(FAST), arrays)
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=words):
        state.restore(Tracker(FAST), arrays)


def stop_at(index):
    def on_frame(step):
        if step.index == index:
            raise KeyboardInterrupt

    return on_frame


def interrupted(source, path, index=31, options=FAST):
    with pytest.raises(KeyboardInterrupt), Checkpoint(path, every=0.0) as checkpoint:
        coframe.track(source, options=options, checkpoint=checkpoint, on_frame=stop_at(index))


def test_an_interrupted_track_goes_on_to_the_same_bits(tmp_path, source, tracked):
    path = tmp_path / "checkpoint.db"
    interrupted(source, path)
    seen = []
    with Checkpoint(path, resume=True) as checkpoint:
        assert checkpoint.resumed
        options = replace(FAST, threads=1)  # which may change
        result = coframe.track(
            source, options=options, checkpoint=checkpoint, on_frame=lambda s: seen.append(s.index)
        )
    assert seen == list(range(30, 60))
    assert not path.exists()
    np.testing.assert_array_equal(result.poses, tracked.poses)
    np.testing.assert_array_equal(result.merged(), tracked.merged())
    np.testing.assert_array_equal(result.mixture.means, tracked.mixture.means)


def test_a_checkpoint_of_another_sequence_or_of_other_options_is_refused(tmp_path, source):
    path = tmp_path / "checkpoint.db"
    interrupted(source, path, 11)

    def resumed(source, options=FAST):
        with Checkpoint(path, resume=True) as checkpoint:
            coframe.track(source, options=options, checkpoint=checkpoint)

    shorter = frames.FrameSource(source.names[:40], source.times[:40], source.read)
    later = frames.FrameSource(source.names, source.times + 1, source.read)
    renamed = frames.FrameSource(("other", *source.names[1:]), source.times, source.read)
    moved = edited(source, lambda i, frame: replace(frame, points=frame.points + 1))
    for given, words in [
        (shorter, "frames: expected 60, as in the interrupted run in .*, found 40"),
        (later, "names and times: expected "),
        (renamed, r"clouds: expected 100\.000000\.png, .* found other"),
        (moved, r"100\.000000\.png: expected the same points as in the interrupted run"),
    ]:
        with pytest.raises(InputError, match=words):
            resumed(given)
    with pytest.raises(InputError, match=r"every: expected 3, as in the interrupted run.*found 4"):
        resumed(source, replace(FAST, every=4))


def test_a_checkpoint_with_an_inconsistent_state_is_refused(tmp_path, source):
    path = tmp_path / "checkpoint.db"
    interrupted(source, path, 11)
    refused = pytest.raises(InputError, match=r"found something else.*begin anew without --resume")
    with refused, Checkpoint(path, resume=True) as checkpoint:
        checkpoint.keep("tracker", {"times": np.zeros(3)})
        coframe.track(source, options=FAST, checkpoint=checkpoint)


def test_a_track_is_saved_and_loaded_to_the_bit(tmp_path, tracked):
    assert tracked.save(tmp_path / "out") == [*FILES, "state.npz", "manifest.json"]
    again = Track.load(tmp_path / "out")
    for name in ("times", "poses", "lost", "explained"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tracked, name))
    for name in ("means", "covariances", "weights", "outlier_density", "visibility"):
        np.testing.assert_array_equal(getattr(again.mixture, name), getattr(tracked.mixture, name))
    assert (again.names, again.options) == (tracked.names, tracked.options)
    assert again.record() == json.loads((tmp_path / "out/track.json").read_text())
    np.testing.assert_array_equal(again.merged(), tracked.merged())
    for one, other in zip(again.keyframes, tracked.keyframes, strict=True):
        assert (one.index, one.segment) == (other.index, other.segment)
        np.testing.assert_array_equal(one.pose, other.pose)
        np.testing.assert_array_equal(one.cloud.rows, other.cloud.rows)
        np.testing.assert_array_equal(one.cloud.order, other.cloud.order)
    with pytest.raises(InputError, match=r"found no state\.npz in it"):
        Track.load(tmp_path)
    (tmp_path / "state.npz").write_text("no state")
    with pytest.raises(InputError, match="expected a result of track, found something else"):
        Track.load(tmp_path)


def test_a_track_that_found_nothing_leaves_no_clouds_of_another_behind(tmp_path, tracked):
    tracked.save(tmp_path)
    nothing = coframe.track([np.zeros((3, 3))] * 2, options=FAST)
    written = [*PATHS, "track.json", "state.npz", "manifest.json"]
    assert nothing.save(tmp_path) == written
    assert not (tmp_path / "merged.ply").exists()
    assert Track.load(tmp_path).lost.all()


def test_tracks_and_trajectories_are_shown_in_three_lines_and_compared_as_things(room, tracked):
    assert repr(tracked).startswith("Track of 60 frames, 0 lost\n")
    assert repr(room[1]).startswith("Trajectory of 60 poses\n  times: 100.000 to 101.967 s\n")
    for each in (tracked, room[1], trajectory.Trajectory(np.zeros(0), np.zeros((0, 4, 4)))):
        assert len(repr(each).splitlines()) == 3
        assert (each == replace(each)) is False


def test_track_takes_folders_arrays_generators_and_frames(room, source):
    clouds = [source[i].points for i in range(4)]
    given = [clouds, iter(clouds), (cloud for cloud in clouds), frames.from_arrays(clouds)]
    paths = [coframe.track(each, options=FAST) for each in given]
    for path in paths:
        np.testing.assert_array_equal(path.poses, paths[0].poses)
    assert paths[0].names == tuple(f"frame {i}" for i in range(4))
    stop = coframe.track(room[0], options=FAST, on_frame=lambda step: step.index == 2)
    other = coframe.track(
        frames.open_frames(room[0], intrinsics=room[0] / "intrinsics.json"),
        options=FAST,
        on_frame=lambda step: step.index == 2,
    )
    np.testing.assert_array_equal(stop.poses, other.poses)
    assert (len(stop), len(stop.names)) == (3, 60)


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("absent", {}, "absent: expected a folder with a sequence or a ROS bag, found nothing"),
        (np.zeros((300, 3)), {}, r"frame 0: .* shape \(N, 3\), found shape \(3,\)"),
        ([{"a": 1}], {}, "frame 0: expected points in space.*found dict"),
        ([], {"intrinsics": "kinect"}, "intrinsics: expected a folder of depth images"),
    ],
)
def test_what_is_no_sequence_is_refused_in_one_sentence(source, given, words):
    with pytest.raises(InputError, match=words):
        coframe.track(source, **given)


def test_wrong_types_are_refused_in_one_sentence():
    """In a process of its own, in which no types are checked but ours."""
    code = """
import coframe
for source, given in (
    (3, {}),
    (None, {}),
    ([], {"options": {"every": 3}}),
    ([], {"map": 3}),
):
    try:
        coframe.track(source, **given)
    except coframe.InputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = "source: expected a folder, frames from open_frames or (N, 3) arrays, found"
    assert done.stdout.splitlines() == [
        f"{expected} int",
        f"{expected} NoneType",
        "options: expected TrackOptions, found dict",
        "map: expected a Track of coframe, found int",
    ]


def test_another_recipe_is_a_value(source):
    """Where a frame must be explained twice as well as is usual, all but the first are lost."""
    recipe = replace(SEQUENCE, min_explained=2.0)
    clouds = [source[i].points for i in range(2)]
    assert coframe.track(clouds, options=FAST, recipe=recipe).lost.tolist() == [False, True]


@pytest.mark.parametrize("D", [2, 3])
def test_a_step_of_the_front_end_leads_to_the_least_misfit(D):
    """On clusters that cannot be confused, a few steps undo a small motion."""
    rng = np.random.default_rng(D)
    places = rng.uniform(-1, 1, (12, D))
    points = np.repeat(places, 20, axis=0) + rng.normal(scale=0.01, size=(240, D))
    mixture = seed(points, 1, 12, 1e-6, np.eye(D))
    target = localise.Pyramid.of(mixture, (0.05, 0.0), 2.0)
    off = random_poses(rng, 1, D, degrees=2.0, shift=0.01)[0]
    placed = localise.localise(
        target, Cloud.of(geometry.transform(geometry.inverse(off), points)), np.eye(D + 1)
    )
    np.testing.assert_allclose(placed.pose, off, atol=2e-3)
    assert placed.explained > 0.8
    assert placed.steps <= LOCALISE.max_steps


def test_the_compiled_step_of_the_front_end_is_the_step_of_the_formula():
    """H = sum m J^T P J, g = sum over points of (x cross P y, P y), x = mean + y; and a pose moved
    by the twist as `geometry.exp` moves it.
    """
    rng = np.random.default_rng(5)
    K = 7
    means = rng.normal(size=(K, 3))
    half = rng.normal(size=(K, 3, 3))
    precisions = half @ np.swapaxes(half, 1, 2)
    offsets = rng.normal(scale=0.1, size=(K, 20, 3))  # of points with posterior 1
    second = np.einsum("kni,knj->kij", offsets, offsets)
    first = offsets.sum(1)
    upper = second[:, *np.triu_indices(3)]
    sums = np.concatenate([np.full((K, 1), 20.0), first, upper], 1)
    H, g = np.zeros((6, 6)), np.zeros(6)
    for k in range(K):
        J = geometry.levers((means[k] + offsets[k].mean(0))[None])[0]
        H += 20 * J.T @ precisions[k] @ J
        for y in offsets[k]:
            g += geometry.levers((means[k] + y)[None])[0].T @ precisions[k] @ y
    columns = np.ascontiguousarray(means.T)
    step = localise_kernels.newton(sums, columns, precisions, localise.MIN_MASS, 0.0)
    np.testing.assert_allclose(step, -np.linalg.solve(H, g), rtol=1e-9)

    pose = random_poses(rng, 1, 3, degrees=90.0, shift=1.0)[0]
    R, t = geometry.rotation(pose).copy(), geometry.translation(pose).copy()
    lengths = localise_kernels.move(R, t, step)
    np.testing.assert_allclose(geometry.pose(R, t), geometry.exp(step) @ pose, atol=1e-14)
    np.testing.assert_allclose(lengths, [np.linalg.norm(step[:3]), np.linalg.norm(step[3:])])

    # Points on one line, the x axis, do not say how they are turned about it: no step that way.
    line = np.zeros((3, K))
    line[0] = np.arange(K)
    sums[:, 1:] = 0
    sums[:, 1] = 20 * 0.5
    step = localise_kernels.newton(sums, line, np.tile(np.eye(3), (K, 1, 1)), 0.0, 0.0)
    np.testing.assert_allclose(step, [0, 0, 0, -0.5, 0, 0], atol=1e-12)


def test_the_window_takes_recent_key_frames_and_old_ones_that_look_the_same_way():
    poses = [
        geometry.pose(np.eye(3), np.array([x, 0.0, 0.0])) for x in (0, 1, 2, 3, 4, 3, 2, 1, 0.1)
    ]
    keyframes = [backend.Keyframe(i, Cloud.of(np.eye(3)), pose) for i, pose in enumerate(poses)]
    assert backend.window(keyframes, np.arange(9), poses[-1], 4, 1.0) == [0, 1, 7, 8]
    assert backend.window(keyframes, np.arange(3), poses[2], 4, 1.0) == [0, 1, 2]
    turned = geometry.pose(geometry.exp_rotation(np.array([0.0, np.pi, 0.0])), np.zeros(3))
    assert backend.viewpoint_distance(np.array([poses[0], turned]), poses[0], 1.0)[1] > 0.9


def test_a_sensor_that_stays_leaves_few_key_frames(source):
    """The same ten frames again and again: memory follows what was seen, not the time."""
    order = [*range(10), *range(9, -1, -1)] * 4
    times = np.arange(len(order)) / 30
    swing = frames.FrameSource(
        tuple(map(str, order)), times, lambda i: replace(source[order[i]], time=times[i])
    )
    options = replace(FAST, every=2, window=4, final=0)
    held = []
    result = coframe.track(
        swing, options=options, on_frame=lambda step: held.append(step.keyframes)
    )
    assert not result.lost.any()
    assert len(result.keyframes) < 16  # of 41
    assert max(held[40:]) <= held[39] + 1
    np.testing.assert_allclose(result.poses[-1], result.poses[0], atol=0.03)


def test_a_frame_is_localised_again_once_the_model_has_seen_what_follows(source):
    """When it came, its model ended with the key frame before it."""
    tracker = Tracker(FAST)
    for i in range(11):
        tracker.add(tracker.prepare(i, source[i]))
    waiting = list(tracker.recent)
    assert [frame.index for frame in waiting] == [9, 10]
    tracker.add(tracker.prepare(11, source[11]))
    assert tracker.keyframes[-1].index == 11
    assert tracker.recent == []
    finest = replace(tracker.target, levels=tracker.target.levels[-1:])
    for frame in waiting:
        pose = tracker.pose(frame.index)
        found = localise.localise(finest, frame.cloud, pose).pose
        assert np.linalg.norm((found - pose)[:3, 3]) < LOCALISE.step_tolerance * tracker.unit


@pytest.mark.slow
def test_the_paper_s_scheme_follows_a_slow_camera(room, source):
    """The first eleven frames of the sweep, in five groups, and a joint registration of three
    blocks in the end.
    """
    options = coframe.PublishedOptions(
        downsampling=6, window=4, front_components=400, back_components=300, refinements=15
    )
    done = []
    part = frames.FrameSource(source.names[:11], source.times[:11], source.read)
    path = coframe.track_published(
        part, options=replace(options, block=4), on_group=lambda *step: done.append(step)
    )
    assert done[-1] == (5, 5)
    rest = trajectory.Trajectory(path.times, np.tile(np.eye(4), (11, 1, 1)))
    errors, unmoved = (
        trajectory_errors.absolute_errors(each, room[1]).rmse for each in (path, rest)
    )
    assert errors < 0.5 * unmoved
    np.testing.assert_allclose(path.poses[0], np.eye(4), atol=1e-12)
    with pytest.raises(InputError, match="group: expected a whole number of at least 2"):
        coframe.PublishedOptions(group=1)


def test_options_are_checked():
    with pytest.raises(InputError, match="every: expected a whole number"):
        TrackOptions(every=0)
    for wrong in ({"group": 1}, {"seed": -1}, {"threads": 0}, {"refinements": -1}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected a whole number"):
            coframe.PublishedOptions(**wrong)


def test_frames_that_show_nothing_or_lie_in_the_plane():
    nothing = coframe.track(frames.from_arrays([np.zeros((3, 3))] * 2), options=FAST)
    assert nothing.lost.all()
    assert nothing.merged().shape == (0, 3)
    with pytest.raises(InputError, match="found none"):
        nothing.model()
    with pytest.raises(
        InputError,
        match=r"frame 0: expected points in space, shape \(N, 3\), found shape \(300, 2\)",
    ):
        coframe.track(frames.from_arrays([np.random.default_rng(0).normal(size=(300, 2))]))


def run(*arguments, cwd):
    command = [sys.executable, "-m", "coframe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


FILES = [*PATHS, "model.ply", "merged.ply", "track.json"]
SMALL = ["--points", "300", "--components", "150"]


def test_the_command_writes_its_files(room, tmp_path):
    done = run("track", str(room[0]), "-o", "out", *SMALL, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "60 of 60 frames, 0 lost" in done.stdout
    found = trajectory.read_tum(tmp_path / "out/trajectory.txt")
    assert trajectory_errors.absolute_errors(found, room[1]).rmse < 0.02
    for name in PATHS[1:]:
        other = trajectory.read(tmp_path / "out" / name)
        np.testing.assert_allclose(other.poses, found.poses, atol=1e-8)
    np.testing.assert_allclose(other.times, found.times, atol=1e-6)
    assert {"x", "variance", "weight"} <= set(ply.read(tmp_path / "out/model.ply").dtype.names)
    assert "frame" in ply.read(tmp_path / "out/merged.ply").dtype.names
    told = json.loads((tmp_path / "out/track.json").read_text())
    assert told["lost"] == []
    page = (tmp_path / "out/report.html").read_text()
    assert "report.html" in done.stdout
    assert "No frame of 60 was lost." in page
    assert not (tmp_path / "out/checkpoint.db").exists()
    again = ["track", str(room[0]), "-o", "out", "--resume", "--json", "--no-report", *SMALL]
    shown = run(*again, cwd=tmp_path)
    assert shown.stderr == "coframe: no interrupted run in out; starting a new one\n"
    files = [*FILES, "state.npz", "manifest.json"]
    assert json.loads(shown.stdout) == {**told, "folder": "out", "files": files}
    assert not (tmp_path / "out/report.html").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_goes_on_to_the_same_result(room, tmp_path, number, code):
    whole = run("track", str(room[0]), "-o", "whole", *SMALL, "-q", "--no-report", cwd=tmp_path)
    assert (whole.returncode, whole.stdout) == (0, "")
    arguments = ["track", str(room[0]), "-o", "part", *SMALL, "--no-report"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coframe", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.time() + 60
    while not (tmp_path / "part/checkpoint.db").exists() and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # for the handlers of signals
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors.startswith("coframe: interrupted; go on with: coframe track ")
    assert errors.endswith(" --resume\n")
    assert (tmp_path / "part/checkpoint.db").exists()
    other = run(*arguments, "--resume", "--seed", "1", cwd=tmp_path)
    assert other.returncode == 2
    assert "seed: expected 0, as in the interrupted run in part, found 1" in other.stderr
    done = run(*arguments, "--resume", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("trajectory.txt", "merged.ply", "model.ply"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], ["absent", "found nothing"]),
        (["empty"], ["expected depth.txt, depth images or clouds"]),
        (["room", "--intrinsics", "absent.json"], ["absent.json", "expected a file"]),
    ],
)
def test_bad_input_is_one_line_and_2(room, tmp_path, arguments, words):
    (tmp_path / "room").symlink_to(room[0])
    (tmp_path / "empty").mkdir()
    done = run("track", *arguments, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words)
    assert not (tmp_path / "out").exists()
