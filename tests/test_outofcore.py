# SPDX-License-Identifier: MIT
"""Clouds larger than memory: the same bits, a budget that is kept, nothing left behind."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import unchecked

import coframe
from coframe.align import cost
from coframe.data import simulate
from coframe.input.source import ROWS
from coframe.io import clouds as cloud_files
from coframe.io.scan import Scan

OPTIONS = coframe.Options(components=40, points=200, iterations=3)
GENEROUS = "2GB"


def repeated(cloud: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """More points of the same surface than a block has."""
    count = ROWS + 1000
    return cloud[rng.integers(0, len(cloud), count)] + rng.normal(0, 1e-3, (count, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clouds in several formats: colours in some, intensity in all, an archive of two scans, rays
    that met nothing. The first has more points than a block.
    """
    scene = simulate.scene(
        5, 700, degrees=200.0, noise_db=45.0, outliers=0.1, rng=np.random.default_rng(0)
    )
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    clouds = [repeated(scene.clouds[0], rng), *scene.clouds[1:3]]
    scans = [Scan(c, intensity=rng.random(len(c))) for c in clouds]
    coloured = Scan(
        scans[0].points,
        rng.integers(0, 256, (len(scans[0]), 3), np.uint8),
        intensity=scans[0].intensity,
    )
    cloud_files.write(folder / "a.ply", coloured)
    cloud_files.write(folder / "b.pcd", scans[1])
    with_misses = np.concatenate(
        [np.c_[scans[2].points, scans[2].intensity], [[np.nan] * 3 + [0.0]]]
    )
    names = ("x", "y", "z", "intensity")
    np.save(
        folder / "c.npy",
        np.array([tuple(row) for row in with_misses], [(name, "f8") for name in names]),
    )
    np.savez(folder / "d.npz", one=scene.clouds[3], two=scene.clouds[4])
    return folder


def registered(folder: Path, **arguments: object) -> coframe.Registration:
    with unchecked():
        return coframe.register(folder, options=OPTIONS, **arguments)


