# SPDX-License-Identifier: MIT
"""Promises that a file cannot keep, libraries that are absent, and real scans."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData
from scenes import FULL

from coframe import InputError
from coframe.io import clouds as cloud_files
from coframe.io import ply


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.ply",
            b"ply\nformat binary_little_endian 1.0\nelement vertex 1000000000000\nproperty double"
            b" x\nend_header\n" + bytes(99),
        ),
        (
            "b.ply",
            (
                b"ply\nformat ascii 1.0\nelement vertex 1000000000000\nproperty list int int"
                b" x\nend_header\n1 2 3\n"
            ),
        ),
        ("c.ply", b"ply\nformat ascii 1.0\nelement vertex 1000000000000\nend_header\n"),
        ("d.ply", b"ply\nformat ascii 1.0\nelement vertex -5\nproperty float x\nend_header\n"),
        (
            "a.pcd",
            (
                b"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nWIDTH 1000000000000\nHEIGHT"
                b" 1\nDATA binary\n"
            ),
        ),
        (
            "b.pcd",
            (
                b"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nPOINTS 300000000\n"
                b"DATA binary_compressed\n\x08\0\0\0\0\xa4\x93\xd6AAAAAAAA"
            ),
        ),
        ("a.pts", b"1000000000000\n1 2 3\n"),
        ("a.txt", b"1 " * 100_000 + b"\n" * 100_000),
    ],
)
def test_promises_are_checked_against_the_size(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=name):
            cloud_files.read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 3e7
    finally:
        tracemalloc.stop()


def test_npy_and_npz_promises(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)}
    )
    (tmp_path / "a.npy").write_bytes(header.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("points.npy", header.getvalue())
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("points.npy", bytes(300_000_000))
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "pickle.npz", points=np.array([[{}]], object))
    for name in ("a.npy", "a.npz", "bomb.npz", "pickle.npy", "pickle.npz"):
        with pytest.raises(InputError, match=name):
            cloud_files.read(tmp_path / name)


def test_an_archive_with_a_member_larger_than_itself_takes_no_memory(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", points=np.zeros((5, 3)))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # in the directory at the end: packed and unpacked size
    content[entry + 20 : entry + 28] = struct.pack("<II", 0xFF000000, 0x00FFFFFF)
    (tmp_path / "a.npz").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="it would unpack"):
            cloud_files.read(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 3e7
    finally:
        tracemalloc.stop()


def test_an_absent_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "laspy", None)
    (tmp_path / "a.las").write_bytes(b"LASF")
    with pytest.raises(InputError, match=r"a\.las: .*laspy.*pip install 'coframe\[las\]'"):
        cloud_files.read(tmp_path / "a.las")


def test_a_suffix_that_we_do_not_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.doc: expected a suffix of \.ply"):
        cloud_files.write(tmp_path / "a.doc", FULL)
    assert not list(tmp_path.iterdir())


def test_real_scans_are_read_as_plyfile_reads_them(data: Callable[[str], Path]) -> None:
    path = data("models/lucy_small.ply")
    expected = PlyData.read(path)["vertex"]
    np.testing.assert_array_equal(ply.read(path)["x"], expected["x"])
