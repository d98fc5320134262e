# SPDX-License-Identifier: MIT
"""What comes in is good, or refused in one sentence that names it."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coframe import geometry
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError
from coframe.geometry import extent
from coframe.input.checks import as_clouds
from coframe.input.normalise import Normalisation

rng = np.random.default_rng(0)
GOOD = rng.normal(size=(20, 3))
NAN = np.where(np.arange(60).reshape(20, 3) == 31, np.nan, GOOD)


@pytest.mark.parametrize(
    ("clouds", "words"),
    [
        ([], ["at least two clouds", "found 0"]),
        ([GOOD], ["at least two clouds", "found 1"]),
        (GOOD, ["single array"]),
        ([GOOD, GOOD[:3]], ["cloud 1", "at least 4 points", "found 3"]),
        ([GOOD, GOOD[:, 0]], ["cloud 1", "(N, 2) or (N, 3)", "(20,)"]),
        ([GOOD, np.ones((20, 4))], ["cloud 1", "(20, 4)"]),
        ([NAN, GOOD], ["cloud 0", "finite", "point 10"]),
        ([GOOD, np.where(np.isnan(NAN), np.inf, NAN)], ["cloud 1", "finite", "inf"]),
        ([GOOD, np.ones((20, 3)) * 4.2], ["cloud 1", "differ", "4.2"]),
        ([GOOD, np.ones((20, 3)) * 4.4e6 + 1e-10 * GOOD], ["cloud 1", "differ"]),
        ([GOOD, np.outer(np.arange(20.0), [1, 2, 3])], ["cloud 1", "one line"]),
        ([GOOD, GOOD[:, :2]], ["cloud 1", "3 coordinates", "found 2"]),
        ([GOOD, GOOD * 1e7], ["cloud 0", "units"]),
        ([GOOD, [["a", "b", "c"]] * 5], ["cloud 1", "real numbers", "list"]),
        ([GOOD, GOOD + 1j], ["cloud 1", "real numbers", "complex"]),
        ([GOOD, None], ["cloud 1", "real numbers", "NoneType"]),
        ([GOOD, [[1, 2], [3]]], ["cloud 1", "real numbers"]),
    ],
)
def test_bad_input_is_named(clouds: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        as_clouds(clouds)  # type: ignore[arg-type]
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_names_appear_in_messages() -> None:
    with pytest.raises(InputError, match=r"^scan2\.ply: "):
        as_clouds([GOOD, NAN], names=["scan1.ply", "scan2.ply"])


@pytest.mark.parametrize(
    "wrap",
    [lambda c: SimpleNamespace(points=c), lambda c: SimpleNamespace(vertices=c), np.ndarray.tolist],
)
def test_anything_with_points_or_vertices_is_a_cloud(wrap) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_array_equal(as_clouds([wrap(GOOD), GOOD])[0], GOOD)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.float64, ">f8"])
def test_any_real_type_becomes_double(dtype: str) -> None:
    cloud = (GOOD * 20 + 100).astype(dtype)
    (first, _) = as_clouds([cloud, GOOD])
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, cloud)


def test_a_cloud_is_copied() -> None:
    original = GOOD.copy()
    as_clouds([original, GOOD])[0][:] = 0
    np.testing.assert_array_equal(original, GOOD)


def test_a_plane_is_a_good_cloud() -> None:
    as_clouds([GOOD * [1, 1, 0], GOOD])


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int16]),
        st.tuples(st.integers(0, 12), st.integers(1, 4)),
        elements=st.one_of(st.integers(-3, 3), st.sampled_from([0, 1])),
    )
)
def test_any_array_is_accepted_or_refused(array: np.ndarray) -> None:
    try:
        clouds = as_clouds([array, array])
    except InputError as error:
        assert str(error).startswith(("cloud 0: expected", "cloud 1: expected"))
    else:
        assert all(np.isfinite(c).all() and len(c) > c.shape[1] for c in clouds)


def test_extent_ignores_a_stray_point() -> None:
    points = np.concatenate([rng.uniform(size=(1000, 3)), [[1e5, 0, 0]]])
    assert 0.9 < extent(points) < 1.1


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("shift", [0.0, 4.4e6])
def test_frames_enter_and_leave(D: int, shift: float) -> None:
    clouds = [rng.normal(size=(50, D)) * 7 + shift for _ in range(3)]
    frames = Normalisation.of(clouds)
    inside = frames.enter(clouds)
    assert max(map(extent, inside)) == pytest.approx(1)
    assert all(np.abs(np.median(c, axis=0)).max() < 1e-9 for c in inside)

    poses = np.array(
        [geometry.pose(geometry.random_rotation(rng, D), rng.normal(size=D)) for _ in clouds]
    )
    origin = geometry.transform(poses[0], clouds[0]).mean(0)
    internal = frames.enter_poses(poses, origin)
    rounding = 1e-14 * (1 + shift)
    np.testing.assert_allclose(
        frames.leave_poses(internal, origin), poses, rtol=0, atol=100 * rounding
    )
    for j in range(3):  # a point goes the same way on both sides of the border
        np.testing.assert_allclose(
            geometry.transform(internal[j], inside[j]) * frames.scale + origin,
            geometry.transform(poses[j], clouds[j]),
            rtol=0,
            atol=100 * rounding,
        )


def test_mixtures_and_moments_cross_the_border() -> None:
    frames, origin = Normalisation(np.zeros((2, 3)), 4.0), np.array([1.0, 2.0, 3.0])
    A = rng.normal(size=(5, 3, 3))
    mixture = Mixture(rng.normal(size=(5, 3)), A @ A.transpose(0, 2, 1), np.full(5, 0.2), 0.3)
    inside = frames.enter_mixture(mixture, origin)
    back = frames.leave_mixture(inside, origin)
    np.testing.assert_allclose(back.means, mixture.means)
    np.testing.assert_allclose(back.covariances, mixture.covariances)
    assert back.outlier_density == pytest.approx(mixture.outlier_density)
    assert inside.outlier_density == pytest.approx(0.3 * 4**3)  # per volume
    x = rng.normal(size=(9, 3))
    user = x * 4 + origin
    one = [np.ones((9, 1)), (x - inside.means[0])[:, None]]
    moments = Moments(
        inside.means[:1], one[0].sum(0), one[1].sum(0), (one[1] ** 2).sum((0, 2)), np.array(9.0)
    )
    out = frames.leave_moments(moments, origin)
    np.testing.assert_allclose(out.about + out.first / out.mass[:, None], user.mean(0)[None])
    np.testing.assert_allclose(out.second, [((user - mixture.means[0]) ** 2).sum()])
