# SPDX-License-Identifier: MIT
"""The score of answers made by hand."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import random_poses, unchecked

from coframe import geometry
from coframe.evaluate import limit
from coframe.evaluate.limit import Limit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proving.problem import Answer, Problem
from proving.score import Score, limit_of, pose_errors, score, summary, worse

CLOUDS = 5


def problem(rng, M=CLOUDS, D=3, **options):
    """Clouds of extent 1 about the origin of the common frame, in frames of their own."""
    truth = random_poses(rng, M, D)
    scene = [rng.uniform(-0.5, 0.5, (300, D)) * np.linspace(1, 0.4, D) for _ in range(M)]
    clouds = [geometry.transform(geometry.inverse(T), x) for T, x in zip(truth, scene, strict=True)]
    described = {
        "family": "box",
        "scene": "one",
        "half": "tune",
        "condition": "nothing",
        "seed": 0,
        "kind": "register",
        "start": None,
        "exact": True,
    }
    return Problem(**(described | {"clouds": clouds, "truth": truth} | options))


def answer(p, poses=None, **options):
    """By default: right, in a frame of its own, all aligned in one group."""
    M, D = len(p.clouds), p.truth.shape[-1] - 1
    frame = random_poses(np.random.default_rng(99), 1, D)[0]
    given = {
        "poses": frame @ (p.truth if poses is None else poses),
        "verdicts": ["aligned"] * M,
        "groups": [list(range(M))],
    }
    return Answer(**(given | options))


def moved(p, shifts):
    """The true poses, some of them shifted along the first axis of the common frame."""
    poses = p.truth.copy()
    for j, shift in shifts.items():
        poses[j, 0, -1] += shift
    return poses


def counts(s):
    return s.right, s.wrong, s.unplaced, s.placed, s.silent, s.false_alarms


@pytest.fixture(scope="module", autouse=True)
def _many_small_arrays():
    """Whose shapes take longer to check than their scores to compute."""
    with unchecked():
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("D", [2, 3])
def test_all_right(D, rng) -> None:
    p = problem(rng, D=D)
    s = score(p, answer(p, seconds=2.0, cpu=3.0, memory=4))
    assert counts(s) == (5, 0, 0, 5, 0, 0)
    assert s.angle < 1e-6
    assert s.shift < 1e-9
    assert max(s.errors) < 1e-9
    assert s.ratio is None
    assert (s.seconds, s.cpu, s.memory) == (2, 3, 4)
    assert Score.of(json.loads(json.dumps(s.record()))) == s


@pytest.mark.parametrize("D", [2, 3])
def test_one_wrong_and_called_aligned(D, rng) -> None:
    p = problem(rng, D=D)
    wrong = answer(p, moved(p, {0: 0.2}))  # the first one: no cloud is the reference by its number
    s = score(p, wrong)
    assert counts(s) == (4, 1, 0, 4, 1, 0)
    assert s.silent_unwarned == 1
    assert s.angle is s.shift is None
    assert s.errors[0] == pytest.approx(0.2 / geometry.extent(p.clouds[0]))
    assert max(s.errors[1:]) < 1e-9
    assert score(p, replace(wrong, warnings=["ambiguous"])).silent_unwarned == 0
    honest = replace(wrong, verdicts=["weak"] + ["aligned"] * 4)
    assert counts(score(p, honest)) == (4, 1, 0, 4, 0, 0)


def test_turned_by_a_few_degrees_about_itself(rng) -> None:
    """Displacements are those of points, not of frames, wherever the frame's origin is."""
    p = problem(rng)
    errors = []
    for degrees in (2.0, 20.0):
        turn = geometry.pose(geometry.exp_rotation(np.radians([0, 0, degrees])), np.zeros(3))
        poses = p.truth.copy()
        poses[2] = turn @ poses[2]
        errors.append(score(p, answer(p, poses)).errors[2])
        x = geometry.transform(p.truth[2], p.clouds[2])
        apart = np.linalg.norm(geometry.transform(turn, x) - x, axis=1)
        expected = np.sqrt((apart**2).mean()) / geometry.extent(p.clouds[2])
        # Where the cloud is right it has its part in the motion of the group, here a fifth.
        assert errors[-1] == pytest.approx(expected * (0.8 if degrees < 5 else 1), rel=0.05)
    assert errors[0] < 0.05 < errors[1]


def test_one_noisy_reference_does_not_count(rng) -> None:
    """Off by 3 % to either side: right, since neither is the reference."""
    p = problem(rng)
    s = score(p, answer(p, moved(p, {0: 0.03, 1: -0.03})))
    assert counts(s) == (5, 0, 0, 5, 0, 0)