def test_blocks_give_the_bytes_of_the_whole(folder: Path, tmp_path: Path) -> None:
    whole = registered(folder)
    whole.save(tmp_path / "whole")
    blocks = registered(folder, memory=GENEROUS, output=tmp_path / "blocks")
    # hidden until the result is saved, and no scratch
    assert [path.name for path in (tmp_path / "blocks").iterdir()] == [".coframe-points"]
    blocks.save(tmp_path / "blocks")
    for name in ("merged.ply", "model.ply", "poses.json"):
        assert (tmp_path / "blocks" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes(), name
    assert blocks.names == whole.names == ("a", "b", "c", "d/one", "d/two")
    assert blocks.counts == whole.counts == tuple(map(len, whole.clouds))
    for some, cloud in zip(blocks.clouds, whole.clouds, strict=True):
        np.testing.assert_array_equal(some, cloud[:: -(-len(cloud) // OPTIONS.points)])
    np.testing.assert_array_equal(blocks.poses, whole.poses)
    again = coframe.load(tmp_path / "blocks")
    assert again.counts == whole.counts
    assert again.sizes == ()


def test_strays_count_as_nothing_in_blocks_too(folder: Path, tmp_path: Path) -> None:
    """A point a million extents away, in the middle of a file: the bytes are those of the run in
    memory.
    """
    points = repeated(np.load(folder / "d.npz")["one"], np.random.default_rng(2))
    glitches = np.array([[1e7, 0, 0], [0, -1e9, 1e8]])
    np.save(tmp_path / "glitch.npy", np.concatenate([points[:300], glitches, points[300:]]))
    paths = [folder / "a.ply", tmp_path / "glitch.npy"]
    with unchecked():
        whole = coframe.register(paths, options=OPTIONS)
        blocks = coframe.register(
            paths, options=OPTIONS, memory=GENEROUS, output=tmp_path / "blocks"
        )
    whole.save(tmp_path / "whole")
    blocks.save(tmp_path / "blocks")
    np.testing.assert_array_equal(blocks.poses, whole.poses)
    assert whole.outlier_probability[1][300] == whole.outlier_probability[1][301] == 1
    for name in ("merged.ply", "model.ply", "poses.json"):
        assert (tmp_path / "blocks" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes(), name


def test_without_a_folder_nothing_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = registered(folder, memory=GENEROUS)
    assert max(map(len, result.clouds)) <= OPTIONS.points
    assert list(tmp_path.iterdir()) == []
    for saved in (
        result,
        coframe.forget(result, 0),
        coframe.extend(result, result.clouds[0], options=OPTIONS),
    ):
        again = coframe.load(saved.save(tmp_path / "out"))  # with the points at hand
        assert list(map(len, again.clouds)) == list(map(len, saved.clouds))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda points: points * [1, np.nan, 1],
            r"bad\.npy: expected finite coordinates, found .* at point 0 \(300 such",
        ),
        (lambda points: points * [1, 0, 0], r"bad\.npy: expected points that span a surface"),
        (lambda points: points[:2], r"bad\.npy: expected at least 4 points, found 2"),
        (lambda points: points[:, :2], r"bad\.npy: expected 3 coordinates per point"),
        (lambda points: 1e9 * points, r"expected clouds in one unit"),
    ],
    ids=["not finite", "a line", "too few", "the plane", "units"],
)
def test_bad_clouds_are_named_and_no_scratch_is_left(
    folder: Path, tmp_path: Path, spoil: object, message: str
) -> None:
    points = np.random.default_rng(0).normal(size=(300, 3))
    np.save(tmp_path / "bad.npy", spoil(points))
    with pytest.raises(coframe.InputError, match=message):
        coframe.register([folder, tmp_path / "bad.npy"], memory=GENEROUS, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_budget_that_cannot_be_kept_is_refused(folder: Path) -> None:
    with pytest.raises(
        coframe.InputError,
        match=r"memory: expected at least \d+ MB for 4 clouds .*, found 100 MB; allow more",
    ):
        registered(folder, memory="100MB")
    with pytest.raises(coframe.InputError, match="memory: expected clouds in files"):
        coframe.register([np.eye(3)] * 2, memory="1GB")
    with pytest.raises(coframe.InputError, match="weights: expected clouds in memory"):
        registered(folder, memory="1GB", weights=[np.ones(3)])
    assert cost.needed(100, OPTIONS) > cost.needed(4, OPTIONS)


@given(st.integers(0, 10**9), st.sampled_from(["", "B", " b"]))
def test_sizes(value: int, unit: str) -> None:
    assert cost.bytes_of(f"{value}{unit}") == cost.bytes_of(value) == value
    assert cost.bytes_of(f"{value}kB") == 1000 * value


def test_sizes_with_units() -> None:
    assert [cost.bytes_of(text) for text in ("2GB", "1.5 g", "512MiB")] == [
        2 * 10**9,
        15 * 10**8,
        2**29,
    ]
    for wrong in ("", "two", "-1GB", "1PB", "1 G B", True, None):
        with (
            unchecked(),
            pytest.raises(coframe.InputError, match="memory: expected a size such as 2GB"),
        ):
            cost.bytes_of(wrong)


# What getrusage says of a process includes the peak of the one that started it; what Linux keeps in
# /proc does not.
WATCHED = """
import atexit, pathlib
atexit.register(lambda: print(pathlib.Path("/proc/self/status").read_text()))
from coframe.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc"
)
def test_two_million_points_stay_within_their_budget(tmp_path: Path) -> None:
    """The peak that the system saw, of the command in a process of its own."""
    scene = simulate.scene(2, 1000, degrees=30.0, noise_db=45.0, rng=np.random.default_rng(0))
    rng, count = np.random.default_rng(1), 1_000_000
    for j, cloud in enumerate(scene.clouds):
        points = cloud[rng.integers(0, len(cloud), count)] + rng.normal(0, 1e-3, (count, 3))
        np.save(tmp_path / f"scan{j}.npy", points.astype(np.float32))
    files = [str(tmp_path / f"scan{j}.npy") for j in range(2)]
    # 270 MB are for a thread and about 235 for what is imported, which depends on the machine.
    megabytes = 650
    arguments = [
        "--memory",
        f"{megabytes}MB",
        "--components",
        "50",
        "--threads",
        "1",
        "--no-report",
    ]
    command = [
        sys.executable,
        "-c",
        WATCHED,
        "register",
        *files,
        "-o",
        str(tmp_path / "out"),
        *arguments,
    ]
    process = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    announced = int(re.search(r"2 files, about .*, at most (\d+) MB", process.stdout)[1])
    peak = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", process.stdout)[1])
    assert peak < (announced + 1) * 10**6 <= megabytes * 10**6
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "merged.ply",
        "model.ply",
        "poses.json",
        "run.json",
        "state.npz",
    ]
