# SPDX-License-Identifier: MIT
"""Writes the good files of tests/corpus, from points of our own:

`python -m fuzz.seeds`. Several kinds of each format.
"""

import contextlib
import json
import struct
from pathlib import Path

import numpy as np

import coframe
from coframe import geometry
from coframe.io import clouds as cloud_files
from coframe.io import e57, frames, trajectory
from coframe.io import poses as pose_files
from coframe.io.scan import Scan
from coframe.report.run import Run
from coframe.sequence import state
from coframe.sequence.tracker import Tracker
from fuzz.targets import CAMERA, MESHES, POSES, small_run

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "corpus"
RNG = np.random.default_rng(8)
POINTS = RNG.normal(size=(6, 3)).round(3)
RICH = Scan(
    POINTS,
    colours=RNG.integers(0, 256, (6, 3)).astype(np.uint8),
    normals=np.tile([0.0, 0.6, 0.8], (6, 1)),
    intensity=np.arange(6.0),
    columns={"quality": np.arange(6, dtype=np.int32)},
    name="a",
)
ROWS = "".join("{} {} {}\n".format(*point) for point in POINTS.tolist())


def write_all() -> None:
    """All seeds, a few kilobytes each."""
    for kind in ("ply", "pcd", "xyz", "csv", "npy", "las", "laz", "bin"):
        cloud_files.write(_path(kind, f"seed.{kind}"), RICH)
    _plys()
    _pcds()
    _texts()
    _arrays()
    e57.write_scans(_path("e57", "seed.e57"), [Scan(POINTS), RICH])
    e57.write_scans(
        _path("poses-e57", "seed.e57"),
        [Scan(POINTS[:1], pose=pose, name=n) for n, pose in zip("ab", _poses(), strict=False)],
    )
    _meshes()
    _images()
    for form in POSES:
        path = _path(f"poses-{form}", f"seed{pose_files.FORMATS[form] or '.txt'}")
        if form == "matrix":
            path.write_text(
                "".join(" ".join(map(repr, row)) + "\n" for row in _poses()[0].tolist())
            )
        else:
            pose_files.export(path, form, ["a", "b", "c"], _poses())
    path_of_sensor = coframe.Trajectory(np.array([0.0, 0.5, 1.5]), _poses())
    trajectory.write_tum(_path("trajectory-tum", "seed.txt"), path_of_sensor)
    trajectory.write_kitti(_path("trajectory-kitti", "seed.txt"), path_of_sensor)
    _results()
    _interrupted()
    _sequences()
    _path("register", "seed").write_bytes(bytes(range(40)))
    for i in range(4):  # plain problems: 3-D, few clouds, as they lie
        _path("register", f"seed-{i}").write_bytes(bytes([i, i % 3, 0, 0] + [i, 1] * 20))


def _path(target: str, name: str) -> Path:
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    return CORPUS / target / name


def _poses() -> np.ndarray:
    rng = np.random.default_rng(9)
    return np.array(
        [geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3)) for _ in range(3)]
    )


def _plys() -> None:
    xyz = "property float x\nproperty float y\nproperty float z\n"
    head = f"element vertex 6\n{xyz}element face 1\nproperty list uchar int vertex_indices\n"
    _path("ply", "seed-ascii.ply").write_text(
        f"ply\nformat ascii 1.0\ncomment c\n{head}end_header\n{ROWS}3 0 1 2\n"
    )
    body = POINTS.astype(">f4").tobytes() + struct.pack(">B3i", 3, 0, 1, 2)
    _path("ply", "seed-big.ply").write_bytes(
        f"ply\nformat binary_big_endian 1.0\n{head}end_header\n".encode() + body
    )
    lists = (
        "element vertex 2\nproperty float x\nproperty float y\nproperty float z\nproperty list"
        " uchar int about\n"
    )
    rows = b"".join(struct.pack("<3fBi", 1, 2, 3, 1, 7) for _ in range(2))
    _path("ply", "seed-lists.ply").write_bytes(
        f"ply\nformat binary_little_endian 1.0\n{lists}end_header\n".encode() + rows
    )


def _pcds() -> None:
    head = (
        "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z rgb\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1"
        " 1\nWIDTH 6\nHEIGHT 1\n"
    )
    head += "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS 6\n"
    text = "".join(f"{row} 4.2108e+06\n" for row in ROWS.splitlines())
    _path("pcd", "seed-ascii.pcd").write_text(f"{head}DATA ascii\n{text}")
    import lzf

    columns = np.concatenate([POINTS, np.zeros((6, 1))], 1).T.astype("<f4").tobytes()
    packed = lzf.compress(columns) or columns
    body = struct.pack("<II", len(packed), len(columns)) + packed
    _path("pcd", "seed-packed.pcd").write_bytes(f"{head}DATA binary_compressed\n".encode() + body)


def _texts() -> None:
    _path("csv", "seed-german.csv").write_text("X;Y;Z\n" + ROWS.replace(" ", ";").replace(".", ","))
    _path("csv", "seed-holes.csv").write_text("x,y,z,q\n1,2,3,\n4,5,6,7\n,,,\n")
    _path("xyz", "seed-bare.xyz").write_text(f"# a comment\n{ROWS}")
    colours = "".join(f"{row} 1 2 {i}\n" for i, row in enumerate(ROWS.splitlines()))
    _path("xyz", "seed-colours.xyz").write_text(colours.replace("\n", "\r\n"))
    _path("pts", "seed.pts").write_text(f"6\n{ROWS}")
    _path("pts", "seed-two.pts").write_text(f"2\n1 2 3 4 5 6 7\n1 2 4 4 5 6 7\n{6}\n{ROWS}")


