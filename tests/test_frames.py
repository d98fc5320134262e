# SPDX-License-Identifier: MIT
"""Depth images become points, folders become frames, and a thread reads ahead."""

import json
import threading
import time

import numpy as np
import pytest
from PIL import Image
from pypcd4 import PointCloud

import coframe
from coframe import InputError
from coframe.io import depth, frames, ply
from coframe.io.depth import Intrinsics
from coframe.io.frames import Frame
from coframe.sequence import sampling

CAMERA = Intrinsics(60.0, 61.0, 31.5, 23.5, 1000.0)


def wall(offset=0.0):
    """The depth image of a slanted wall, z = 1 + 0.2 x + offset, with a hole; in millimetres."""
    _, u = np.mgrid[0:48, 0:64]
    z = (1 + offset) / (1 - 0.2 * (u - CAMERA.cx) / CAMERA.fx)
    z[10:20, 30:40] = 0
    return np.round(1000 * z).astype(np.uint16)


@pytest.mark.parametrize("step", [1, 3])
def test_points_project_back_onto_their_pixels(step):
    image = wall()
    points = depth.points(image, CAMERA, step=step)
    u = points[:, 0] / points[:, 2] * CAMERA.fx + CAMERA.cx
    v = points[:, 1] / points[:, 2] * CAMERA.fy + CAMERA.cy
    pixels = np.rint(np.stack([v, u], 1)).astype(int)
    assert np.abs(pixels - np.stack([v, u], 1)).max() < 1e-9
    assert (pixels % step == 0).all()
    np.testing.assert_array_equal(image[pixels[:, 0], pixels[:, 1]] / 1000, points[:, 2])
    assert len(points) == (image[::step, ::step] > 0).sum()
    np.testing.assert_allclose(points[:, 2], 1 + 0.2 * points[:, 0], atol=1e-3)


def test_pixels_without_depth_are_left_out():
    image = np.array([[np.nan, 0.0], [np.inf, 2.0]])
    np.testing.assert_allclose(
        depth.points(image, Intrinsics(1.0, 1.0, 0.0, 0.0, 1.0)), [[2.0, 2.0, 2.0]]
    )


def test_far_points_count_less():
    weights = frames.by_depth(np.array([[0, 0, 0.5], [0, 0, 1.0], [0, 0, 2.0], [0, 0, 4.0]]))
    assert weights[0] == weights[1] == 1
    assert (np.diff(weights[1:]) < 0).all()


def tum(folder, count=5):
    (folder / "depth").mkdir(parents=True)
    lines = ["# depth maps", "# timestamp filename"]
    for i in range(count):
        name = f"depth/{100 + i / 30:.6f}.png"
        Image.fromarray((5 * wall(0.01 * i)).astype(np.uint16)).save(folder / name)
        lines.append(f"{100 + i / 30:.6f} {name}")
    (folder / "depth.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_a_tum_folder_knows_its_camera_and_times(tmp_path):
    source = frames.open_frames(tum(tmp_path / "rgbd_dataset_freiburg2_wall"), step=2)
    np.testing.assert_allclose(source.times, 100 + np.arange(5) / 30, atol=1e-6)
    got = list(source)
    assert [frame.time for frame in got] == source.times.tolist()
    expected = depth.points((5 * wall()).astype(np.uint16), depth.PRESETS["freiburg2"], step=2)
    np.testing.assert_array_equal(got[0].points, expected)
    np.testing.assert_array_equal(source[0].points, expected)
    assert list(source.prepared(lambda i, frame: (i, len(frame)), 3)) == [
        (i, len(got[i])) for i in (3, 4)
    ]


def test_a_camera_is_found_by_name_by_file_or_by_default(tmp_path):
    folder = tum(tmp_path / "mine", count=1)
    z = (5 * wall()).astype(np.uint16)
    given = frames.open_frames(folder, intrinsics=CAMERA, step=1)[0].points
    kept = depth.points(z, CAMERA)
    np.testing.assert_array_equal(
        given, kept[(kept[:, 2] > frames.NEAR) & (kept[:, 2] < frames.FAR)]
    )
    np.testing.assert_array_equal(
        frames.open_frames(folder, step=1)[0].points, depth.points(z, depth.PRESETS["kinect"])
    )
    named = frames.open_frames(folder, intrinsics="freiburg3", step=1)[0].points
    np.testing.assert_array_equal(named, depth.points(z, depth.PRESETS["freiburg3"]))
    (folder / "intrinsics.json").write_text(
        json.dumps({"fx": 60, "fy": 61, "cx": 31.5, "cy": 23.5, "scale": 5000})
    )
    np.testing.assert_allclose(
        frames.open_frames(folder, step=1)[0].points[:, 2], depth.points(wall(), CAMERA)[:, 2]
    )


def test_depth_images_with_a_camera_beside_them(tmp_path):
    for i in (2, 10, 1):
        Image.fromarray(wall(0.01 * i)).save(tmp_path / f"frame{i}.png")
    with pytest.raises(InputError, match=r"intrinsics\.json"):
        frames.open_frames(tmp_path)
    (tmp_path / "intrinsics.json").write_text(
        json.dumps({"fx": 60, "fy": 61, "cx": 31.5, "cy": 23.5})
    )
    source = frames.open_frames(tmp_path, step=1)
    assert source.names == ("frame1.png", "frame2.png", "frame10.png")
    np.testing.assert_array_equal(source.times, np.arange(3))
    assert not source.timed
    np.testing.assert_array_equal(source[0].points, depth.points(wall(0.01), CAMERA))


def test_a_folder_of_clouds(tmp_path):
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(20 + i, 3)) for i in range(3)]
    for i, cloud in enumerate(clouds):
        ply.write(tmp_path / f"scan{i}.ply", cloud)
    source = frames.open_frames(tmp_path)
    for frame, cloud in zip(source, clouds, strict=True):
        np.testing.assert_array_equal(frame.points, cloud)
        np.testing.assert_array_equal(frame.weights, np.ones(len(cloud)))


