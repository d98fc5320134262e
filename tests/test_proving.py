# SPDX-License-Identifier: MIT
"""The proving ground: its plan has what it promises, conditions do what they say, runs resume, the
page is that of the records, and the scores do not fall.
"""

import inspect
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.data import simulate
from coframe.data.simulate import Scans

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proving import conditions, page, plan, run, sensitivity
from proving.score import Score, worse

# Conditions


@pytest.fixture(scope="module")
def scans():
    """Six views of one body with known noise, as a sensor gives them."""
    return body(0)


@pytest.fixture(scope="module")
def other():
    return body(1)


def body(seed):
    found = simulate.scene(views=6, points=1500, degrees=60.0, rng=np.random.default_rng(seed))
    clouds = [np.array(cloud) for cloud in found.clouds]
    return Scans(
        f"body {seed}",
        clouds,
        found.poses,
        normals=[np.tile([0.0, 0.0, 1.0], (len(cloud), 1)) for cloud in clouds],
        sigma=[np.full(len(cloud), 0.001) for cloud in clouds],
        outliers=[np.zeros(len(cloud), bool) for cloud in clouds],
    )


def given(name, scans, other, seed=0):
    return conditions.CONDITIONS[name](scans, np.random.default_rng(seed), other)


def in_common_frame(scans):
    return [geometry.transform(T, v) for T, v in zip(scans.poses, scans.clouds, strict=True)]


@pytest.mark.parametrize("name", list(conditions.CONDITIONS))
def test_true_poses_carry_the_clouds_onto_each_other(name, scans, other):
    """Whatever is done to clouds, the poses and normals follow."""
    found = given(name, scans, other)
    merged = np.concatenate(in_common_frame(scans))
    tree = cKDTree(merged)
    for j, points in enumerate(in_common_frame(found.scans)):
        if j in found.foreign:
            continue
        distance = tree.query(points[~found.scans.outliers[j]])[0]
        wide = {"noise": 0.1, "more_noise": 0.3}.get(name, 1e-6)
        assert distance.max() < wide
    sizes = [len(each) for each in found.scans.clouds]
    for values in (found.scans.normals, found.scans.sigma, found.scans.outliers):
        assert [len(each) for each in values] == sizes
    up, truth = (
        [n @ geometry.rotation(T).T for n, T in zip(each.normals, each.poses, strict=True)]
        for each in (found.scans, scans)
    )
    if name not in ("shuffled", "foreign") and not name.startswith("overlap"):
        for own, true in zip(up, truth, strict=True):
            np.testing.assert_allclose(own[:50], true[:50], atol=1e-9)


def test_own_frames_of_scattered_clouds_say_nothing(scans, other):
    """Random turns and shifts of several extents; the clouds as they are lie within one."""
    turns = []
    for seed in range(5):
        found = given("nothing", scans, other, seed)
        assert found.start is None
        motions = geometry.inverse(scans.poses) @ found.scans.poses
        turns += np.degrees(geometry.angle(geometry.rotation(motions))).tolist()
    assert np.ptp(turns) > 120
    centres = [cloud.mean(0) for cloud in found.scans.clouds]
    assert np.ptp(centres, axis=0).max() > 2 * conditions.extent(scans.clouds[0])


@pytest.mark.parametrize(("name", "degrees", "share"), [("near", 8, 0.02), ("far", 20, 0.05)])
def test_starts_are_off_by_at_most_so_much(name, degrees, share, scans, other):
    worst, off = 0.0, 0.0
    for seed in range(5):
        found = given(name, scans, other, seed)
        np.testing.assert_array_equal(found.start[0], found.scans.poses[0])
        error = found.start @ geometry.inverse(found.scans.poses)
        worst = max(worst, np.degrees(geometry.angle(geometry.rotation(error))).max())
        for T, S, cloud in zip(found.start, found.scans.poses, found.scans.clouds, strict=True):
            centre = np.median(cloud, axis=0)[None]
            way = np.abs(geometry.transform(T, centre) - geometry.transform(S, centre)).max()
            off = max(off, way / conditions.extent(cloud))
    assert 0.7 * degrees < worst <= degrees + 1e-6
    assert 0.7 * share < off <= share + 1e-9


