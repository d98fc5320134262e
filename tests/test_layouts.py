# SPDX-License-Identifier: MIT
"""Sequences as data sets keep them: where frames, cameras and times are, and what is skipped."""

import json
import struct

import numpy as np
import pytest
from PIL import Image

import coframe
from coframe import InputError
from coframe.io import camera, depth, frames, layouts, lidar, ply
from coframe.io.depth import Intrinsics

CAMERA = Intrinsics(60.0, 61.0, 31.5, 23.5, 1000.0)
NUMBERS = {"fx": 60, "fy": 61, "cx": 31.5, "cy": 23.5}


def wall(i=0):
    """A depth image in millimetres."""
    v, u = np.mgrid[0:48, 0:64]
    return (1000 + 5 * u + 3 * v + i).astype(np.uint16)


def save_images(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        Image.fromarray(wall(i)).save(folder / name)


def save_colours(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.new("RGB", (8, 6)).save(folder / name)


def scans(folder, names, columns=("x", "y", "z", "intensity"), count=50):
    """Rows of floats as KITTI writes them; returns the coordinates."""
    folder.mkdir(parents=True, exist_ok=True)
    angle = np.linspace(0, 6, count)
    points = np.stack([9 * np.cos(angle), 9 * np.sin(angle), 0.1 * angle], 1).astype("<f4")
    for name in names:
        rows = np.zeros((count, len(columns)), "<f4")
        rows[:, :3] = points
        rows[:, 3:] = np.arange(count)[:, None] % 7
        rows.tofile(folder / name)
    return points


def test_depth_images_below_the_given_folder_beside_colour(tmp_path):
    """scene/depth/*.png and scene/rgb/*.png, the camera in the scene."""
    save_images(tmp_path / "depth", ["0.png", "1.png", "10.png", "2.png"])
    save_colours(tmp_path / "rgb", ["0.png", "1.png"])
    (tmp_path / "intrinsics.json").write_text(json.dumps(NUMBERS))
    source = frames.open_frames(tmp_path, step=1)
    assert source.names == ("0.png", "1.png", "2.png", "10.png")
    assert not source.timed
    np.testing.assert_array_equal(source[0].points, depth.points(wall(), CAMERA))


def test_seven_scenes_and_replica_name_their_depth_images(tmp_path):
    save_images(tmp_path, ["frame-000000.depth.png", "frame-000001.depth.png"])
    save_colours(tmp_path, ["frame-000000.color.png", "frame-000001.color.png"])
    (tmp_path / "frame-000000.pose.txt").write_text("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n")
    assert frames.open_frames(tmp_path, intrinsics=CAMERA).names == (
        "frame-000000.depth.png",
        "frame-000001.depth.png",
    )


def test_several_sequences_are_named_and_refused(tmp_path):
    for name in ("seq-01", "seq-02"):
        save_images(tmp_path / name, ["frame-000000.depth.png"])
    with pytest.raises(InputError, match=r"expected one sequence, found 2 \(.*seq-01, .*seq-02\)"):
        frames.open_frames(tmp_path, intrinsics=CAMERA)


def test_redwood_has_microseconds_in_its_names(tmp_path):
    save_images(tmp_path / "depth", ["000001-000000000000.png", "000002-000000033369.png"])
    source = frames.open_frames(tmp_path, intrinsics="kinect")
    np.testing.assert_allclose(source.times, [0, 0.033369])
    assert source.timed


def test_icl_has_associations_and_a_camera_of_its_own(tmp_path):
    folder = tmp_path / "living_room_traj0_frei_png"
    save_images(folder / "depth", ["0.png", "1.png"])
    save_colours(folder / "rgb", ["0.png", "1.png"])
    rows = [f"{i} depth/{i}.png {i} rgb/{i}.png" for i in range(2)]
    (folder / "associations.txt").write_text("\n".join(rows) + "\n")
    source = frames.open_frames(folder, step=1)
    np.testing.assert_array_equal(source.times, [0, 1])
    expected = depth.points(wall(), depth.ICL)
    np.testing.assert_array_equal(source[0].points, expected[expected[:, 2] > frames.NEAR])
    swapped = [f"{i} rgb/{i}.png {i + 0.5} depth/{i}.png" for i in range(2)]
    (folder / "associations.txt").write_text("\n".join(swapped) + "\n")
    again = frames.open_frames(folder, step=1)
    np.testing.assert_array_equal(again.times, [0.5, 1.5])
    assert again.names == ("0.png", "1.png")


MATRIX = "60 0 31.5\n0 61 23.5\n0 0 1\n"


@pytest.mark.parametrize(
    ("name", "text", "scale"),
    [
        ("intrinsics.json", json.dumps(NUMBERS), 1000),
        ("camera.json", json.dumps({**NUMBERS, "depth_scale": 0.001}), 1000),
        ("cam_params.json", json.dumps({"camera": {**NUMBERS, "scale": 6553.5}}), 6553.5),
        (
            "camera_intrinsic.json",
            json.dumps({"width": 64, "intrinsic_matrix": [60, 0, 0, 0, 61, 0, 31.5, 23.5, 1]}),
            1000,
        ),
        ("camera_info.json", json.dumps({"K": [60, 0, 31.5, 0, 61, 23.5, 0, 0, 1]}), 1000),
        ("camera-intrinsics.txt", MATRIX, 1000),
        ("intrinsic/intrinsic_depth.txt", "60 0 31.5 0\n0 61 23.5 0\n0 0 1 0\n0 0 0 1\n", 1000),
        ("intrinsics.txt", "# fx fy cx cy scale\n60 61 31.5 23.5 5000\n", 5000),
        (
            "camera.yaml",
            "%YAML:1.0\nCamera.fx: 60\nCamera.fy: 61.0\nCamera.cx: 31.5\nCamera.cy: 23.5\n"
            "DepthMapFactor: 5000.0\n",
            5000,
        ),
    ],
)
def test_cameras_are_found_in_the_files_of_others(tmp_path, name, text, scale):
    save_images(tmp_path / "depth", ["0.png"])
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert camera.read(path) == Intrinsics(60.0, 61.0, 31.5, 23.5, float(scale))
    assert camera.find(layouts.find(tmp_path).folders) == camera.read(path)
    source = frames.open_frames(tmp_path)
    assert source.settings["intrinsics"]["scale"] == scale


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"fx": 1}'),
        ("a.json", "[]"),
        ("a.json", '{"fx": 0, "fy": 1, "cx": 1, "cy": 1}'),
        ("a.txt", "1 2 3"),
        ("a.txt", "one two three four"),
        ("a.yaml", "fx: 1\nfy: 2\n"),
    ],
)
def test_files_that_are_no_cameras_are_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="expected fx, fy, cx, cy and scale"):
        camera.read(tmp_path / name)
    with pytest.raises(InputError, match="found nothing"):
        camera.read(tmp_path / "absent.json")