def test_groups_have_their_own_frames(rng) -> None:
    p = problem(rng)
    other = random_poses(rng, 1, 3)[0]
    poses = np.concatenate([p.truth[:3], other @ p.truth[3:]])
    s = score(p, answer(p, poses, groups=[[0, 1, 2], [3, 4]]))
    assert counts(s) == (5, 0, 0, 5, 0, 0)
    assert s.angle is None  # relative to cloud 0 nothing is said about the second group
    # The same poses in one group: the smaller part is wrong.
    assert counts(score(p, answer(p, poses))) == (3, 2, 0, 3, 2, 0)


def test_wrong_group(rng) -> None:
    p = problem(rng)
    s = score(p, answer(p, moved(p, {4: 0.3}), groups=[[0, 1, 2], [3, 4]]))
    # Of two clouds that do not fit each other neither is right.
    assert counts(s) == (3, 2, 0, 3, 2, 0)


def test_alone_is_not_placed(rng) -> None:
    p = problem(rng)
    verdicts = ["aligned"] * 4 + ["failed"]
    s = score(p, answer(p, moved(p, {4: 0.3}), groups=[[0, 1, 2, 3], [4]], verdicts=verdicts))
    assert counts(s) == (4, 0, 1, 4, 0, 0)
    assert s.errors[4] is None
    in_no_group = answer(p, groups=[[0, 1, 2, 3]], verdicts=verdicts)
    assert counts(score(p, in_no_group)) == (4, 0, 1, 4, 0, 0)


def test_right_but_called_failed(rng) -> None:
    p = problem(rng)
    s = score(p, answer(p, verdicts=["failed", "weak", "aligned", "aligned", "aligned"]))
    assert counts(s) == (5, 0, 0, 4, 0, 2)


@pytest.mark.parametrize("position", [0, 4])
def test_foreign_cloud(position, rng) -> None:
    p = problem(rng, foreign=(position,))
    verdicts = ["aligned"] * 5
    verdicts[position] = "failed"
    noticed = score(p, answer(p, moved(p, {position: 7.0}), verdicts=verdicts))
    assert counts(noticed) == (5, 0, 0, 4, 0, 0)
    assert noticed.placeable == 4
    assert noticed.angle < 1e-6
    taken = score(p, answer(p))
    assert counts(taken) == (4, 1, 0, 4, 1, 0)
    assert noticed.errors[position] is taken.errors[position] is None


def test_no_answer(rng) -> None:
    p = problem(rng)
    s = score(p, Answer(None, error="timed out after 60 s", seconds=60.0))
    assert counts(s) == (0, 0, 5, 0, 0, 0)
    assert s.timed_out
    assert not score(p, Answer(None, error="InputError: no")).timed_out
    assert score(p, Answer(None)).error == "no poses"
    lost = answer(p)
    lost.poses[3] = np.nan
    assert counts(score(p, lost)) == (4, 1, 0, 4, 1, 0)


@pytest.mark.parametrize("D", [2, 3])
def test_symmetric_structures(D, rng) -> None:
    turn = geometry.exp_rotation(np.radians([90.0] if D == 2 else [0, 0, 90.0]))
    quarter = geometry.pose(turn, np.zeros(D))
    poses = (p := problem(rng, D=D, symmetry=4)).truth.copy()
    poses[1] = quarter @ poses[1]
    poses[2] = quarter @ quarter @ poses[2]
    s = score(p, answer(p, poses))
    assert counts(s) == (5, 0, 0, 5, 0, 0)
    assert s.angle < 1e-6
    assert score(replace(p, symmetry=2), answer(p, poses)).silent == 1
    assert score(replace(p, symmetry=1), answer(p, poses)).silent == 2


def test_clutter_has_no_part_in_the_error(rng) -> None:
    p = problem(rng)
    clutter = rng.uniform(-5, 5, (100, 3))
    normals = [np.concatenate([np.ones((300, 3)), np.zeros((100, 3))])] * 5
    cluttered = replace(p, clouds=[np.concatenate([c, clutter]) for c in p.clouds], normals=normals)
    wrong = answer(p, moved(p, {1: 0.1}))
    assert score(cluttered, wrong).errors == pytest.approx(score(p, wrong).errors)