@pytest.mark.parametrize("suffix", [".pcd", ".bin", ".ply"])
def test_folders_of_pcd_kitti_and_ply_files_are_tracked(tmp_path, suffix):
    """Files as other programs write them, of a corner that a sensor moves away from by 1 cm a
    frame; natural order.
    """
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 1, (3000, 3)) * np.repeat(
        [[1, 1, 0], [1, 0, 1], [0, 1, 1]], 1000, axis=0
    )
    for i in range(12):
        points = (corner + np.array([0.5 + 0.01 * i, 0.4, 1.0])).astype(np.float32)
        path = tmp_path / f"{i}{suffix}"
        if suffix == ".pcd":
            PointCloud.from_xyz_points(points).save(path)
        elif suffix == ".bin":
            np.column_stack([points, np.ones(len(points), np.float32)]).astype("<f4").tofile(path)
        else:
            ply.write(path, points)
    source = frames.open_frames(tmp_path)
    assert source.names[2] == f"2{suffix}"
    path = coframe.track(source, options=coframe.TrackOptions(points=600, components=100))
    assert not path.lost.any()
    np.testing.assert_allclose(path.poses[-1, :3, 3], [-0.11, 0, 0], atol=0.01)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "absent", "found nothing"),
        (lambda p: p, "found none of them"),
        (lambda p: (p / "depth.txt").write_text("1.0\n") and p, "a time and a file name"),
        (lambda p: (p / "depth.txt").write_text("2.0 a\n1.0 b\n") and p, "rising times"),
        (lambda p: (p / "depth.txt").write_text("") or p, "no line"),
    ],
)
def test_folders_that_hold_no_sequence_are_refused(tmp_path, make, words):
    with pytest.raises(InputError, match=words):
        frames.open_frames(make(tmp_path))


def test_images_that_are_none_are_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    Image.new("RGB", (4, 4)).save(tmp_path / "b.png")
    source = frames.open_frames(tmp_path, intrinsics=CAMERA)
    for i, words in enumerate(
        ["a.png: expected a depth image, found something else", "b.png: .*it has 3 channels"]
    ):
        with pytest.raises(InputError, match=words):
            source[i]
    with pytest.raises(InputError, match=r"expected a \.json, .* or one of freiburg1"):
        frames.open_frames(tmp_path, intrinsics="nonsense")
    (tmp_path / "intrinsics.json").write_text('{"fx": 1}')
    with pytest.raises(InputError, match="expected fx, fy, cx, cy and scale"):
        frames.open_frames(tmp_path)
    (tmp_path / "intrinsics.json").write_text('{"fx": 0, "fy": 1, "cx": 1, "cy": 1}')
    with pytest.raises(InputError, match="no focal lengths"):
        frames.open_frames(tmp_path)


def numbered(count, read=lambda i: None):
    def frame(i):
        read(i)
        return Frame(float(i), np.zeros((1, 3)), np.ones(1), str(i))

    return frames.FrameSource(tuple(map(str, range(count))), np.arange(count, dtype=float), frame)


def test_reading_ahead_is_bounded_ordered_and_ends():
    seen = []
    source = numbered(40, seen.append)
    for done, frame in enumerate(source):
        assert frame.time == done
        time.sleep(0.002)
        assert len(seen) <= done + frames.AHEAD + 3  # in the queue, in the reader's hand, in ours
    assert seen == list(range(40))
    assert not [t for t in threading.enumerate() if t.name == "coframe-frames"]


def test_a_frame_that_cannot_be_read_raises_in_its_place_and_leaving_early_stops_the_thread():
    def fail(i):
        if i == 3:
            raise InputError("frame 3: expected an image, found none")

    got = []
    with pytest.raises(InputError, match="frame 3"):
        got.extend(iter(numbered(6, fail)))
    iterator = iter(numbered(100))
    next(iterator)
    iterator.close()
    assert not [t for t in threading.enumerate() if t.name == "coframe-frames"]


def test_downsampling_by_surface_takes_area_not_pixels():
    """A near wall has 16 times the pixels per area of one four times as far."""
    rng = np.random.default_rng(0)
    near, far = (
        rng.uniform(0, 1, (16000, 3)) * [1, 1, 0],
        rng.uniform(0, 1, (1000, 3)) * [1, 1, 0] + [0, 0, 3],
    )
    points = np.concatenate([near, far])
    frame = Frame(0.0, points, np.ones(len(points)), "")
    some = sampling.sample_by_surface(frame, 800, rng)
    assert 0.9 * 800 < len(some) < 1.1 * 800
    assert 0.3 < (some.points[:, 2] > 1).mean() < 0.7  # of the pixels, it has 6 %
    assert len(np.unique(some.points, axis=0)) == len(some)
    assert sampling.sample_by_surface(frame, len(frame), rng) is frame
    assert len(frames.strided(frame, 50)) == 340