def test_missing_and_broken_images_are_skipped_and_counted(tmp_path):
    """One of a TUM list is missing, one is damaged, one is in colour; the others are tracked."""
    count = 12
    names = [f"{i}.png" for i in range(count)]
    folder = tmp_path / "depth"
    save_images(folder, names)
    lines = [f"{100 + i / 30:.6f} depth/{name}" for i, name in enumerate(names)]
    (tmp_path / "depth.txt").write_text("\n".join(lines) + "\n")
    (folder / "3.png").unlink()
    (folder / "5.png").write_bytes((folder / "5.png").read_bytes()[:60])
    save_colours(folder, ["8.png"])
    options = coframe.TrackOptions(points=300, components=60)
    source = frames.open_frames(tmp_path, intrinsics=CAMERA, step=1)
    with pytest.raises(frames.UnreadableFrameError, match="found nothing"):
        source[3]
    path = coframe.track(source, options=options)
    assert sorted(path.skipped) == [3, 5, 8]
    assert "3.png: expected a depth image, found nothing" in path.skipped[3]
    assert "3 channels" in path.skipped[8]
    np.testing.assert_array_equal(np.flatnonzero(path.lost), [3, 5, 8])
    assert "0 lost, 3 that could not be read" in repr(path)
    assert [each["name"] for each in path.record()["skipped"]] == ["3.png", "5.png", "8.png"]
    assert path.record()["lost"] == []
    path.save(tmp_path / "out")
    assert dict(coframe.Track.load(tmp_path / "out").skipped) == dict(path.skipped)
    for name in names:
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"0\.png: .*none of the 12 frames can be read"):
        coframe.track(source, options=options)


