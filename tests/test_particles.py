# SPDX-License-Identifier: MIT
"""`fuse`: copies of a structure with missing labels come into one frame, and doubt is said."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.data.simulate.particles import particles, sites
from coframe.particles import density_kernels as kernels
from coframe.particles.fuse import halves, margin_of
from coframe.particles.recipe import FuseRecipe
from coframe.particles.resolution import fourier_correlation, resolution
from coframe.particles.search import (
    Found,
    Level,
    Motions,
    Particles,
    no_symmetry,
    outlier_share,
    rotations,
)
from coframe.particles.sites import Sites, _step
from coframe.particles.symmetry import find_symmetry

SCANS = particles(np.random.default_rng(0), kind="letters", count=24, labelled=0.8)


def errors(poses: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Degrees and nm of each particle, after the common motion that fits most of them."""
    best = (-1, np.zeros(0), np.zeros(0))
    for j in range(len(poses)):
        off = truth[j] @ np.linalg.inv(poses[j]) @ poses @ np.linalg.inv(truth)
        turns = np.degrees(geometry.angle(geometry.rotation(off)))
        shifts = np.linalg.norm(geometry.translation(off), axis=1)
        right = int(((turns < 10) & (shifts < 10)).sum())
        if right > best[0]:
            best = (right, turns, shifts)
    return best[1], best[2]


@pytest.fixture(scope="module")
def fused() -> coframe.Fusion:
    return coframe.fuse(SCANS.clouds, SCANS.sigma, threads=2)


def test_letters_come_into_one_frame(fused: coframe.Fusion) -> None:
    turns, shifts = errors(fused.poses, SCANS.poses)
    right = (turns < 10) & (shifts < 10)
    assert right.mean() >= 0.9
    aligned = np.array([fit.verdict == "aligned" for fit in fused.verdicts])
    assert not (aligned & ~right).any()
    assert aligned.mean() > 0.5
    assert fused.symmetry_found == 1
    assert fused.warnings == ()


def test_a_reason_reads_well_for_one_particle_and_for_many(fused: coframe.Fusion) -> None:
    """The report says "17 particles weak, because ..." in one line."""
    assert not any("it" in fit.reason.split() for fit in fused.verdicts)


def test_progress_is_told_in_random_starts_too() -> None:
    """They take half of the time or more."""
    steps: list[tuple[str, float]] = []
    coframe.fuse(SCANS.clouds, SCANS.sigma, on_step=lambda what, share: steps.append((what, share)))
    shares = [share for _, share in steps]
    assert shares == sorted(shares)
    assert shares[-1] < 1
    assert sum("random start" in what for what, _ in steps) >= 8
    assert len({share for what, share in steps if "random start" in what}) >= 8


def test_sites_are_found_without_the_blur(fused: coframe.Fusion) -> None:
    turns, shifts = errors(fused.poses, SCANS.poses)
    j = int(np.argmin(turns + shifts))
    moved = geometry.transform(SCANS.poses[j] @ np.linalg.inv(fused.poses[j]), fused.mixture.means)
    distance = np.linalg.norm(sites("letters")[:, None] - moved, axis=2).min(1)
    assert (distance < 4).mean() > 0.9
    assert fused.visibility.shape == (24, len(moved))


def test_threads_scale_and_shift_change_nothing(fused: coframe.Fusion) -> None:
    # A power of two scales without rounding; the shift rounds.
    other = coframe.fuse(
        [4 * points + [256, -512] for points in SCANS.clouds],
        [4 * sigma for sigma in SCANS.sigma or ()],
        threads=1,
    )
    np.testing.assert_allclose(
        geometry.rotation(other.poses), geometry.rotation(fused.poses), atol=1e-6
    )
    assert other.resolution == pytest.approx(4 * fused.resolution, rel=1e-6)


