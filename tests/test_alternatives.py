# SPDX-License-Identifier: MIT
"""Where clouds could lie as well: what is proposed, what evidence excludes, what is told."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.align.alternatives import moved_clouds, weigh
from coframe.align.evidence import Surface, agreement, splits, surface
from coframe.align.freedom import review
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, Level
from coframe.align.verdict import contradictions, divisions
from coframe.em.constraints import Constraints
from coframe.input.given import open_clouds
from coframe.input.normalise import Normalisation
from coframe.result.assemble import RIVAL, Solution, assemble
from coframe.start.doubt import Doubt
from coframe.types import Poses

NOISE = 0.004
LENGTH = 12.0


def windows(doors: bool) -> list[np.ndarray]:
    """Four windows of one corridor, 5 m apart, in place; doors at irregular distances."""
    rng = np.random.default_rng(1)
    edges = np.cumsum(rng.uniform(1.0, 3.0, 20)) if doors else np.empty(0)
    clouds = []
    for begin in (0.0, 5.0, 10.0, 15.0):
        x = rng.uniform(begin, begin + LENGTH, 2000)
        side = rng.integers(4, size=2000)
        u = rng.uniform(size=2000)
        recess = 0.15 * (np.searchsorted(edges, x) % 2)
        y = np.choose(side, [1 + recess, -1 - recess, 2 * u - 1, 2 * u - 1])
        z = np.choose(side, [2.5 * u, 2.5 * u, np.zeros(2000), np.full(2000, 2.5)])
        clouds.append(np.stack([x, y, z], 1) + NOISE * rng.normal(size=(2000, 3)))
    return clouds


TRUE = geometry.identity(4, 3)


def moved(clouds: list[int], by: list[float], M: int = 4) -> Poses:
    poses = geometry.identity(M, 3)
    poses[clouds, :3, 3] = by
    return poses


@pytest.fixture(scope="module")
def surfaces() -> list[Surface]:
    return [surface(cloud) for cloud in windows(doors=True)]


def concluded(
    doors: bool, rivals: Sequence[Poses] = (), doubts: Sequence[Doubt] = ()
) -> coframe.Registration:
    """The result of a fit at true poses, when rival fits and doubts of the start are known.

    All clouds are fixed, so that no free direction is sought.
    """
    level = Level(components=200, points=2000, iterations=0, burn_in=10)
    with open_clouds(windows(doors), None, None, threads=1) as given:
        frames = Normalisation.about(given.summaries)
        origin = frames.middle(TRUE)
        rng = np.random.default_rng(0)
        run = Run(given.clouds, given.counts, frames, level, rng, threads=1)
        fit = run.fit(run.draw(level.points), frames.enter_poses(TRUE, origin), level)
        known = [frames.enter_poses(each, origin) for each in rivals]
        fixed = Constraints((0, 1, 2, 3))
        solution = Solution(fit, frames, origin, range(4), fixed, known)
        return assemble(given, [solution], doubts=doubts)


# What differs between two sets of poses


def test_only_clouds_that_lie_elsewhere_relative_to_most_have_moved(
    surfaces: list[Surface],
) -> None:
    common = geometry.exp(np.array([0.3, -1.0, 0.7, 20.0, -3.0, 5.0]))
    clouds, there = moved_clouds(surfaces, TRUE, common @ moved([2], [1.0, 0.0, 0.0]))
    assert clouds == (2,)
    np.testing.assert_allclose(there, moved([2], [1.0, 0.0, 0.0]), atol=1e-12)
    assert moved_clouds(surfaces, TRUE, common @ TRUE)[0] == ()


def test_where_no_majority_stays_together_all_have_moved(surfaces: list[Surface]) -> None:
    assert moved_clouds(surfaces, TRUE, moved([2, 3], [1.0, 0.0, 0.0]))[0] == (0, 1, 2, 3)


def test_evidence_excludes_another_place_where_doors_do_not_fit(surfaces: list[Surface]) -> None:
    shares, lead = weigh(surfaces, TRUE, (1,), moved([1], [0.9, 0.0, 0.0]))
    assert shares is not None
    assert shares[0] < 0.05 < shares[1]
    assert lead > ALIGN.evidence.clear
    bare = [surface(cloud) for cloud in windows(doors=False)]
    assert weigh(bare, TRUE, (1,), moved([1], [0.9, 0.0, 0.0]))[1] < ALIGN.evidence.clear
    assert weigh(surfaces, TRUE, (1,), moved([1], [0.0, 900.0, 0.0])) == (None, 0.0)


# Two parts


def test_two_parts_that_contradict_each_other_are_in_doubt(surfaces: list[Surface]) -> None:
    """Each part agrees inside, so that no cloud contradicts the others more than is typical."""
    seen = review(surfaces, moved([2, 3], [0.0, 0.06, 0.06]), [False] * 4)
    assert not contradictions(seen)
    assert set(divisions(seen)) == {0, 1, 2, 3}
    assert not divisions(review(surfaces, TRUE, [False] * 4))


def test_the_smaller_part_is_in_doubt() -> None:
    five = [surface(cloud) for cloud in (*windows(doors=True), windows(doors=True)[0] + 1e-3)]
    seen = agreement(five, moved([2, 3], [0.0, 0.06, 0.06], 5))
    (split, *_) = splits(seen)
    assert split.doubtful == (2, 3)
    assert split.within < 0.05 < split.across


# What is told


def test_a_rival_that_fits_as_well_leaves_the_clouds_that_it_moves_weak(tmp_path: Path) -> None:
    there = moved([1], [0.9, 0.0, 0.0])
    result = concluded(False, [there])
    assert [each.verdict for each in result.verdicts].count("weak") == 1
    assert (result.verdicts[1].verdict, result.verdicts[1].reason) == ("weak", RIVAL)
    (one,) = result.alternatives
    assert one.clouds == (1,)
    assert one.contradictions is not None
    assert one.lead < ALIGN.evidence.clear
    np.testing.assert_allclose(one.poses, there[[1]], atol=0.05)
    seen = result.relative_to(0).alternatives[0].poses[0]
    np.testing.assert_allclose(result.poses[0] @ seen, one.poses[0], atol=1e-9)

    again = coframe.load(result.save(tmp_path))
    (same,) = again.alternatives
    assert (same.clouds, same.reason, same.contradictions, same.lead) == (
        one.clouds,
        one.reason,
        one.contradictions,
        one.lead,
    )
    np.testing.assert_array_equal(same.poses, one.poses)
    (written,) = json.loads((tmp_path / "poses.json").read_text())["alternatives"]
    assert written["clouds"] == [result.names[1]]
    page = coframe.report.write(result, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Other places" in page
    assert RIVAL in page


def test_a_rival_that_contradicts_itself_leaves_no_doubt() -> None:
    result = concluded(True, [moved([1], [0.9, 0.0, 0.0])])
    assert {each.verdict for each in result.verdicts} == {"aligned"}
    assert result.alternatives == ()


def test_evidence_removes_doubts_of_the_start() -> None:
    """The start saw thinned clouds: another motion of cloud 1, and a cloud 2 that may slide."""
    motion = geometry.exp(np.array([0.0, 0.0, 0.0, 0.9, 0.0, 0.0]))
    doubts = [Doubt(1, "elsewhere", (motion,)), Doubt(2, "slides", answerable=True)]
    result = concluded(True, doubts=doubts)
    assert {each.verdict for each in result.verdicts} == {"aligned"}
    assert result.doubts == ()

    bare = concluded(False, doubts=doubts)
    assert bare.verdicts[1].reason == "elsewhere"
    assert [each.clouds for each in bare.alternatives] == [(1,)]

    stays = concluded(True, doubts=[Doubt(1, "no surface")])
    assert (stays.verdicts[1].verdict, stays.doubts[0].cloud) == ("weak", 1)


def test_doubts_of_the_start_travel() -> None:
    """Where half of the clouds are in doubt, the others cannot be certain."""
    result = concluded(True, doubts=[Doubt(1, "no surface"), Doubt(2, "no surface")])
    assert "aligned" not in {each.verdict for each in result.verdicts}