def test_kitti_has_real_times(tmp_path):
    """sequences/00 with velodyne, image_0, calib.txt and times.txt; one frame is missing."""
    points = scans(tmp_path / "velodyne", [f"{i:06d}.bin" for i in (0, 1, 3)])
    (tmp_path / "image_0").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "image_0" / "000000.png")
    (tmp_path / "calib.txt").write_text("P0: 1 0 0 0 0 1 0 0 0 0 1 0\n")
    (tmp_path / "times.txt").write_text("0.000000e+00\n1.038000e-01\n2.07e-01\n3.1e-01\n")
    for given in (tmp_path, tmp_path / "velodyne"):
        source = frames.open_frames(given)
        np.testing.assert_allclose(source.times, [0, 0.1038, 0.31])
        assert source.timed
        np.testing.assert_array_equal(source[2].points, points)
        assert source[2].time == source.times[2]
    (tmp_path / "times.txt").write_text("0\n1\n")
    with pytest.raises(InputError, match="expected 3 times, one for each frame, found 2"):
        frames.open_frames(tmp_path)


def test_raw_kitti_has_dates(tmp_path):
    scans(tmp_path / "velodyne_points" / "data", ["0000000000.bin", "0000000001.bin"])
    (tmp_path / "velodyne_points" / "timestamps.txt").write_text(
        "2011-09-26 13:02:25.594360375\n2011-09-26 13:02:25.697\n"
    )
    times = frames.open_frames(tmp_path).times
    np.testing.assert_allclose(times, [1317042145.594360375, 1317042145.697], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("names", "times"),
    [
        (["1561000444390857630.bin", "1561000444490857630.bin"], 1561000444.390857630),
        (["cloud_1583840211_100000000.bin", "cloud_1583840211_200000000.bin"], 1583840211.1),
        (["1305031453.359684.bin", "1305031453.459684.bin"], 1305031453.359684),
    ],
)
def test_names_that_are_times(tmp_path, names, times):
    scans(tmp_path, names)
    source = frames.open_frames(tmp_path)
    assert source.timed
    np.testing.assert_allclose(source.times, [times, times + 0.1], atol=1e-6, rtol=0)