def test_one_start_is_far_off_and_the_others_are_near(scans, other):
    found = given("wrong_start", scans, other)
    error = found.start @ geometry.inverse(found.scans.poses)
    turn = np.sort(np.degrees(geometry.angle(geometry.rotation(error))))
    assert turn[-2] <= 8
    assert 52 <= turn[-1] <= 98


def test_true_starts_are_true(scans, other):
    found = given("true", scans, other)
    np.testing.assert_array_equal(found.start, found.scans.poses)


@pytest.mark.parametrize(("name", "decibels"), [("noise", 25), ("more_noise", 15)])
def test_noise_is_so_far_below_the_variance(name, decibels, scans, other):
    found = given(name, scans, other)
    for own, points, true, cloud in zip(
        found.scans.sigma,
        in_common_frame(found.scans),
        in_common_frame(scans),
        scans.clouds,
        strict=True,
    ):
        added = points - true
        ratio = 10 * np.log10(cloud.var(0).mean() / added.var())
        assert ratio == pytest.approx(decibels, abs=0.3)
        np.testing.assert_allclose(own, np.hypot(0.001, added.std()), rtol=0.03)


def test_clutter_is_30_percent(scans, other):
    found = given("clutter", scans, other)
    for outliers, normals in zip(found.scans.outliers, found.scans.normals, strict=True):
        assert outliers.mean() == pytest.approx(0.3, abs=0.001)
        np.testing.assert_array_equal(normals[outliers], 0)


def test_a_small_body_stands_elsewhere_in_each_cloud(scans, other):
    found = given("moving", scans, other)
    centres = []
    for points, outliers in zip(in_common_frame(found.scans), found.scans.outliers, strict=True):
        assert outliers.mean() == pytest.approx(1 / 6, abs=0.01)
        assert conditions.extent(points[outliers]) < 0.5 * conditions.extent(points[~outliers])
        centres.append(points[outliers].mean(0))
    apart = np.linalg.norm(np.array(centres)[:, None] - centres, axis=-1)
    assert np.median(apart[apart > 0]) > 0.2


@pytest.mark.parametrize("percent", [10, 30, 60, 90])
def test_neighbours_share_so_much(percent, scans, other):
    found = given(f"overlap_{percent}", scans, other)
    measured = conditions.overlap(found.scans.clouds, found.scans.poses)
    assert measured == pytest.approx(percent / 100, abs=0.12)
    assert sum(map(len, found.scans.clouds)) == sum(map(len, scans.clouds))


def test_overlap_of_two_squares_that_share_a_quarter():
    rng = np.random.default_rng(0)
    squares = [np.c_[rng.random((4000, 2)), np.zeros(4000)] for _ in range(2)]
    poses = geometry.identity(2, 3)
    poses[1, 0, 3] = 0.75
    assert conditions.overlap(squares, poses) == pytest.approx(0.25, abs=0.05)


def test_densities_go_from_a_tenth_to_all(scans, other):
    found = given("densities", scans, other)
    shares = [len(v) / len(w) for v, w in zip(found.scans.clouds, scans.clouds, strict=True)]
    assert min(shares) == pytest.approx(0.1, abs=0.01)
    assert max(shares) == 1


def test_the_foreign_cloud_is_marked(scans, other):
    found = given("foreign", scans, other)
    (odd,) = found.foreign
    sizes = sorted(len(cloud) for cloud in other.clouds)
    assert len(found.scans.clouds[odd]) in sizes
    assert found.scans.outliers[odd].all()
    assert not any(found.scans.outliers[j].any() for j in range(6) if j != odd)


def test_shuffled_clouds_are_the_same_clouds(scans, other):
    found = given("shuffled", scans, other)
    centres = [points.mean(0) for points in in_common_frame(found.scans)]
    before = [points.mean(0) for points in in_common_frame(scans)]
    distance, order = cKDTree(before).query(centres)
    assert distance.max() < 1e-9
    assert sorted(order) == list(range(6))
    assert list(order) != list(range(6))
    first = in_common_frame(found.scans)[0]
    assert np.abs(first - in_common_frame(scans)[order[0]]).max() > 0.1  # points in another order


