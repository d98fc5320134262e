# SPDX-License-Identifier: MIT
"""The report without a browser: its numbers, arrays, text, and the commands that write it."""

import base64
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import HOSTILE, views

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.io import ply
from coframe.report import charts, markup, numbers, page, run, scene
from coframe.report.links import short_names
from coframe.report.run import Run
from coframe.result import plot
from coframe.result.colours import palette


@pytest.fixture(scope="module")
def simulated() -> simulate.SimulatedScene:
    return simulate.scene(
        4, 600, degrees=60.0, noise_db=50.0, outliers=0.1, rng=np.random.default_rng(3)
    )


@pytest.fixture(scope="module")
def result(simulated: simulate.SimulatedScene) -> coframe.Registration:
    return coframe.register(simulated.clouds, options=coframe.Options(components=150, threads=2))


def parts(html: str) -> tuple[dict, bytes, str]:
    """Header, arrays and script, as a browser finds them."""
    header = re.search(
        r'<script type="application/json" id="header">(.*?)</script>', html, re.S
    ).group(1)
    arrays = re.search(r'<script type="text/plain" id="arrays">(.*?)</script>', html, re.S).group(1)
    return (
        json.loads(header),
        base64.b64decode(arrays),
        re.search(r"<script>(.*?)</script>", html, re.S).group(1),
    )


# ---- numbers


def test_pairs_agree_with_a_loop_over_components(result: coframe.Registration) -> None:
    overlap, residual = numbers.pairs(result)
    mass, first = result.moments.mass, result.moments.first
    for i, j in [(0, 1), (2, 0), (3, 3)]:
        shared = squares = total = 0.0
        for k in range(len(result.mixture)):
            if mass[j, k] > 0.1 * mass[i, k]:
                shared += mass[i, k]
            if mass[i, k] > 1 and mass[j, k] > 1:
                normal = np.linalg.eigh(result.mixture.covariances[k])[1][:, 0]
                gap = (first[i, k] / mass[i, k] - first[j, k] / mass[j, k]) @ normal
                weight = 1 / (1 / mass[i, k] + 1 / mass[j, k])
                squares, total = squares + weight * gap**2, total + weight
        bound = numbers.NOTHING * len(result.mixture) / len(result.clouds[i])
        assert overlap[i, j] == pytest.approx(shared / len(result.clouds[i]), abs=bound)
        if i != j:
            assert residual[i, j] == pytest.approx(np.sqrt(squares / total))
    np.testing.assert_allclose(residual, residual.T)
    assert np.isnan(np.diagonal(residual)).all()


def test_between_two_clouds_the_matrix_is_the_verdict() -> None:
    clouds, truth = views(3, sizes=(500, 400))
    two = coframe.register(clouds, poses=truth, options=coframe.Options(components=40, threads=1))
    overlap, residual = numbers.pairs(two)
    for i, verdict in enumerate(two.verdicts):
        assert overlap[i, 1 - i] == pytest.approx(verdict.overlap, abs=1e-3)
        assert residual[i, 1 - i] == pytest.approx(verdict.residual, rel=0.02)


def test_groups_that_share_nothing_are_told_apart(result: coframe.Registration) -> None:
    overlap = np.eye(5)
    overlap[0, 3] = overlap[4, 3] = 0.9
    overlap[1, 2] = 0.5
    assert numbers.groups(overlap) == [[0, 3, 4], [1, 2]]
    assert numbers.notices(result, np.ones((4, 4)), 0.0) == []
    (found,) = numbers.notices(result, np.eye(4), 0.0)
    assert "4 sets (1, 1, 1, 1)" in found.message


def test_warnings_of_the_start_come_first(result: coframe.Registration) -> None:
    warned = dataclasses.replace(
        result, groups=((0, 1, 2), (3,)), warnings=("the clouds fall into 2 groups",)
    )
    (found,) = numbers.notices(warned, np.eye(4), 0.0)
    assert found.message == "The clouds fall into 2 groups."