def test_rows_of_bin_files_are_recognised(tmp_path):
    """Three to six columns, and rows of Ouster with a time, in files of any number of rows."""
    for count in (40, 50, 60, 80, 120, 240):
        for width in (3, 4, 5, 6):
            names = ("x", "y", "z", "intensity", "ring", "time")[:width]
            points = scans(tmp_path, ["a.bin"], names, count)
            np.testing.assert_array_equal(lidar.read(tmp_path / "a.bin").points, points)
    rows = np.zeros(80, lidar.ROWS[3])
    for j, axis in enumerate("xyz"):
        rows[axis] = scans(tmp_path, ["b.bin"], count=80)[:, j]
    rows["t"] = np.arange(80) * 1_250_000
    rows.tofile(tmp_path / "a.bin")
    scan = lidar.read(tmp_path / "a.bin")
    assert scan.points.shape == (80, 3)
    np.testing.assert_allclose(lidar.offsets(scan.columns, 5.0), np.arange(80) * 1.25e-3)
    (tmp_path / "a.bin").write_bytes(b"abc")
    with pytest.raises(InputError, match="found 3 bytes"):
        lidar.read(tmp_path / "a.bin")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("time", np.array([0.0, 0.05, 0.1]), [0, 0.05, 0.1]),  # Velodyne, seconds
        ("offset_time", np.array([0, 5e7, 1e8], np.uint32), [0, 0.05, 0.1]),  # Livox, nanoseconds
        ("t", np.array([0, 5e4, 1e5], np.uint32), [0, 0.05, 0.1]),
        ("timestamp", np.array([100.0, 100.05, 100.1]), [0.02, 0.07, 0.12]),  # of a clock
        ("timestamp", np.array([7.0, 7.05, 7.1]), [0, 0.05, 0.1]),  # of another clock
        ("time", np.zeros(3), None),
        ("time", np.array([0.0, np.nan, 0.1]), None),
        ("ring", np.array([0.0, 0.05, 0.1]), None),
    ],
)
def test_times_of_points_are_understood(name, values, expected):
    found = lidar.offsets({"x": np.zeros(3), name: values}, 99.98)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_generator_is_read_frame_by_frame():
    """Pairs of a time and an array; what the tracker does not need yet has not been made."""
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 1, (900, 3)) * np.repeat([[1, 1, 0], [1, 0, 1], [0, 1, 1]], 300, axis=0)
    made = []

    def clouds():
        for i in range(40):
            made.append(i)
            yield 10 + i / 10, corner + np.array([0.5 + 0.01 * i, 0.4, 1.0])

    path = coframe.track(
        clouds(),
        options=coframe.TrackOptions(points=400, components=60),
        on_frame=lambda step: step.index == 9,
    )
    assert len(made) < 10 + frames.AHEAD + 4
    np.testing.assert_allclose(path.times, 10 + np.arange(10) / 10)
    np.testing.assert_allclose(path.poses[-1, :3, 3], [-0.09, 0, 0], atol=0.01)
    assert path.names[3] == "frame 3"


# --- ROS bags ---

rosbag2 = pytest.importorskip("rosbags.rosbag2")
typesys = pytest.importorskip("rosbags.typesys")
STORE = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
TYPES = STORE.types
FORMATS = {"SQLITE3": "db3", "MCAP": "mcap"}


def header(time):
    stamp = TYPES["builtin_interfaces/msg/Time"](sec=int(time), nanosec=round(time % 1 * 1e9))
    return TYPES["std_msgs/msg/Header"](stamp=stamp, frame_id="sensor")


def cloud_message(time, points, seconds):
    """As a driver writes it: with a gap between the coordinates and the time of a point."""
    field = TYPES["sensor_msgs/msg/PointField"]
    fields = [field(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    fields.append(field(name="t", offset=16, datatype=6, count=1))
    data = b"".join(
        struct.pack("<3f4xI4x", *p, round(1e9 * t)) for p, t in zip(points, seconds, strict=True)
    )
    return TYPES["sensor_msgs/msg/PointCloud2"](
        header=header(time),
        height=1,
        width=len(points),
        fields=fields,
        is_bigendian=False,
        point_step=24,
        row_step=24 * len(points),
        data=np.frombuffer(data, np.uint8),
        is_dense=True,
    )


def image_message(time, values, encoding):
    return TYPES["sensor_msgs/msg/Image"](
        header=header(time),
        height=values.shape[0],
        width=values.shape[1],
        encoding=encoding,
        is_bigendian=0,
        step=values.shape[1] * values.itemsize,
        data=np.frombuffer(values.tobytes(), np.uint8),
    )


def camera_message(time):
    region = TYPES["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    return TYPES["sensor_msgs/msg/CameraInfo"](
        header=header(time),
        height=48,
        width=64,
        distortion_model="plumb_bob",
        d=np.zeros(5),
        k=np.array([60, 0, 31.5, 0, 61, 23.5, 0, 0, 1.0]),
        r=np.eye(3).ravel(),
        p=np.zeros(12),
        binning_x=0,
        binning_y=0,
        roi=region,
    )


def write_bag(path, topics, storage):
    """`topics`: lists of (time, message) by topic. Stored half a second after they were made."""
    plugin = rosbag2.StoragePlugin[storage]
    with rosbag2.Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, messages in topics.items():
            kind = messages[0][1].__msgtype__
            connection = writer.add_connection(topic, kind, typestore=STORE)
            for time, message in messages:
                raw = STORE.serialize_cdr(message, kind)
                writer.write(connection, round(1e9 * (time + 0.5)), raw)


@pytest.mark.parametrize("storage", ["SQLITE3", "MCAP"])
def test_clouds_of_a_bag(tmp_path, storage):
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(30, 3)).astype(np.float32) for _ in range(5)]
    clouds[2][4] = np.nan  # no return
    seconds = np.linspace(0, 0.09, 30)
    times = 1000 + 0.1 * np.arange(5)
    rows = [(t, cloud_message(t, c, seconds)) for t, c in zip(times, clouds, strict=True)]
    write_bag(tmp_path / "bag", {"/lidar/points": rows}, storage)
    file = next((tmp_path / "bag").glob(f"*.{FORMATS[storage]}"))
    for path in (tmp_path / "bag", file):
        source = frames.open_frames(path)
        np.testing.assert_allclose(source.times, times, atol=1e-6)
        assert len(source) == 5
        np.testing.assert_array_equal(source[3].points, clouds[3])
        np.testing.assert_allclose(source[3].offsets, seconds, atol=1e-9)
        found = list(source)
        assert [len(frame) for frame in found] == [30, 30, 29, 30, 30]
        np.testing.assert_array_equal(found[4].points, clouds[4])
        assert found[1].name == "/lidar/points 1"