# The plan


def test_the_plan_has_what_the_ground_promises():
    entries = plan.whole()
    simulated = [e for e in entries.values() if e.scene.family in plan.OF_FAMILY]
    assert len(simulated) >= 100
    families = {e.scene.family for e in simulated}
    assert len(families) >= 10
    assert {e.condition for e in simulated} == set(conditions.CONDITIONS)
    for family in families:
        halves = Counter(e.scene.half for e in simulated if e.scene.family == family)
        assert set(halves) == {"tune", "judge"}, family
        assert min(halves.values()) > 0.6 * max(halves.values()), family


def test_no_scene_is_in_both_halves():
    """Bodies by name; places, which are made from a seed, by their seed."""
    bodies = {"tune": set(), "judge": set()}
    seeds = {"tune": set(), "judge": set()}
    for entry in plan.whole().values():
        scene = entry.scene
        if scene.family == "object":
            bodies[scene.half].add(scene.name)
        seeds[scene.half].add(families_seed(scene))
        assert entry.other.half == scene.half
        assert entry.other.family == scene.family
    assert not bodies["tune"] & bodies["judge"]
    assert not seeds["tune"] & seeds["judge"]


def families_seed(scene):
    return plan.seed_of(scene.family, scene.name, scene.half)


def test_names_are_unique_and_seeds_stay():
    entries = list(plan.whole().values())
    assert len({entry.name for entry in entries}) == len(entries)
    found = next(e for e in entries if e.scene.name == "pebble" and e.condition == "nothing")
    assert found.name.startswith("object/pebble/nothing/tune/")
    alone = plan.Entry(found.scene, found.condition, found.other)
    assert alone.seed == found.seed == plan.seed_of("object", "pebble", "nothing", "tune") % 10_000


def test_a_problem_is_the_same_whenever_it_is_made():
    entry = next(e for e in plan.whole().values() if e.condition == "overlap_30")
    one, other = entry.problem(), entry.problem()
    assert run.digest(one) == run.digest(other)
    assert one.name == entry.name
    assert all(np.array_equal(cloud, cloud.astype(np.float32)) for cloud in one.clouds)


def test_the_slice_has_every_family():
    names = [entry.scene.family for entry in plan.slice()]
    assert set(names) == set(plan.OF_FAMILY)
    assert all(entry.scene.half == "tune" for entry in plan.slice())


# Runs