def test_notices_put_the_worst_first(result: coframe.Registration) -> None:
    words = ["aligned", "weak", "failed", "aligned"]
    worse = [
        dataclasses.replace(v, verdict=w, reason=w)
        for v, w in zip(result.verdicts, words, strict=True)
    ]
    covariance = result.pose_covariance.copy()
    covariance[0] = np.inf
    bad = dataclasses.replace(
        result,
        verdicts=tuple(worse),
        status=coframe.Status.ITERATION_LIMIT,
        pose_covariance=covariance,
    )
    found = numbers.notices(bad, np.ones((4, 4)), 0.5)
    assert [n.cloud for n in found] == ["cloud 2", "cloud 1", None, None, "cloud 0"]
    assert "iteration limit" in found[2].message
    assert "50%" in found[3].message
    html = page.html(bad, points=100)
    assert html.index("Warnings") < html.index('id="stage"')


def test_a_common_motion_of_the_start_changes_nothing_shown(result: coframe.Registration) -> None:
    rng = np.random.default_rng(0)
    start = np.array([geometry.exp(rng.normal(scale=0.1, size=6)) @ pose for pose in result.poses])
    motion = geometry.exp(np.array([1.0, -2.0, 0.5, 30.0, 10.0, -7.0]))
    a, b = (
        scene.of(result, start=each, colours=None, rng=np.random.default_rng(1), points=400)
        for each in (start, motion @ start)
    )
    np.testing.assert_allclose(a.start, b.start, atol=1e-9)
    np.testing.assert_allclose(a.arrays["model"], b.arrays["model"], atol=1e-5)


def test_uncertainty_is_the_largest_deviation(result: coframe.Registration) -> None:
    covariance = np.tile(np.diag([1e-4, 4e-4, 1e-4, 0.01, 0.01, 0.09]), (4, 1, 1))
    turn, shift = numbers.uncertainty(dataclasses.replace(result, pose_covariance=covariance))
    np.testing.assert_allclose(turn, np.degrees(0.02))
    np.testing.assert_allclose(shift, 0.3)


# ---- arrays


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=30), st.integers(30, 50_000))
def test_shares_keep_the_budget_and_are_even(sizes: list[int], budget: int) -> None:
    kept = scene.shares(sizes, budget)
    assert sum(kept) <= budget
    assert all(1 <= k <= n for k, n in zip(kept, sizes, strict=True))
    assert sum(kept) == sum(sizes) or sum(kept) > budget - len(sizes)
    thinned = [k for k, n in zip(kept, sizes, strict=True) if k < n]
    assert not thinned or max(kept) - min(thinned) <= 1


@pytest.mark.parametrize("offset", [0.0, 5e6])
def test_what_is_drawn_lies_where_the_clouds_lie(
    result: coframe.Registration, offset: float
) -> None:
    """Also in survey coordinates, of which single precision would lose all that matters."""
    away = np.eye(4)
    away[:3, 3] = offset
    moved = dataclasses.replace(
        result.relative_to(0),
        poses=away @ result.poses,
        mixture=dataclasses.replace(result.mixture, means=result.mixture.means + offset),
        history=(),
    )
    drawn = scene.of(moved, start=None, colours=None, rng=np.random.default_rng(0))
    counts, origin = drawn.header["counts"], np.array(drawn.header["origin"])
    assert counts == [len(cloud) for cloud in result.clouds]
    cuts = np.cumsum(counts)[:-1]
    aligned = [cloud + offset for cloud in result.aligned()]
    for pose, points, true in zip(
        drawn.arrays["poses"][-1], np.split(drawn.arrays["points"], cuts), aligned, strict=True
    ):
        shown = points @ pose[:, :3].T + pose[:, 3] + origin
        np.testing.assert_allclose(
            np.sort(shown[:, 0]), np.sort(true[:, 0]), atol=1e-6 + 1e-9 * offset
        )
    roots = np.zeros((len(result.mixture), 3, 3))
    rows, columns = np.tril_indices(3)
    roots[:, rows, columns] = roots[:, columns, rows] = drawn.arrays["model"][-1, :, 3:]
    np.testing.assert_allclose(roots @ roots, result.mixture.covariances, atol=1e-5)
    np.testing.assert_allclose(
        drawn.arrays["model"][-1, :, :3] + origin,
        result.mixture.means + offset,
        atol=1e-6 + 1e-9 * offset,
    )