def test_the_correlation_depends_little_on_the_halves(
    fused: coframe.Fusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spread() -> float:
        curves = [halves(SCANS.clouds, fused.poses, seed, 300.0)[1] for seed in range(4)]
        return float(np.std(curves, axis=0).mean())

    several = spread()
    monkeypatch.setattr("coframe.particles.fuse.SPLITS", 1)
    assert several < 0.6 * spread()


def test_the_result_is_saved(fused: coframe.Fusion, tmp_path: Path) -> None:
    fused.save(tmp_path)
    content = json.loads((tmp_path / "fusion.json").read_text())
    assert [row["verdict"] for row in content["particles"]] == [f.verdict for f in fused.verdicts]
    with np.load(tmp_path / "fusion.npz") as stored:
        assert np.array_equal(stored["poses"], fused.poses)


@pytest.mark.parametrize(
    ("clouds", "sigma", "message"),
    [
        ([np.zeros((5, 2))] * 3, None, "at least 4"),
        ([np.zeros((5, 2))] * 4 + [np.zeros((2, 2))], None, "particle 4"),
        ([np.zeros((5, 2))] * 4 + [np.zeros((5, 3))], None, "particle 4"),
        ([np.full((5, 2), np.nan)] * 4, None, "not finite"),
        ([np.zeros((5, 2))] * 4, [np.ones(5)] * 3, "4 arrays"),
        ([np.zeros((5, 2))] * 4, [np.ones(4)] * 4, "sigma of particle 0"),
        ([np.zeros((5, 2))] * 4, [-np.ones(5)] * 4, "not negative"),
        ([np.zeros((5, 2))] * 4, None, "coincide"),
    ],
)
def test_bad_input_is_named(clouds: list, sigma: object, message: str) -> None:
    with pytest.raises(coframe.InputError, match=message):
        coframe.fuse(clouds, sigma)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symmetry": 0}, "symmetry: expected 1 to 12, found 0"),
        ({"classes": 7}, "classes: expected 1 to 6 for 24 particles, found 7"),
        ({"template": np.zeros((5, 3))}, "template: expected at least 3 rows of 2"),
        ({"template": np.zeros((5, 2))}, "not all the same"),
        ({"template": sites("letters"), "classes": 2}, "expected one class"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(coframe.InputError, match=message):
        coframe.fuse(SCANS.clouds, **options)


def test_a_template_gives_the_frame_and_the_start() -> None:
    shift = np.array([300.0, -200.0])
    fused = coframe.fuse(SCANS.clouds, SCANS.sigma, template=sites("letters") + shift, threads=2)
    assert len(fused.scores) == 0
    truth = SCANS.poses.copy()
    truth[:, :2, 2] += shift
    off = fused.poses @ np.linalg.inv(truth)
    turns = np.degrees(geometry.angle(geometry.rotation(off)))
    assert (turns < 10).mean() >= 0.9
    distance = np.linalg.norm(sites("letters")[:, None] + shift - fused.mixture.means, axis=2)
    assert (distance.min(1) < 4).mean() > 0.9


def test_two_structures_become_two_classes() -> None:
    rng = np.random.default_rng(4)
    kinds = [particles(rng, kind=kind, count=24, labelled=0.9) for kind in ("letters", "grid")]
    clouds = [cloud for scans in kinds for cloud in scans.clouds]
    sigma = [each for scans in kinds for each in scans.sigma or ()]
    fused = coframe.fuse(clouds, sigma, classes=2, threads=2)
    assert len(fused.structures) == 2
    first, second = fused.classes[:24], fused.classes[24:]
    wrong = min((first != 0).sum() + (second != 1).sum(), (first != 1).sum() + (second != 0).sum())
    assert wrong <= 2
    for own, scans in zip((slice(0, 24), slice(24, 48)), kinds, strict=True):
        turns, shifts = errors(fused.poses[own], scans.poses)
        right = (turns < 10) & (shifts < 10)
        assert right.mean() >= 0.9
        aligned = np.array([fit.verdict == "aligned" for fit in fused.verdicts[own]])
        assert not (aligned & ~right).any()


def test_far_points_change_nothing_but_themselves() -> None:
    # One in fifty points is far away: no larger grid, no other centre.
    far = [np.concatenate([cloud, [[1e5, -2e5]]]) for cloud in SCANS.clouds]
    sigma = [np.append(np.ravel(each), 3.0) for each in SCANS.sigma or ()]
    fused = coframe.fuse(far, sigma, threads=2)
    turns, shifts = errors(fused.poses, SCANS.poses)
    assert ((turns < 10) & (shifts < 10)).mean() >= 0.9


def test_a_bright_site_does_not_win() -> None:
    scans = particles(np.random.default_rng(5), kind="letters", count=24, labelled=0.8)
    # One site of each particle is seen ten times as often.
    rng = np.random.default_rng(6)
    clouds = []
    for cloud in scans.clouds:
        spot = cloud[rng.integers(len(cloud))]
        clouds.append(np.concatenate([cloud, spot + 3 * rng.normal(size=(30, 2))]))
    fused = coframe.fuse(clouds, 3.0, threads=2)
    turns, shifts = errors(fused.poses, scans.poses)
    right = (turns < 10) & (shifts < 10)
    assert right.mean() >= 0.8
    aligned = np.array([fit.verdict == "aligned" for fit in fused.verdicts])
    assert not (aligned & ~right).any()


def test_particles_of_nothing_are_not_called_aligned() -> None:
    rng = np.random.default_rng(8)
    fused = coframe.fuse([rng.normal(size=(40, 2)) for _ in range(24)], 0.05, threads=2)
    assert not any(fit.verdict == "aligned" for fit in fused.verdicts)
    assert "no two random starts" in " ".join(fused.warnings)


def test_a_particle_of_nothing_among_others_is_not_called_aligned() -> None:
    rng = np.random.default_rng(9)
    noise = [rng.uniform(-60, 60, (50, 2)) for _ in range(2)]
    sigma = [*(SCANS.sigma or ()), *(np.full(50, 3.0) for _ in noise)]
    fused = coframe.fuse([*SCANS.clouds, *noise], sigma, threads=2)
    assert all(fit.verdict != "aligned" for fit in fused.verdicts[-2:])


def placed(kind: str) -> tuple[Particles, Motions]:
    """Simulated particles in radii, at their true poses."""
    scans = particles(np.random.default_rng(3), kind=kind, count=30)
    moved = [geometry.transform(T, c) for T, c in zip(scans.poses, scans.clouds, strict=True)]
    points = np.zeros((sum(map(len, moved)), 3))
    points[:, : moved[0].shape[1]] = np.concatenate(moved) / 55
    first = np.concatenate([[0], np.cumsum([len(c) for c in moved])])
    given = Particles(points, np.zeros_like(points), first, moved[0].shape[1])
    return given, Motions(np.tile(np.eye(3), (30, 1, 1)), np.zeros((30, 3)))


@pytest.mark.parametrize(("kind", "order", "motions"), [("letters", 1, 1), ("ring", 8, 8)])
def test_the_order_of_a_symmetry_is_found(kind: str, order: int, motions: int) -> None:
    recipe = FuseRecipe()
    given, at = placed(kind)
    level = Level(given, recipe.fine_blur, recipe, 2.0)
    found, group, _ = find_symmetry(level, at, recipe, tuple(range(2, 13)))
    assert (found, len(group.t)) == (order, motions)


def test_a_symmetric_pose_is_no_rival() -> None:
    turn = rotations(2, np.pi / 2)
    modes = Found(turn[:3], np.zeros((3, 3)), np.array([10.0, 9.0, 2.0]))
    rivals = np.log(np.exp(9.0) + np.exp(2.0))
    assert margin_of(modes, no_symmetry(), 0.3) == pytest.approx(10 - rivals)
    half = Motions(turn[:2], np.zeros((2, 3)))
    assert margin_of(modes, half, 0.3) == 8


def test_a_pose_that_is_found_twice_is_one_rival() -> None:
    turn = rotations(2, np.pi / 2)[[0, 1, 1]]
    modes = Found(turn, np.zeros((3, 3)), np.array([10.0, 9.0, 9.0]))
    assert margin_of(modes, no_symmetry(), 0.3) == pytest.approx(1)


def test_shifts_at_the_same_rotation_are_candidates_of_their_own() -> None:
    # Two places that fit a point as well, 10 cells apart.
    table = np.zeros((41, 41, 1))
    table[15, 20] = table[25, 20] = 1.0
    shifts = np.array([[a, 0, 0] for a in range(-8, 9)])
    R, t = np.zeros((2, 3, 3)), np.zeros((2, 3))
    origin = np.array([-20.0, -20.0, 0.0])
    count = kernels.find_candidates(
        table, np.zeros((1, 3)), np.ones(1), np.eye(3)[None], shifts, origin, 1.0, 1.0, 3.0, R, t
    )
    assert count == 2
    assert sorted(t[:, 0]) == [-5.0, 5.0]


def test_the_share_of_outliers_is_found() -> None:
    given, at = placed("letters")
    level = Level(given, 0.05, FuseRecipe(), 2.0)
    clean = outlier_share(level, [at], [no_symmetry()], np.zeros(30, int))
    rng = np.random.default_rng(0)
    stray = given.points.copy()
    chosen = rng.random(len(stray)) < 0.3
    stray[chosen, :2] = rng.uniform(-2, 2, (int(chosen.sum()), 2))
    level = Level(replace(given, points=stray), 0.05, FuseRecipe(), 2.0)
    found = outlier_share(level, [at], [no_symmetry()], np.zeros(30, int))
    # Strays make a density of their own, which explains some of them.
    assert found > clean + 0.1


def test_sparse_labels_show_the_structure() -> None:
    # About seven of eighteen sites, each localised three times.
    rng = np.random.default_rng(11)
    scans = particles(rng, kind="letters", count=200, labelled=0.4)
    fused = coframe.fuse(scans.clouds, scans.sigma, threads=2)
    turns, shifts = errors(fused.poses, scans.poses)
    right = (turns < 10) & (shifts < 10)
    aligned = np.array([fit.verdict == "aligned" for fit in fused.verdicts])
    assert right.mean() > 0.8
    assert aligned.sum() >= 80
    # A particle is called aligned at odds of 200 to 1.
    assert (aligned & ~right).sum() <= 1


def test_few_precise_labels_show_the_structure() -> None:
    # About five of eighteen sites, each localised three times and precisely.
    rng = np.random.default_rng(12)
    scans = particles(rng, kind="letters", count=80, labelled=0.3, sigma=1.0)
    fused = coframe.fuse(scans.clouds, scans.sigma, threads=2)
    turns, shifts = errors(fused.poses, scans.poses)
    right = (turns < 10) & (shifts < 10)
    assert right.mean() > 0.7
    assert fused.reproduced > 0.8


def test_right_particles_of_imprecise_points_are_called_aligned() -> None:
    rng = np.random.default_rng(1)
    scans = particles(rng, kind="letters", count=30, labelled=0.8, sigma=5.0)
    fused = coframe.fuse(scans.clouds, scans.sigma, threads=2)
    aligned = np.array([fit.verdict == "aligned" for fit in fused.verdicts])
    assert aligned.mean() > 0.4


def test_a_climb_ends_at_the_nearest_maximum() -> None:
    given, at = placed("letters")
    level = Level(given, 0.1, FuseRecipe(), 2.0)
    table = level.table(level.density(at, no_symmetry()), 30.0)
    own = given.points[given.rows(0)], level.weights[given.rows(0)]
    frame = level.origin, level.cell
    away = kernels.turned(np.eye(3), np.array([0.0, 0.0, 0.1]))
    value, R, t = kernels.climb(table, *own, away, np.array([0.03, -0.04, 0.0]), *frame, 0.1, 0.05)
    assert value >= kernels.score(table, *own, np.eye(3), np.zeros(3), *frame)
    assert kernels.turn_between(R, np.eye(3)) < 0.03
    assert np.linalg.norm(t) < 0.03
    # No small step improves on it.
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = 0.02 * rng.normal(size=3)
        moved = t + np.array([step[0], step[1], 0.0])
        turned = kernels.turned(R, np.array([0.0, 0.0, step[2]]))
        assert kernels.score(table, *own, turned, moved, *frame) <= value + 0.05


def test_rotations_cover_space_evenly() -> None:
    turns = rotations(3, 0.5)
    probe = geometry.random_rotation(np.random.default_rng(0), 3)
    nearest = min(float(kernels.turn_between(R, probe)) for R in turns)
    assert nearest < 0.5
    assert np.abs(turns @ turns.swapaxes(1, 2) - np.eye(3)).max() < 1e-12


@pytest.mark.parametrize("dimension", [2, 3])
def test_subtracting_a_particle_leaves_nothing(dimension: int) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 3))
    points[:, dimension:] = 0
    n = 60
    grid = np.zeros((n, n, n if dimension == 3 else 1))
    origin = np.array([-6.0, -6.0, -6.0 if dimension == 3 else 0.0])
    weights = np.full(20, 0.05)
    for sign, mass in ((1.0, 1.0), (-1.0, 0.0)):
        kernels.splat(grid, points, weights, 0.3, np.eye(3), np.zeros(3), origin, 0.2, sign)
        # Three standard deviations of a Gaussian have 99.7 % of its mass, along each axis.
        assert grid.sum() == pytest.approx(mass, abs=0.01)


