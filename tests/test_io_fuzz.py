# SPDX-License-Identifier: MIT
"""Damaged files: a right answer or an InputError, never another exception, never a hang."""

import contextlib
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coframe import InputError, geometry
from coframe.io import clouds as cloud_files
from coframe.io import poses as pose_files
from coframe.io.scan import Scan

LIBRARIES = {
    ".las": "laspy",
    ".laz": "laspy",
    ".e57": "pye57",
    ".obj": "trimesh",
    ".stl": "trimesh",
    ".off": "trimesh",
}
SUFFIXES = [
    ".ply",
    ".pcd",
    ".las",
    ".laz",
    ".e57",
    ".ptx",
    ".vtk",
    ".xyz",
    ".csv",
    ".pts",
    ".npy",
    ".npz",
    ".bin",
    ".obj",
    ".stl",
    ".off",
]
POINTS = np.random.default_rng(1).normal(size=(5, 3))


@cache
def whole(suffix: str) -> bytes:
    """A good file of the format."""
    colours = np.arange(15, dtype=np.uint8).reshape(5, 3)
    text = "".join("{} {} {}\n".format(*point) for point in POINTS.tolist())
    match suffix:
        case ".pts":
            return f"5\n{text}".encode()
        case ".obj":
            return (
                "".join(f"v {line}\n" for line in text.splitlines()) + "f 1 2 3\nf 3 4 5\n"
            ).encode()
        case ".off":
            return f"OFF\n5 1 0\n{text}3 0 1 2\n".encode()
        case ".vtk":
            head = "# vtk DataFile Version 3.0\na\nASCII\nDATASET POLYDATA\nPOINTS 5 double\n"
            return f"{head}{text}".encode()
        case ".stl":
            facet = (
                "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1"
                " 0\nendloop\nendfacet\n"
            )
            return f"solid a\n{facet}endsolid\n".encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        if suffix == ".npz":
            np.savez(path, points=POINTS)
        else:
            cloud_files.write(path, Scan(POINTS, colours, intensity=np.arange(5.0)))
        return path.read_bytes()


def read(suffix: str, content: bytes) -> list[Scan] | None:
    """What the file holds, None where it is refused."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"a{suffix}"
        path.write_bytes(content)
        try:
            scans = cloud_files.read_all(path)
        except InputError as error:
            assert f"a{suffix}" in str(error)
            assert "\n" not in str(error)
            scans = None
        with contextlib.suppress(InputError):
            list(cloud_files.blocks(path, 2))
        return scans


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25)
@given(data=st.data())
def test_truncated_files(suffix: str, data: st.DataObject) -> None:
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])
    content = whole(suffix)
    assert read(suffix, content) is not None
    cut = data.draw(st.integers(0, len(content) - 1))
    for scan in read(suffix, content[:cut]) or ():
        assert len(scan) <= 5


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25)
@given(data=st.data())
def test_files_with_other_bytes_in_them(suffix: str, data: st.DataObject) -> None:
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])
    content = bytearray(whole(suffix))
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content) - 1))
        other = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([b"\r\n", b"nan", b"1e999", b"-", b"99999999999"]),
            )
        )
        content[begin : begin + data.draw(st.integers(0, 8))] = other
    read(suffix, bytes(content))


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=15)
@given(content=st.binary(max_size=300))
def test_garbage(suffix: str, content: bytes) -> None:
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])
    read(suffix, content)


kinds = st.sampled_from(
    ["float", "double", "uchar", "int", "short", "float64", "list uchar int", "quad"]
)
names = st.sampled_from(["x", "y", "z", "red", "nx", "q", "x "])


@given(
    st.sampled_from(["ascii", "binary_little_endian", "binary_big_endian", "utf8"]),
    st.lists(st.tuples(kinds, names), max_size=6),
    st.integers(-2, 6),
    st.lists(st.floats(width=32), max_size=20),
)
def test_ply_headers_of_all_sorts(
    form: str, properties: list[tuple[str, str]], count: int, values: list[float]
) -> None:
    header = f"ply\nformat {form} 1.0\nelement vertex {count}\n"
    header += "".join(f"property {kind} {name}\n" for kind, name in properties) + "end_header\n"
    body = (
        " ".join(map(repr, values)).encode()
        if form == "ascii"
        else np.array(values, "<f4").tobytes()
    )
    for scan in read(".ply", header.encode() + body) or ():
        assert len(scan) == count


@given(
    st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=8),
    st.sampled_from([" ", ",", ";", "\t", " , "]),
)
def test_text_of_any_numbers_is_read_exactly(rows: list[list[float]], separator: str) -> None:
    content = "\r\n".join(separator.join(map(repr, row)) for row in rows).encode()
    (scan,) = read(".csv", content) or pytest.fail("refused")
    np.testing.assert_array_equal(scan.points, rows)


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_pose_files(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(good_poses())))
    content = bytearray(good_poses()[name])
    cut = data.draw(st.integers(0, len(content)))
    other = data.draw(
        st.one_of(
            st.binary(max_size=8), st.sampled_from([b"nan", b"\r\n", b"<", b"{", b"0 0 0 0", b"#"])
        )
    )
    content[cut : cut + data.draw(st.integers(0, 50))] = other
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            poses = pose_files.read(path)
        except InputError as error:
            assert name in str(error)
            return
    for pose in poses.values():
        assert pose.shape in ((3, 3), (4, 4))
        assert np.isfinite(pose).all()


@cache
def good_poses() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    poses = np.array(
        [geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3)) for _ in range(3)]
    )
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in pose_files.FORMATS:
            if form not in ("matrix", "e57"):
                path = Path(folder) / f"{form}.dat"
                pose_files.export(path, form, ["a", "b", "c"], poses)
                found[path.name] = path.read_bytes()
    return found