def test_frames_lead_from_the_start_to_the_result(result: coframe.Registration) -> None:
    start = geometry.identity(4, 3)
    drawn = scene.of(result, start=start, colours=None, rng=np.random.default_rng(0), points=100)
    labels = drawn.header["frames"]
    assert labels[0] == "start"
    assert labels[1:-1] == [f"iteration {i + 1}" for i in range(result.iterations)]
    assert labels[-1] == "result"
    assert len(drawn.arrays["poses"]) == len(labels)
    relative = geometry.inverse(drawn.start[0]) @ drawn.start
    np.testing.assert_allclose(relative, start, atol=1e-9)
    widths = np.linalg.norm(drawn.arrays["model"][:, :, 3:], axis=2).mean(1)
    assert widths[0] > 1.2 * widths[-1]  # the model emerges


def test_long_histories_and_many_clouds_are_thinned(result: coframe.Registration) -> None:
    drawn = scene.of(
        result,
        start=geometry.identity(4, 3),
        colours=None,
        rng=np.random.default_rng(0),
        points=100,
        poses=40,
        ellipsoids=100,
    )
    assert (drawn.header["frames"][0], drawn.header["frames"][-1]) == ("start", "result")
    assert len(drawn.header["frames"]) == 11
    assert drawn.arrays["model"].shape == (2, 100, 9)
    assert drawn.header["keys"] == [0, 10]


def test_the_page_stops_growing_with_the_points(result: coframe.Registration) -> None:
    def times(n: int) -> coframe.Registration:
        fields = ("clouds", "labels", "outlier_probability")
        return dataclasses.replace(
            result,
            **{f: tuple(np.concatenate([a] * n) for a in getattr(result, f)) for f in fields},
        )

    small, large = (len(page.html(times(n), points=2000)) for n in (2, 20))
    assert abs(small - large) < 2000


def test_the_same_result_makes_the_same_page(result: coframe.Registration) -> None:
    assert page.html(result) == page.html(result)


# ---- text


def test_the_table_comes_first_and_lengths_have_their_unit(result: coframe.Registration) -> None:
    page = coframe.report.page.html(
        result, run=coframe.report.Run("x", {"unit": "mm", "check": ["T0", "T1"]})
    )
    assert page.index('<section id="poses"') < page.index('<section id="scene"')
    assert "of your unit" not in page
    assert re.search(r"root mean square \(in (10<sup>.\d+</sup> )?mm\)", page)
    assert "<dd>T0, T1</dd>" in page


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_stay_text(result: coframe.Registration, hostile: str) -> None:
    verdicts = tuple(
        dataclasses.replace(v, verdict="failed", reason=hostile) for v in result.verdicts
    )
    named = dataclasses.replace(result, names=(hostile, "b", "c", "d"), verdicts=verdicts)
    html = page.html(
        named,
        points=100,
        run=Run(command=hostile, options={hostile: hostile}, versions={hostile: hostile}),
    )
    html.encode("utf-8")
    header, _, _ = parts(html)
    assert header["names"][0] == markup.clean(hostile)
    assert html.count("<script") == html.count("</script>") == 3
    assert hostile not in html or not re.search("[<>&\"'\0\udcff]", hostile)
    assert "<img" not in html
    assert "<b onmouseover" not in html


@given(st.text(st.characters()))
def test_json_blocks_cannot_be_left(value: str) -> None:
    block = markup.json_block({"value": value})
    assert not re.search("[<>&\u2028\u2029]", block)
    assert json.loads(block) == {"value": value}
    markup.text(value).encode("utf-8")