STUB = """
import json, sys
import numpy as np

problem, answer, seconds, calls = sys.argv[1:]
with open(calls, "a") as file:
    file.write(problem + "\\n")
with np.load(problem) as stored:
    about = json.loads(str(stored["json"]))
    truth = stored["truth"]
M = len(truth)
rest = {
    "verdicts": ["aligned"] * M,
    "groups": [list(range(M))],
    "warnings": [],
    "seconds": 1.0,
    "cpu": 1.0,
    "memory": 1,
    "error": None,
}
with open(answer, "wb") as file:
    np.savez(file, json=np.array(json.dumps({"rest": rest, "lists": {}})), poses=truth)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """A method that knows the truth and counts how often it is asked."""
    folder = tmp_path_factory.mktemp("stub")
    script, calls = folder / "stub.py", folder / "calls"
    script.write_text(STUB)

    def asked():
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    version = {"commit": "none", "dirty": False, "digest": "stub"}
    return run.Method("stub", sys.executable, (str(script), str(calls)), version), asked


@pytest.fixture(scope="module")
def few():
    """Small problems that are made at once."""
    return plan.chosen(family="particles", half="tune")[:3]


@pytest.fixture(scope="module")
def stub_run(stub, few, tmp_path_factory):
    """Three problems, run in two slices; how often the method was asked, and the folder."""
    method, asked = stub
    build = tmp_path_factory.mktemp("build")
    first = run.run(few[:2], method, build=build)
    after_first = asked()
    with open(build / "stub.jsonl", "a") as file:
        file.write('{"key": "killed in the mid')
    said = []
    rows = run.run(few, method, build=build, say=said.append)
    return SimpleNamespace(
        build=build, first=first, rows=rows, said=said, asked=(after_first, asked())
    )


def test_what_is_done_is_not_run_again(stub_run, few):
    assert stub_run.asked == (2, 3)
    assert [row["name"] for row in stub_run.rows] == [entry.name for entry in few]
    assert stub_run.rows[:2] == stub_run.first
    assert all(row["placed"] == row["clouds"] and row["silent"] == 0 for row in stub_run.rows)
    assert len(stub_run.said) == 1
    assert stub_run.said[0].startswith("1/1 ")


def test_what_other_code_did_does_not_count(stub_run, stub, few):
    method, asked = stub
    other = replace(method, version={**method.version, "digest": "changed"})
    before = asked()
    assert run.run(few, other, build=stub_run.build, seconds=0.0) == []
    assert run.run(few, method, build=stub_run.build, seconds=0.0) == stub_run.rows
    assert asked() == before


def test_a_problem_that_takes_too_long_is_ended(few, tmp_path):
    few[0].problem().save(tmp_path / "problem.npz")
    method = run.method("now")
    answer = run.solve(method, tmp_path / "problem.npz", seconds=1)  # imports alone take longer
    assert answer.poses is None
    assert answer.error == "timed out after 1 s of a processor"


def test_an_error_is_an_answer(tmp_path, few):
    problem = few[0].problem()
    clouds = [np.full_like(cloud, np.nan) for cloud in problem.clouds]
    replace(problem, clouds=clouds).save(tmp_path / "problem.npz")
    answer = run.solve(run.method("now"), tmp_path / "problem.npz")
    assert answer.poses is None
    assert answer.error.startswith("InputError: ")


def test_records_are_read_as_they_were_written(stub, stub_run, tmp_path):
    method, _ = stub
    record = run.record(method, stub_run.rows, "python -m proving")
    run.save(record, tmp_path)
    assert run.load("stub", tmp_path) == record
    assert {"version", "machine", "date", "seeds"} <= set(record)
    assert [row["half"] for row in record["rows"]] == ["tune"] * 3


@pytest.fixture(scope="module")
def record():
    """That of the present code; until there is one, that of the release before it."""
    labels = [label for label in ("now", "0.1") if (run.RESULTS / f"{label}.json").exists()]
    return run.load(labels[0])


def test_the_scores_have_not_fallen(record, tmp_path):
    """A slice of the ground, about two minutes on two cores."""
    before = {row["name"]: Score.of(row) for row in record["rows"]}
    entries = [entry for entry in plan.slice() if entry.name in before]
    assert len(entries) > 0.8 * len(plan.slice()), "the plan has changed: make ground"
    now = [Score.of(row) for row in run.run(entries, run.method("now"), build=tmp_path)]
    silent = {s.name: s.silent for s in now if s.silent > before[s.name].silent}
    assert not silent, "clouds are wrong and called aligned that were not"
    assert worse(now, list(before.values())) == []


def test_an_interpreter_that_is_not_there_is_refused():
    with pytest.raises(SystemExit, match="/nowhere/python: is not a program"):
        run.method("x", "/nowhere/python")


# Pages


def test_the_page_is_that_of_the_records():
    assert page.PAGE.read_text() == page.text(), "run `python -m proving page`"


def test_a_page_of_few_records(stub, stub_run, tmp_path):
    method, _ = stub
    for label in ("0.1", "now", "open3d"):
        run.save(run.record(replace(method, label=label), stub_run.rows, "x"), tmp_path)
    found = page.text(tmp_path)
    assert "| particles | 3 | 100%" in found
    assert found.index("| release 0.1 |") < found.index("| present |")
    assert "| particles, coframe |" in found
    assert "| particles, open3d |" in found
    for name in conditions.CONDITIONS:
        assert f"| {name} |" in found


def test_help_fits_a_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "proving", "--help"],
        cwd=run.ROOT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "sensitivity" in done.stdout


# Sensitivity


def test_every_number_is_varied_both_ways():
    for stage in sensitivity.STAGES:
        numbers = dict(sensitivity.stage_numbers(stage))
        varied = Counter(change.path for change in sensitivity.changes(stage))
        assert numbers
        for path, value in numbers.items():
            if isinstance(value, bool):
                assert varied[path] == 1
            elif value:
                assert varied[path] == 2 or value > sensitivity.LARGEST_SHARE, path
    em = {path for path, _ in sensitivity.stage_numbers("em")}
    align = {path for path, _ in sensitivity.stage_numbers("align")}
    assert not em & align


@pytest.mark.parametrize(
    ("path", "value", "factor", "new"),
    [
        ("points", 10, 1.5, 15),
        ("points", 1, 1.5, 2),
        ("points", 1, 1 / 1.5, 0),
        ("trial.steps", 2, 1 / 1.5, 1),
        ("radius", 3.0, 1.5, 4.5),
        ("min_normal_cosine", 0.7, 1.5, 0.99),
        ("weak_overlap", 0.3, 1.5, pytest.approx(0.45)),
        ("reaches", (None, 0.02), 1.5, (None, pytest.approx(0.03))),
    ],
)
def test_changes_of_numbers(path, value, factor, new):
    assert sensitivity.scaled(path, value, factor) == new


def test_a_recipe_with_one_number_changed():
    for stage in sensitivity.STAGES:
        recipe = sensitivity.recipe_of(stage)
        before = dict(sensitivity.numbers(recipe))
        for change in sensitivity.changes(stage)[::7]:
            after = dict(sensitivity.numbers(sensitivity.changed(recipe, change.path, change.new)))
            assert [path for path in before if before[path] != after[path]] == [change.path]
            assert after[change.path] == change.new


def test_a_recording_recipe_knows_what_was_read():
    seen = set()
    recipe = sensitivity.recording(ALIGN, seen)
    assert isinstance(recipe, type(ALIGN))
    seen.clear()
    assert recipe.verdict.weak_overlap == ALIGN.verdict.weak_overlap
    assert (repr(recipe), hash(recipe)) == (repr(ALIGN), hash(ALIGN))
    assert {each for each in seen if "." in each} == {"verdict.weak_overlap"}


def test_the_recipe_of_the_start_is_exchanged_and_put_back():
    from coframe.start import search, verify
    from coframe.start.recipe import START

    new = replace(START, min_evidence=2 * START.min_evidence)
    sensitivity.use_as_default(START, new)
    try:
        assert (
            inspect.signature(inspect.unwrap(search.find_start)).parameters["recipe"].default is new
        )
        assert new in inspect.unwrap(verify.verify).__defaults__
    finally:
        sensitivity.use_as_default(START, START)
    assert START in inspect.unwrap(verify.verify).__defaults__


def test_effects_tell_nothing_from_something():
    change = sensitivity.changes("em")[0]

    def result(shift=0.0, silent=0, ratio=1.0):
        poses = geometry.identity(2, 3)
        poses[1, 0, 3] = shift
        row = {
            "placed": 2,
            "silent": silent,
            "ratio": ratio,
            "ate": None,
            "cpu": 1.0,
            "groups": [[0, 1]],
            "poses": poses.tolist(),
            "deviations": [[0.01] * 6] * 2,
            "centres": [[0.0] * 3] * 2,
        }
        return {"rows": [row] * 4, "read": [change.path]}

    def finding(**values):
        return sensitivity.effect(change, result(), result(**values)).finding

    assert finding() == "nothing"
    assert finding(shift=0.005) == "nothing"
    assert finding(shift=0.5) == "within chance"
    assert finding(ratio=1.2) == "less accurate"
    assert finding(silent=1) == "worse"
    unread = {**result(), "read": []}
    assert sensitivity.effect(change, unread, result()).finding == "not reached"