def test_accuracy_over_the_limit(rng) -> None:
    """Errors drawn from the limit's own covariance are, in the mean, the limit's."""
    p = problem(rng, M=4)
    turn, move = np.radians(0.05), 2e-4
    C = np.kron(np.eye(3) + 1, np.diag([turn**2] * 3 + [move**2] * 3))
    mean_turn, mean_move = (np.sqrt(16 / np.pi) * x for x in (turn, move))
    centre = np.array([0.1, 0.2, -0.3])
    zeros = np.zeros(4)
    best = Limit(mean_turn, mean_move, zeros, zeros, C, centre, 100, 0.0)
    drawn = []
    for _ in range(100):
        twists = np.concatenate(
            [np.zeros((1, 6)), rng.multivariate_normal(np.zeros(18), C).reshape(3, 6)]
        )
        drawn.append(
            score(p, answer(p, geometry.about(geometry.exp(twists), centre) @ p.truth), best)
        )
    assert np.mean([s.ratio_angle for s in drawn]) == pytest.approx(1, abs=0.08)
    assert np.mean([s.ratio_shift for s in drawn]) == pytest.approx(1, abs=0.08)
    s = drawn[0]
    assert s.ratio == pytest.approx(np.sqrt(s.ratio_angle * s.ratio_shift))
    sliding = score(p, answer(p), replace(best, shift=np.inf))
    assert sliding.ratio_shift is None
    assert sliding.ratio == sliding.ratio_angle
    assert score(replace(p, exact=False), answer(p), best).ratio is None


def test_limit_of_a_problem(rng) -> None:
    p = problem(rng)
    assert limit_of(p) is None  # neither noise nor surface is known
    axis = np.tile(np.arange(3), 100)
    bodies = [rng.uniform(-0.5, 0.5, (300, 3)) for _ in range(5)]
    normals = np.eye(3)[axis]
    for x in bodies:
        x[np.arange(300), axis] = 0.5
    turned = [normals @ geometry.rotation(T) for T in p.truth]
    p = replace(
        p,
        clouds=[
            geometry.transform(geometry.inverse(T), x) for T, x in zip(p.truth, bodies, strict=True)
        ],
        normals=turned,
        sigma=[0.01] * 5,
    )
    known = limit_of(p)
    expected = limit(p.clouds, p.truth, sigma=0.01, normals=turned, rng=np.random.default_rng(0))
    assert known.angle == expected.angle
    assert len(limit_of(replace(p, foreign=(0,))).angles) == 4
    assert limit_of(replace(p, exact=False)) is None


@pytest.mark.parametrize("D", [2, 3])
def test_covariances_that_are_true(D, rng) -> None:
    """Errors drawn in the gauge of the average cloud; the covariances state their size."""
    P, size = geometry.degrees_of_freedom(D), 1e-3
    scores, halved = [], []
    for _ in range(30):
        p = problem(rng, D=D)
        twists = rng.normal(0, size, (CLOUDS, P))
        twists -= twists.mean(0)
        variance = size**2 * (1 - 1 / CLOUDS)
        poses = geometry.exp(twists) @ p.truth  # about the origin of the common frame
        frame = random_poses(rng, 1, D)[0]
        turn = np.zeros((P, P))
        R = geometry.rotation(frame)
        turn[: P - D, : P - D] = R if D == 3 else 1
        turn[P - D :, P - D :] = R
        medians = [
            geometry.transform(T, np.median(c, 0)[None])[0]
            for T, c in zip(p.truth, p.clouds, strict=True)
        ]
        levers = np.array([turn @ geometry.lever(m) for m in medians])
        C = variance * levers @ np.swapaxes(levers, 1, 2)
        given = answer(p, poses=poses, covariance=C)
        scores.append(score(p, replace(given, poses=frame @ poses)))
        halved.append(score(p, replace(given, poses=frame @ poses, covariance=C / 4)))
    pooled, too_small = summary(scores), summary(halved)
    assert pooled["calibrated"] == 150
    # The clouds of a problem share their mean: a little less independent than 150 P squares.
    assert pooled["calibration"] == pytest.approx(1, abs=4 * np.sqrt(2 / (150 * P)))
    assert pooled["inside"] == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 150))
    assert too_small["calibration"] == pytest.approx(4 * pooled["calibration"])
    assert too_small["inside"] < 0.7


def test_pose_errors_do_not_depend_on_the_frame(rng) -> None:
    p = problem(rng)
    twists = rng.normal(0, 1e-3, (CLOUDS, 6))
    poses = geometry.exp(twists) @ p.truth
    shift = geometry.pose(np.eye(3), np.array([50.0, -20.0, 3.0]))
    np.testing.assert_allclose(
        pose_errors(shift @ poses, p.truth, p.clouds),
        pose_errors(poses, p.truth, p.clouds),
        atol=1e-8,
    )


def test_no_calibration_where_a_cloud_is_wrong(rng) -> None:
    p = problem(rng)
    C = np.tile(np.eye(6), (CLOUDS, 1, 1))
    assert score(p, answer(p, covariance=C)).calibrated == 5
    assert score(p, answer(p, moved(p, {0: 0.2}), covariance=C)).calibration is None
    singular = C.copy()
    singular[0] = 0  # of a fixed cloud
    assert score(p, answer(p, covariance=singular)).calibrated == 4