def test_the_policy_allows_our_script_only(result: coframe.Registration) -> None:
    html = page.html(result, points=100)
    digest = base64.b64encode(hashlib.sha256(parts(html)[2].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', html).group(1)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", html)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(1, 12))
def test_ticks_are_few_round_and_inside(low: float, span: float, count: int) -> None:
    high = low + span
    found = charts.ticks(low, high, count)
    assert len(found) <= count + 2
    assert all(low - 1e-6 * span <= v <= high + 1e-6 * span for v in found)


def test_a_small_length_among_large_ones_is_not_zero() -> None:
    assert markup.lengths([27.0, 63.0, 0.034, 16.0], 2) == ["27", "63", "0.03", "16"]
    assert markup.lengths([1e-6, 2e-6, 3e-9]) == ["1.00e-6", "2.00e-6", "0.003e-6"]
    assert markup.lengths([1e-6, 2e-6, 3e-15]) == ["1.00e-6", "2.00e-6", "0.00e-6"]
    assert markup.lengths([3.0, 0.0, 5.0]) == ["3.00", "0.00", "5.00"]


def test_lengths_share_their_decimals() -> None:
    assert markup.lengths([0.000113, 0.0000969, 0.000107, np.inf]) == [
        "113e-6",
        "97e-6",
        "107e-6",
        "unknown",
    ]
    assert markup.lengths([0.00739, 0.0123]) == ["0.00739", "0.01230"]
    assert markup.lengths([5.4e-6], 2) == ["5.4e-6"]
    assert markup.lengths([12345.6]) == ["12346"]
    assert markup.lengths([3e-12]) == ["3.00e-12"]
    assert markup.lengths([0.0]) == ["0.00"]


def test_clouds_of_the_plane_and_spheres_have_reports_too() -> None:
    clouds, truth = views(2, sizes=(300, 300, 300))
    flat = coframe.register(clouds, poses=truth, options=coframe.Options(components=30, threads=1))
    html = page.html(flat)
    assert parts(html)[0]["dimension"] == 2
    assert "Drag to move" in html
    assert "Drag to turn" not in html
    balls = coframe.paper.batch(clouds, clouds[0][:20], poses=truth, gamma=0.1, iterations=3)
    assert "median variance" in page.html(balls)


def test_palette_has_no_colour_twice_for_28_clouds() -> None:
    assert len(set(palette(28))) == 28


# ---- notebooks


def test_a_notebook_shows_verdicts_and_a_figure(result: coframe.Registration) -> None:
    named = dataclasses.replace(result, names=(HOSTILE[0], "b", "c", "d"))
    shown = named._repr_html_()
    assert "<img" not in shown
    assert shown.count("<tr>") == 5
    figure = named.plot(points=500)
    assert [trace.name for trace in figure.data][1:] == ["b", "c", "d"]
    assert "<" not in figure.data[0].name
    assert sum(len(trace.x) for trace in figure.data) == pytest.approx(500, abs=4)
    assert named.plot(points=500) == figure


def test_plot_without_plotly_is_one_sentence(
    result: coframe.Registration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(
        coframe.InputError, match=r"result\.plot.*plotly.*pip install 'coframe\[plot\]'"
    ):
        result.plot()


def test_clouds_of_the_plane_are_plotted_in_it() -> None:
    clouds = [np.random.default_rng(j).normal(size=(20, 2)) for j in range(2)]
    assert {
        trace.type for trace in plot.figure(clouds, ["a", "b"], rng=np.random.default_rng(0)).data
    } == {"scattergl"}


# ---- files and commands


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "from coframe.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_register_writes_a_report_that_can_be_made_again(tmp_path: Path) -> None:
    clouds, _ = views(3, sizes=(200, 150))
    for j, cloud in enumerate(clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    few = "register", "scan0.ply", "scan1.ply", "--components", "20", "--seed", "7"
    done = command(*few, "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "report.html" in done.stdout
    path = tmp_path / "out/report.html"
    first = path.read_bytes()
    assert b"coframe register scan0.ply scan1.ply --components 20 --seed 7 -o out" in first
    assert b"<dt>seed</dt><dd>7</dd>" in first
    assert parts(path.read_text())[0]["frames"][0] == "start"
    path.unlink()
    done = command("report", "out", "-q", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    again = path.read_bytes()
    assert abs(len(again) - len(first)) < 100  # points went through a file and a pose and back
    assert b"--components 20 --seed 7" in again

    assert command(*few, "--no-report", "-q", "-o", "bare", cwd=tmp_path).returncode == 0
    written = {p.name for p in (tmp_path / "bare").iterdir()}
    files = {"poses.json", "merged.ply", "model.ply", "state.npz", "run.json"}
    assert written == {*files, "manifest.json"}


def test_a_result_without_its_run_has_a_report(
    result: coframe.Registration, tmp_path: Path
) -> None:
    assert command("report", str(result.save(tmp_path)), cwd=tmp_path).returncode == 0
    html = (tmp_path / "report.html").read_text()
    assert parts(html)[0]["frames"][0] == "iteration 1"
    assert "turned [" not in html


def test_a_folder_without_a_result_is_one_line(tmp_path: Path) -> None:
    done = command("report", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nothing" in done.stderr


def test_run_survives_its_file(tmp_path: Path, result: coframe.Registration) -> None:
    before = Run(
        "coframe register \udcff.ply",
        {"seed": 3, "threads": None},
        {"coframe": "1"},
        2.5,
        result.poses,
    )
    before.save(tmp_path)
    after = run.load(tmp_path, result.poses.shape)
    np.testing.assert_array_equal(after.start, before.start)
    # Bytes that are no UTF-8 become escapes, so that every parser reads the file.
    wanted = dataclasses.replace(before, start=None, command="coframe register \\xff.ply")
    assert dataclasses.replace(after, start=None) == wanted
    assert run.load(tmp_path / "elsewhere", result.poses.shape) == Run(versions={})


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "coframe-run/1"}', '{"format": "other"}']
)
def test_a_broken_run_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(coframe.InputError, match=r"run\.json: expected a coframe-run/1 file"):
        run.load(tmp_path, (4, 4, 4))


def test_colours_are_those_of_the_files(tmp_path: Path, result: coframe.Registration) -> None:
    result.save(tmp_path)
    assert "colours" not in parts(page.html(coframe.load(tmp_path)))[0]["arrays"]
    vertices = ply.read(tmp_path / "merged.ply")
    shade = np.random.default_rng(0).integers(0, 256, (len(vertices), 3)).astype("u1")
    channels = ("red", "green", "blue")
    columns = {name: np.asarray(vertices[name]) for name in vertices.dtype.names[3:]}
    ply.write(
        tmp_path / "merged.ply",
        result.merged(),
        **columns,
        **dict(zip(channels, shade.T, strict=True)),
    )
    (tmp_path / "manifest.json").unlink()  # which knows the file without colours
    coloured = coframe.load(tmp_path)
    header, arrays, _ = parts(page.html(coloured))
    begin, size = header["arrays"]["colours"]
    shown = np.frombuffer(arrays[begin : begin + size], np.uint8).reshape(-1, 3)
    np.testing.assert_array_equal(np.sort(shown, axis=0), np.sort(shade, axis=0))
    some = dataclasses.replace(coloured, attributes=(*coloured.attributes[:-1], {}))
    header, arrays, _ = parts(page.html(some))
    begin, size = header["arrays"]["colours"]
    shown = np.frombuffer(arrays[begin : begin + size], np.uint8).reshape(-1, 3)
    assert (shown[-len(result.clouds[-1]) :] == 128).all()


def test_sentences_keep_their_commas(result: coframe.Registration) -> None:
    html = page.html(result, points=1200)
    total = sum(map(len, result.clouds))
    thousands = f"{total:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    assert (
        f"1\N{NARROW NO-BREAK SPACE}200 of {thousands} points of 4 clouds are shown, evenly" in html
    )


def test_failed_clouds_do_not_count_for_the_typical_gap(result: coframe.Registration) -> None:
    def gap(*failed: int) -> str:
        verdicts = [
            dataclasses.replace(v, verdict="failed", residual=0.0) if j in failed else v
            for j, v in enumerate(result.verdicts)
        ]
        html = page.html(dataclasses.replace(result, verdicts=tuple(verdicts)), points=100)
        return re.search("<dd>([^<]*)</dd><dt>typical gap", html).group(1)

    assert float(gap(0, 1, 2)) == pytest.approx(result.verdicts[3].residual, rel=0.01)
    assert gap(0, 1, 2, 3) == "unknown"


def test_components_of_a_single_point_have_no_extent() -> None:
    flat = np.diag([-1e-20, -1e-21, -1e-22])[None]
    assert np.array_equal(scene.roots(np.ones((1, 3)), flat), [[1, 1, 1, 0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["happyStandRight_0", "happyStandRight_24"], ["0", "24"]),
        (["scan9", "scan10", "scan11"], ["scan9", "scan10", "scan11"]),
        (["hall/setup0", "hall/setup1"], ["setup0", "setup1"]),
        (["site north 1", "site south 1"], ["north 1", "south 1"]),
        (["a1", "b1"], ["a1", "b1"]),
        (["scan 1", "scan 1 again"], ["1", "1 again"]),
        (["scan100", "scan101"], ["scan100", "scan101"]),
        (["one"], ["one"]),
    ],
)
def test_names_lose_what_all_begin_with(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short


def test_clouds_with_the_same_reason_are_one_notice() -> None:
    found = numbers.grouped(
        [
            numbers.Notice("weak", None, "A."),
            numbers.Notice("weak", "a", "weak: only 12% of its points"),
            numbers.Notice("failed", "b", "failed: only 3% of its points"),
            numbers.Notice("weak", "c", "weak: only 18.5% of its points"),
            numbers.Notice("weak", "d", "weak: it can slide along (0, 1.5, 0) by 2"),
            numbers.Notice("weak", "e", "weak: it can slide along (0, 1.5, 0) by 1.3e+02"),
            numbers.Notice("weak", "f", "weak: it can slide along (1, 0.0, 0) by 2"),
        ]
    )
    assert [(each.level, each.cloud) for each in found] == [
        ("weak", None),
        ("weak", "a, c"),
        ("failed", "b"),
        ("weak", "d, e"),
        ("weak", "f"),
    ]
    assert found[1].message == "weak: only 12 to 18.5% of its points"
    assert found[3].message == "weak: it can slide along (0, 1.5, 0) by 2 to 1.3e+02"


def test_small_lengths_have_the_smaller_unit() -> None:
    assert markup.lengths([0.000109, 0.000207, 0.0], unit="m") == [
        "109\u202fµm",
        "207\u202fµm",
        "0",
    ]
    assert markup.lengths([0.000109], unit="mm") == ["109\u202fnm"]
    assert markup.lengths([0.000109, 0.0]) == ["109e-6", "0"]
    assert markup.lengths([0.0109], unit="m") == ["0.0109"]
    assert markup.length(0.000109, "m") == "109\u202fµm"
    assert markup.length(0.0109, "m") == "0.0109 m"
    assert markup.length(0.0109, "") == "0.0109"


def test_standard_deviations_say_what_they_are_relative_to(result: coframe.Registration) -> None:
    def said(result: coframe.Registration, **options: object) -> str:
        html = page.html(result, run=Run(options=options), points=100)
        return re.search("deviations are relative to ([^.]*)[.]", html).group(1)

    assert said(result) == "the average cloud"
    covariance = result.pose_covariance.copy()
    covariance[0] = 0.0
    assert said(dataclasses.replace(result, pose_covariance=covariance)) == "the fixed clouds"
    assert said(result, prior="gnss.json") == "the given priors"


def test_poses_are_a_table_of_positions_and_angles(result: coframe.Registration) -> None:
    poses = result.poses.copy()
    poses[:, :3, 3] += [512345.25, 5403210.5, 430]
    poses[1, :3, :3] = geometry.exp_rotation(np.radians([0, 0, 30.0]))
    poses[1, :3, 3] = [512345.25, 5403210.5, 430]
    html = page.html(dataclasses.replace(result, poses=poses), points=100)
    row = re.search(r'<table class="poses">.*?</table>', html, re.S).group(0).split("<tr>")[3]
    cells = re.findall("<td>([^<]*)</td>", row)
    assert [float(cell) for cell in cells] == [512345.25, 5403210.5, 430, 30, 0, 0]
    turned = geometry.exp_rotation(np.radians([0, 0, 40.0])) @ geometry.exp_rotation(
        np.radians([20.0, 0, 0])
    )
    np.testing.assert_allclose(numbers.turns(geometry.pose(turned, np.zeros(3))), [40, 0, 20])


def test_up_is_the_same_in_space_and_on_the_plan(result: coframe.Registration) -> None:
    def seen(size: list[float], **changes: object) -> int:
        means = np.random.default_rng(0).uniform(0, 1, result.mixture.means.shape) * size
        mixture = dataclasses.replace(result.mixture, means=means)
        return scene.upright(dataclasses.replace(result, mixture=mixture, **changes))

    assert seen([20, 12, 4]) == 2  # a hall
    assert seen([0.08, 0.2, 0.07]) == 1  # a figure that stands on y
    assert seen([2, 27, 2.5], files=("a.e57",) * len(result.poses)) == 2
    assert seen([2, 27, 2.5], crs="EPSG:25832") == 2


def test_options_of_the_same_name_are_told_apart(result: coframe.Registration) -> None:
    run = Run(options={"tolerance": 0.0001, "distance_tolerance": "1cm"})
    html = page.html(result, run=run, points=100)
    assert "<dt>converged below</dt><dd>0.0001</dd>" in html
    assert "<dt>distance tolerance</dt><dd>1cm</dd>" in html
