# SPDX-License-Identifier: MIT
"""Numerical trust: whatever comes in, a number goes out, or one clear sentence says why not."""

import sys
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import InputError, Options, geometry, paper
from coframe.data import simulate
from coframe.io import frames
from coframe.sequence.options import TrackOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.problems import sound

QUICK = Options(components=10, points=100, iterations=2, start="identity", threads=1)
rng = np.random.default_rng(0)
A, B = (
    cloud[:100]
    for cloud in simulate.scene(
        views=2, points=120, degrees=30.0, rng=np.random.default_rng(0)
    ).clouds
)
U = rng.uniform(size=(100, 2))
PLANE = np.c_[U, np.zeros(100)]
GRID = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2)
LINE = np.outer(U[:, 0], [1.0, 2.0, 3.0])
MANY = np.zeros((5000, 3))
DEGENERATE = {
    "planes": [PLANE, PLANE + 0.01],
    "planes across": [PLANE, PLANE[:, [2, 0, 1]]],
    "grids": [np.c_[GRID, np.zeros(100)]] * 2,
    "nearly lines": [LINE + 1e-7 * A, LINE + 1e-7 * B],
    "the same cloud twice": [A, A],
    "points ten times each": [np.repeat(A[:10], 10, 0), np.repeat(B[:10], 10, 0)],
    "one point many times": [np.r_[MANY, A[:20]], np.r_[MANY, B[:20]]],
    "one point many times, in one cloud": [np.r_[MANY, A[:20]], B],
    "most points in one place": [np.r_[np.ones((99, 3)), np.eye(3), np.zeros((1, 3))]] * 2,
    "three places": [np.repeat(np.eye(3), 30, 0)] * 2,
    "no overlap": [A, B + 1000],
    "four points": [A[:4], B[:4]],
    "five points": [A[:5], B[:5]],
    "four points beside many": [A[:4], B],
    "sizes of one and 900,000": [A * 1e-3, B * 9e2],
    "far from the origin": [A + 1e12, B + 1e12],
    "large": [A * 1e12, B * 1e12],
    "as large as can be": [A * 1e98, B * 1e98],
    "as small as can be": [A * 1e-98, B * 1e-98],
    "a glitch": [np.r_[A, A, [[1e9, 0, 0]]], np.r_[B, B]],
    "heavy tails": [rng.standard_cauchy((100, 3)) ** 3, rng.standard_cauchy((100, 3)) ** 3],
    "flat to 1e-9": [A * [1, 1, 1e-9], B * [1, 1, 1e-9]],
    "a sphere": [A / np.linalg.norm(A, axis=1, keepdims=True)] * 2,
    "in the plane": [A[:, :2], B[:, :2]],
    "a line in the plane": [np.c_[U[:, 0], U[:, 0]]] * 2,
    "three points in the plane": [A[:3, :2], B[:3, :2]],
    "two places in the plane": [np.repeat([[0.0, 0.0], [1.0, 0.0]], 50, 0)] * 2,
    "float32": [A.astype(np.float32), B.astype(np.float32)],
    "float16": [A.astype(np.float16), B.astype(np.float16)],
    "whole numbers": [(A * 1000).astype(np.int32), (B * 1000).astype(np.int32)],
    "columns first": [np.asfortranarray(A), np.asfortranarray(B)],
    "every other row": [np.repeat(A, 2, 0)[::2], np.repeat(B, 2, 0)[::2]],
}
REFUSED = {
    "a line": ([LINE, LINE], "one line"),
    "one place": ([np.ones((50, 3)), A], "differ"),
    "3 points": ([A[:3], B], "at least 4 points"),
    "1 point": ([A[:1], B], "at least 4 points"),
    "sizes of one and 10 million": ([A, B * 1e7], "one unit"),
    "too large": ([A * 1e150, B * 1e150], "below 1e+100"),
    "close to the largest number": ([A * 1e308, B * 1e308], "below 1e+100"),
    "too small": ([A * 1e-150, B * 1e-150], "at least 1e-100"),
    "subnormal": ([A * 1e-320, B * 1e-320], "at least 1e-100"),
    "a difference of rounding": ([1 + A * 1e-16, 1 + B * 1e-16], "differ"),
    "too far apart": ([A, B + 1e12], "extents of each other"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_clouds_end_in_a_verdict(name: str) -> None:
    clouds = DEGENERATE[name]
    result = coframe.register(clouds, options=QUICK)
    sound(result)
    if name == "sizes of one and 900,000":
        # seen from the small cloud, the scene has no place
        with pytest.raises(InputError, match="expected clouds within"):
            coframe.extend(result, clouds[0], options=QUICK)
    else:
        sound(coframe.extend(result, clouds[0], options=QUICK))


@pytest.mark.parametrize(
    "name",
    ["planes", "one point many times", "four points", "a glitch", "in the plane"],
)
def test_degenerate_clouds_end_in_a_verdict_from_nothing(name: str) -> None:
    result = coframe.register(
        DEGENERATE[name], options=Options(components=10, points=100, iterations=2, threads=1)
    )
    sound(result)
    # nothing connects these clouds
    assert all(verdict.verdict != "aligned" for verdict in result.verdicts)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused(name: str) -> None:
    clouds, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        coframe.register(clouds, options=QUICK)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_million_times_one_point() -> None:
    cloud = np.r_[np.zeros((1_000_000, 3)), A]
    sound(coframe.register([cloud, B], options=QUICK))


def test_input_is_neither_changed_nor_needed_to_be_writable() -> None:
    clouds = [A.copy(), B.copy()]
    for cloud in clouds:
        cloud.setflags(write=False)
    first = coframe.register(clouds, options=QUICK)
    np.testing.assert_array_equal(first.poses, coframe.register([A, B], options=QUICK).poses)


def test_a_glitch_changes_nothing() -> None:
    """A point a million extents away counts as nothing, and is an outlier for certain."""
    clouds = simulate.scene(views=2, points=300, degrees=30.0, rng=np.random.default_rng(1)).clouds
    glitched = [np.r_[clouds[0], [[1e9, -1e9, 0]]], clouds[1]]
    result = coframe.register(glitched, options=QUICK)
    assert result.outlier_probability[0][-1] == 1
    assert all(verdict.verdict == "aligned" for verdict in result.verdicts)


def test_only_ratios_of_weights_count() -> None:
    weights = [np.linspace(0.5, 1.0, 100), np.ones(100)]
    reference = coframe.register([A, B], options=QUICK, weights=weights)
    for factor in (1e-310, 1e-300, 1e300):
        scaled = [factor * w for w in weights]
        result = coframe.register([A, B], options=QUICK, weights=scaled)
        np.testing.assert_allclose(result.poses, reference.poses, atol=1e-6, err_msg=str(factor))


def test_weights_that_drown_a_cloud_are_refused() -> None:
    with pytest.raises(InputError, match="weights of cloud 0"):
        coframe.register([A, B], options=QUICK, weights=[np.full(100, 1e-200), np.ones(100)])


@pytest.mark.parametrize("fixed", [(0, 1), (0,)])
def test_clouds_that_may_not_move_stay(fixed: tuple[int, ...]) -> None:
    result = coframe.register([A, B], options=QUICK, fixed=fixed)
    sound(result)
    np.testing.assert_allclose(result.poses[0], np.eye(4), atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "planes",
        "most points in one place",
        "large",
        "as large as can be",
        "heavy tails",
        "no overlap",
    ],
)
def test_the_papers_methods_on_degenerate_clouds(name: str) -> None:
    clouds = DEGENERATE[name]
    means = np.asarray(clouds[0], float)[:8]
    sound(paper.batch(clouds, means, iterations=4, threads=1))
    sound(
        paper.incremental(
            clouds, means, np.random.default_rng(0), first_iterations=3, refinements=2, threads=1
        )
    )


@pytest.mark.parametrize(
    ("argument", "value"), [("variances", -1.0), ("poses", np.zeros((2, 4, 4)))]
)
def test_the_papers_methods_check_their_start(argument: str, value: object) -> None:
    with pytest.raises(InputError, match=argument):
        paper.batch([A, B], A[:8], **{argument: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((300, 3)),
        np.ones((300, 3)) * 1e200,
        np.full((300, 3), np.nan),
        np.zeros((0, 3)),
        np.tile(LINE, (3, 1)) * 1e-40,
    ],
)
def test_frames_that_show_nothing_are_lost(frame: np.ndarray) -> None:
    good = np.tile(A, (3, 1)) + 1e-3 * rng.normal(size=(300, 3))
    options = TrackOptions(points=200, components=10, iterations=1, threads=1)
    path = coframe.track(frames.from_arrays([good, frame, good]), options=options)
    assert path.lost.tolist() == [False, True, False]
    assert np.isfinite(path.poses).all()


def test_a_result_of_degenerate_clouds_is_saved_and_reported(tmp_path: Path) -> None:
    result = coframe.register(DEGENERATE["three places"], options=QUICK)
    result.save(tmp_path)
    sound(coframe.load(tmp_path))
    coframe.report.write(result, tmp_path / "report.html")
    assert (
        "NaN" not in (tmp_path / "report.html").read_text().split("</style>")[-1].split("plotly")[0]
    )


def test_units_and_origins_do_not_matter_from_nothing() -> None:
    """From start to end: relative poses in mm and in UTM coordinates are those in metres."""
    scene = simulate.scene(views=3, points=600, degrees=40.0, rng=np.random.default_rng(2))
    turns = np.random.default_rng(5)
    poses = [
        geometry.pose(geometry.random_rotation(turns, 3), turns.normal(size=3))
        for _ in scene.clouds
    ]
    clouds = [geometry.transform(T, cloud) for T, cloud in zip(poses, scene.clouds, strict=True)]
    options = Options(components=100, points=600, iterations=6, threads=1)
    one = coframe.register(clouds, options=options).relative_to(0)
    assert one.start == "matched"
    large = coframe.register([1000 * cloud for cloud in clouds], options=options).relative_to(0)
    scaled = large.poses.copy()
    scaled[:, :3, 3] /= 1000
    np.testing.assert_allclose(scaled, one.poses, atol=1e-9)
    utm = np.array([4.5e5, 5.4e6, 300.0])
    far = coframe.register([cloud + utm for cloud in clouds], options=options).relative_to(0)
    shifted = far.poses.copy()
    shifted[:, :3, 3] += shifted[:, :3, :3] @ utm - utm
    # A rounding of every coordinate is carried through the matching and the fit.
    np.testing.assert_allclose(shifted, one.poses, atol=20 * float(np.spacing(utm.max())))