def test_noise_of_points_does_not_enlarge_a_site() -> None:
    rng = np.random.default_rng(1)
    sigma = rng.uniform(0.05, 0.3, (4000, 1)) * [1, 1, 0]
    points = 0.1 * rng.normal(size=(4000, 3)) * [1, 1, 0] + sigma * rng.normal(size=(4000, 3))
    given = Particles(points, sigma**2, np.array([0, 4000]), 2)
    motions = Motions(np.eye(3)[None], np.zeros((1, 3)))
    found = Sites(np.array([[0.05, 0, 0]]), np.array([0.04]), np.array([1.0]))
    for _ in range(200):
        found = _step(given, motions, no_symmetry(), found, 1e-12, 1)
    assert np.sqrt(found.variances[0]) == pytest.approx(0.1, rel=0.05)
    np.testing.assert_allclose(found.means[0], 0, atol=0.01)


@pytest.mark.parametrize("blur", [2.0, 4.0])
def test_resolution_follows_the_blur(blur: float) -> None:
    rng = np.random.default_rng(0)
    structure = rng.uniform(-50, 50, (40, 2))
    sets = [
        structure[rng.integers(40, size=20_000)] + blur * rng.normal(size=(20_000, 2))
        for _ in range(2)
    ]
    # The power of 500 points a site falls to that of counting at exp(-(2 pi f s)^2) = 1 / (6 n).
    n = 20_000 / 40
    expected = 2 * np.pi * blur / np.sqrt(np.log(6 * n))
    assert resolution(*fourier_correlation(*sets, 200.0)) == pytest.approx(expected, rel=0.2)
