# SPDX-License-Identifier: MIT
"""Frames of ROS bags: clouds (sensor_msgs/PointCloud2), and depth images with their camera."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from coframe.errors import InputError, one_line, optional
from coframe.io.depth import Intrinsics
from coframe.types import Array

# [format] Messages that are frames, and those that describe a camera.
CLOUD = "sensor_msgs/msg/PointCloud2"
IMAGE = "sensor_msgs/msg/Image"
CAMERA = "sensor_msgs/msg/CameraInfo"
# [format] Types of a field of PointCloud2, by number.
FIELD_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
# [format] Encodings of depth images, with the type of a pixel and values per metre.
ENCODINGS = {"16UC1": ("u2", 1000.0), "mono16": ("u2", 1000.0), "32FC1": ("f4", 1.0)}
# [format] Endings of bags that are one file.
SUFFIXES = (".mcap", ".db3", ".bag")


@dataclass(frozen=True, eq=False)
class Bag:
    """A topic of a bag, each of whose messages is a frame."""

    path: Path
    topic: str
    kind: str  # CLOUD or IMAGE
    logged: tuple[int, ...]  # [ns] when each message was stored
    times: Float[Array, " N"]  # [s] by its own header
    camera: Intrinsics | None  # of an image
    scale: float = 1.0  # values per metre of an image

    def messages(self, start: int = 0) -> Iterator[Any]:
        """The messages from number `start` on."""
        if start >= len(self.logged):
            return
        with _opened(self.path) as reader:
            wanted = [each for each in reader.connections if each.topic == self.topic]
            # Some may be stored at the same time as the wanted one.
            earlier = start - self.logged.index(self.logged[start])
            stored = reader.messages(wanted, start=self.logged[start])
            for i, (connection, _, raw) in enumerate(stored):
                if i >= earlier:
                    yield reader.deserialize(raw, connection.msgtype)


def is_bag(path: Path) -> bool:
    """Whether a path is a bag: one file, or a folder with metadata.yaml."""
    if path.is_dir():
        return (path / "metadata.yaml").is_file()
    return path.is_file() and path.suffix.lower() in SUFFIXES


def open_bag(path: Path, topic: str | None = None) -> Bag:
    """The topic of a bag that holds frames.

    Raises
    ------
    InputError
        If it has none or several, `topic` is not among them, or it cannot be read.
    """
    with _opened(path) as reader:
        frames = {
            each.topic: each.msgtype
            for each in reader.connections
            if each.msgtype in (CLOUD, IMAGE) and each.msgcount
        }
        images = [name for name, kind in frames.items() if kind == IMAGE]
        for name in images:
            if _first(reader, name).encoding not in ENCODINGS:
                del frames[name]
        chosen = _choose(path, frames, topic)
        wanted = [each for each in reader.connections if each.topic == chosen]
        logged, times = [], []
        for _, stored, raw in reader.messages(wanted):
            logged.append(stored)
            times.append(_stamp(raw, ros2=reader.is2))
        stamps = np.array(times)
        if not (np.diff(stamps) > 0).all():  # headers that nobody has filled
            stamps = 1e-9 * np.array(logged, float)
        if not (np.diff(stamps) > 0).all():
            raise InputError(f"{path}: expected rising times of {chosen}, found others")
        camera, scale = None, 1.0
        if frames[chosen] == IMAGE:
            camera, scale = _camera(path, reader, chosen)
    return Bag(path, chosen, frames[chosen], tuple(logged), stamps, camera, scale)


def columns(message: Any) -> Mapping[str, Shaped[Array, " N"]]:
    """The fields of a PointCloud2, one value for each point."""
    order = ">" if message.is_bigendian else "<"
    fields = [field for field in message.fields if field.datatype in FIELD_TYPES]
    dtype = np.dtype(
        {
            "names": [field.name for field in fields],
            "formats": [order + FIELD_TYPES[field.datatype] for field in fields],
            "offsets": [field.offset for field in fields],
            "itemsize": message.point_step,
        }
    )
    data = np.ascontiguousarray(message.data).reshape(message.height, message.row_step)
    rows = data[:, : message.width * message.point_step].reshape(-1)
    values = rows.view(dtype)
    return {field.name: values[field.name] for field in fields}


def pixels(message: Any) -> Shaped[Array, "H W"]:
    """The depths of an image."""
    kind, _ = ENCODINGS[message.encoding]
    dtype = np.dtype((">" if message.is_bigendian else "<") + kind)
    data = np.ascontiguousarray(message.data).reshape(message.height, message.step)
    return np.ascontiguousarray(data[:, : message.width * dtype.itemsize]).view(dtype)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    highlevel = optional("rosbags.highlevel", "ros", "ROS bags")
    typesys = optional("rosbags.typesys", "ros", "ROS bags")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    try:
        with highlevel.AnyReader([path], default_typestore=store) as reader:
            yield reader
    except InputError:
        raise
    except GeneratorExit:
        raise
    except Exception as error:
        # rosbags and what it reads with raise what they like on files that are damaged.
        raise InputError(
            f"{path}: expected a ROS bag, found one that cannot be read ({one_line(error)})"
        ) from None


def _choose(path: Path, frames: Mapping[str, str], topic: str | None) -> str:
    known = ", ".join(frames)
    if topic is not None:
        if topic not in frames:
            raise InputError(
                f"{path}: expected clouds or depth images in {topic}, found them in"
                f" {known or 'no topic'}"
            )
        return topic
    if not frames:
        raise InputError(
            f"{path}: expected a topic of clouds ({CLOUD}) or depth images ({IMAGE} of 16UC1 or"
            " 32FC1), found none"
        )
    if len(frames) > 1:
        raise InputError(
            f"{path}: expected one topic with frames, found {len(frames)} ({known}); choose one"
            " with --topic, in Python open_frames(..., topic=...)"
        )
    return next(iter(frames))


def _first(reader: Any, topic: str) -> Any:
    wanted = [each for each in reader.connections if each.topic == topic]
    connection, _, raw = next(iter(reader.messages(wanted)))
    return reader.deserialize(raw, connection.msgtype)


def _camera(path: Path, reader: Any, topic: str) -> tuple[Intrinsics | None, float]:
    """The camera whose topic is most like the image's, if there is one."""
    _, scale = ENCODINGS[_first(reader, topic).encoding]
    place = topic.rpartition("/")[0]
    cameras = [
        each.topic for each in reader.connections if each.msgtype == CAMERA and each.msgcount
    ]
    beside = [name for name in cameras if name.rpartition("/")[0] == place] or cameras
    if len(beside) != 1:
        return None, scale
    info = _first(reader, beside[0])
    K = np.array(info.k if hasattr(info, "k") else info.K, float).reshape(3, 3)
    return Intrinsics(K[0, 0], K[1, 1], K[0, 2], K[1, 2], scale), scale


def _stamp(raw: bytes, *, ros2: bool) -> float:
    """[s] The stamp of a header, with which clouds and images begin: in ROS 2 behind four bytes
    that say how the message is written, in ROS 1 behind a number.
    """
    big = ros2 and not raw[1] & 1
    seconds, nanoseconds = struct.unpack(">iI" if big else "<iI", bytes(raw[4:12]))
    return float(seconds + 1e-9 * nanoseconds)