def test_track(rng) -> None:
    M = 20
    p = problem(rng, M=M, kind="track")
    verdicts = ["aligned"] * 18 + ["failed"] * 2
    poses = moved(p, {5: 0.3, 18: 4.0, 19: 4.0})
    s = score(p, answer(p, poses, verdicts=verdicts, groups=[]))
    assert (s.right, s.wrong, s.placed, s.silent, s.lost) == (17, 3, 17, 1, 2)
    # One of 18 positions is off by 0.3; the best motion shares a little of it.
    assert s.ate == pytest.approx(0.3 / np.sqrt(18), rel=0.1)
    assert s.ratio is s.angle is None
    assert score(p, Answer(None, error="timed out")).lost == M


def test_summary(rng) -> None:
    p = problem(rng)
    good, bad = score(p, answer(p)), score(p, answer(p, moved(p, {0: 0.2})))
    failed = score(p, Answer(None, error="crashed"))
    rated = [replace(good, ratio=r) for r in (1.0, 1.2, 4.0)]
    s = summary([*rated, bad, failed])
    assert (s["problems"], s["clouds"], s["placed"]) == (5, 25, 19)
    assert s["share_placed"] == pytest.approx(0.76)
    assert 0.1 < s["share_placed_error"] < 0.3
    assert (s["silent"], s["silent_problems"], s["errors"], s["all_placed"]) == (1, 1, 1, 3)
    assert s["silent_interval"][0] < 0.2 < s["silent_interval"][1]
    assert (s["ratio_median"], s["ratio_worst"], s["rated"]) == (1.2, 4.0, 3)
    assert s["calibration"] is None
    json.dumps(s)
    assert summary([]) == {"problems": 0}


def runs(rng, count, *, factor=1.0, spread=0.2, lost=0):
    """Two runs of the same problems: the second with other chance, less accurate, with losses."""
    p = problem(rng)
    base = score(p, answer(p))
    accuracy = np.exp(rng.normal(0.3, 0.5, count))
    ways = [
        {"placed": 3, "right": 3, "wrong": 2, "silent": 2, "ratio": None},
        {"placed": 5, "right": 5},
    ]
    before = [replace(base, name=str(k), ratio=float(a)) for k, a in enumerate(accuracy)]
    now = [
        replace(s, **ways[k >= lost], **({} if k < lost else {"ratio": s.ratio * factor * chance}))
        for k, (s, chance) in enumerate(
            zip(before, np.exp(rng.normal(0, spread, count)), strict=True)
        )
    ]
    return now, before


def test_worse_fires_on_a_loss_and_not_on_noise(rng) -> None:
    assert worse(*runs(rng, 30, factor=1.4))[0].startswith("errors over the limit are larger")
    losses = worse(*runs(rng, 30, lost=10))
    assert [text.split(":")[0] for text in losses] == [
        "fewer clouds are placed",
        "more clouds are wrong and called aligned",
    ]
    now, before = runs(rng, 30, factor=1.4, lost=10)
    assert worse(before, now) == []  # a gain
    assert worse(before, before) == []
    assert worse(*runs(rng, 30, lost=3)) == []
    assert sum(bool(worse(*runs(rng, 30))) for _ in range(50)) <= 3
    # Rounding on another machine, always to the same side, is no loss.
    assert worse(*runs(rng, 30, factor=1.002, spread=0.0)) == []


def test_gains_and_losses_of_placed_clouds_cancel(rng) -> None:
    now, before = runs(rng, 40, lost=8)
    rest = runs(rng, 40, lost=8)
    gained = [replace(s, name="other " + s.name) for s in rest[1]]
    had = [replace(s, name="other " + s.name) for s in rest[0]]
    assert worse(now, before)
    assert worse(now + gained, before + had) == []


@pytest.mark.parametrize("D", [2, 3])
def test_records_are_saved_and_loaded(D, rng, tmp_path) -> None:
    p = problem(rng, D=D, sigma=[0.1, np.full(300, 0.2), 0.1, 0.1, 0.1], foreign=(2,), symmetry=8)
    p.save(tmp_path / "problem")
    q = Problem.load(tmp_path / "problem")
    assert q.name == p.name == "box/one/nothing/tune/0"
    assert (q.foreign, q.symmetry, q.start, q.normals) == ((2,), 8, None, None)
    assert q.sigma[0] == 0.1
    for a, b in zip(
        [*p.clouds, p.truth, p.sigma[1]], [*q.clouds, q.truth, q.sigma[1]], strict=True
    ):
        np.testing.assert_array_equal(a, b)
    given = answer(p, warnings=["ambiguous"], seconds=1.5, memory=7)
    given.save(tmp_path / "answer")
    assert score(p, Answer.load(tmp_path / "answer")) == score(p, given)
    Answer(None, error="timed out").save(tmp_path / "answer")
    assert Answer.load(tmp_path / "answer").poses is None