def test_depth_images_of_a_bag_with_their_camera(tmp_path):
    times = 1000 + 0.1 * np.arange(3)
    topics = {
        "/camera/depth/image": [(t, image_message(t, wall(), "16UC1")) for t in times],
        "/camera/depth/camera_info": [(t, camera_message(t)) for t in times],
        "/camera/colour/camera_info": [(t, camera_message(t)) for t in times],
        "/camera/colour/image": [
            (t, image_message(t, np.zeros((4, 12), np.uint8), "rgb8")) for t in times
        ],
    }
    write_bag(tmp_path / "bag", topics, "MCAP")
    source = frames.open_frames(tmp_path / "bag", step=1)
    np.testing.assert_array_equal(source[1].points, depth.points(wall(), CAMERA))
    topics["/metres"] = [
        (t, image_message(t, (wall() / 1000).astype(np.float32), "32FC1")) for t in times
    ]
    write_bag(tmp_path / "two", topics, "SQLITE3")
    with pytest.raises(InputError, match=r"found 2 \(.*/metres\); choose one with --topic"):
        frames.open_frames(tmp_path / "two")
    with pytest.raises(InputError, match="expected the camera of /metres"):
        frames.open_frames(tmp_path / "two", topic="/metres")
    with pytest.raises(InputError, match="expected clouds or depth images in /colour"):
        frames.open_frames(tmp_path / "two", topic="/colour")
    metres = frames.open_frames(
        tmp_path / "two",
        topic="/metres",
        step=1,
        intrinsics=Intrinsics(60.0, 61.0, 31.5, 23.5, 1.0),
    )
    np.testing.assert_allclose(metres[0].points, depth.points(wall(), CAMERA), rtol=1e-6)


def test_bags_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "a.mcap").write_bytes(b"no bag at all")
    with pytest.raises(InputError, match="expected a ROS bag, found one that cannot be read"):
        frames.open_frames(tmp_path / "a.mcap")
    write_bag(tmp_path / "bag", {"/info": [(1.0, camera_message(1.0))]}, "SQLITE3")
    with pytest.raises(InputError, match="expected a topic of clouds"):
        frames.open_frames(tmp_path / "bag")
    (tmp_path / "folder").mkdir()
    ply.write(tmp_path / "folder" / "a.ply", np.eye(3))
    with pytest.raises(InputError, match="topic: expected a ROS bag"):
        frames.open_frames(tmp_path / "folder", topic="/points")