def _arrays() -> None:
    np.save(_path("npy", "seed-flat.npy"), POINTS[:, :2].astype("f4"))
    fields = np.zeros(4, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("red", "u1")])
    np.save(_path("npy", "seed-fields.npy"), fields)
    np.savez(
        _path("npz", "seed.npz"),
        points=POINTS,
        colours=RICH.colours,
        normals=RICH.normals,
        intensity=RICH.intensity,
    )
    np.savez_compressed(_path("npz", "seed-two.npz"), a=POINTS, b=POINTS[:4], poses=_poses()[:2])


def _meshes() -> None:
    faces = [(0, 1, 2), (2, 3, 4), (3, 4, 5)]
    lines = ROWS.splitlines()
    obj = "".join(f"v {line}\n" for line in lines) + "".join(
        "f {} {} {}\n".format(*(i + 1 for i in face)) for face in faces
    )
    off = f"OFF\n6 3 0\n{ROWS}" + "".join("3 {} {} {}\n".format(*face) for face in faces)
    facets = "".join(
        "facet normal 0 0 1\nouter loop\n"
        + "".join(f"vertex {lines[i]}\n" for i in face)
        + "endloop\nendfacet\n"
        for face in faces
    )
    for kind, text in zip(MESHES, (obj, f"solid a\n{facets}endsolid a\n", off), strict=True):
        _path(kind, f"seed.{kind}").write_text(text)
    _path("obj", "seed-groups.obj").write_text(
        "mtllib a.mtl\no one\nv 0 0 0 1 0 0\nv 1 0 0 0 1 0\nv 0 1 0 0 0 1\nvt 0 0\nvn 0 0 1\nusemtl"
        " m\nf 1/1/1 2/1/1 -1/1/1\ng two\nv 0 0 1\nf 1//1 2//1 4//1\nf 1 2 3 4\n"
    )
    record = np.zeros(
        len(faces), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")]
    )
    record["corners"] = POINTS[np.array(faces)]
    _path("stl", "seed-binary.stl").write_bytes(
        b" " * 80 + struct.pack("<I", len(faces)) + record.tobytes()
    )


def _images() -> None:
    from PIL import Image

    depth = RNG.integers(500, 3000, (5, 6)).astype(np.uint16)
    for target in ("png", "sequence-image"):
        Image.fromarray(depth).save(_path(target, "seed.png"))
        Image.fromarray((depth // 16).astype(np.uint8)).save(_path(target, "seed-bytes.png"))


def _results() -> None:
    """A small result, and one with colours in the plane."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(12, 3)), rng.normal(size=(12, 3))]
    found = coframe.register(
        clouds,
        geometry.identity(2, 3),
        options=coframe.Options(components=2, iterations=1, points=12),
    )
    found = coframe.Registration(**{**vars(found), "history": found.history[-2:]})
    folder = CORPUS / "result"
    found.save(folder)
    (folder / "state.npz").replace(_path("result-state", "seed.npz"))
    (folder / "merged.ply").replace(_path("result-merged", "seed.ply"))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def checkpoint(path: Path) -> None:
    """The checkpoint of a run that was stopped.

    It holds options and a version, so that it does not stay good for ever.
    """

    def stop(step: coframe.Iteration) -> bool:
        raise KeyboardInterrupt

    path.unlink(missing_ok=True)
    with contextlib.suppress(KeyboardInterrupt), coframe.Checkpoint(path, every=0.0) as checkpoint:
        small_run(checkpoint, on_iteration=stop)


def _interrupted() -> None:
    """A checkpoint, and what the report keeps of a run."""
    path = _path("checkpoint", "seed.db")
    checkpoint(path)
    Run("coframe register", {"seed": 0}, {"coframe": "0"}, 1.0, geometry.identity(2, 3)).save(
        path.parent
    )
    (path.parent / "run.json").replace(_path("run", "seed.json"))


def _sequences() -> None:
    _path("sequence-list", "seed.txt").write_text("# depth maps\n1.0 a.png\n1.5 a.png\n")
    for target in ("sequence-camera", "intrinsics"):
        _path(target, "seed.json").write_text(json.dumps(vars(CAMERA)))
    _path("intrinsics", "seed-preset.json").write_text('{"preset": "freiburg1"}')
    rng = np.random.default_rng(1)
    tracker = Tracker(coframe.TrackOptions(points=200, components=8, iterations=1, threads=1))
    for i in range(2):
        cloud = rng.uniform(-1, 1, (200, 3)) + np.array([0, 0, 3])
        tracker.add(tracker.prepare(i, frames.Frame(i / 30, cloud, np.ones(len(cloud)), f"{i}")))
    np.savez(_path("track-state", "seed.npz"), allow_pickle=False, **state.pack(tracker))
    folder = CORPUS / "track"
    for name in coframe.Track.of(tracker).save(folder):
        if name == "state.npz":
            (folder / name).replace(_path("track-result", "seed.npz"))
        else:
            (folder / name).unlink()
    folder.rmdir()


if __name__ == "__main__":
    write_all()
    for path in sorted(CORPUS.glob("*/seed*")):
        print(f"{path.relative_to(CORPUS)}  {path.stat().st_size} bytes")
