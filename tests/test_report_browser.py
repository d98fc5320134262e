# SPDX-License-Identifier: MIT
"""The report in a real browser, headless Chromium driven by Playwright: it draws, answers, and
fetches nothing.

Without Chromium these tests skip, unless COFRAME_BROWSER=required. COFRAME_CHROMIUM names another
executable.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import HOSTILE

import coframe
from coframe import geometry, report
from coframe.data import simulate
from coframe.em.estep import Cloud
from coframe.io import ply
from coframe.report import markup
from coframe.sequence.keyframes import Keyframe
from coframe.sequence.track import Track

REQUIRED = os.environ.get("COFRAME_BROWSER") == "required"
SOFTWARE = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
QUIET = ["--no-sandbox", "--disable-background-networking"]
DESKTOP = {"viewport": {"width": 900, "height": 520}}  # software draws every pixel here
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}

# Of a canvas: a number that changes with any pixel, the share of pixels unlike the corner, the
# corner's colour.
LOOK = """async (id) => {
  const frame = () => new Promise(requestAnimationFrame);
  await frame(); await frame(); await frame();
  const canvas = document.getElementById(id), copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const pen = copy.getContext("2d");
  pen.drawImage(canvas, 0, 0);
  const data = new Int32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer);
  let sum = 0, drawn = 0;
  for (const pixel of data) { sum = (sum * 31 + pixel) | 0; drawn += pixel !== data[0]; }
  const corner = [data[0] & 255, data[0] >> 8 & 255, data[0] >> 16 & 255];
  return { sum, drawn: drawn / data.length, corner };
}"""


@pytest.fixture(scope="module")
def playwright() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if REQUIRED:
            raise
        pytest.skip("playwright is not installed: pip install -e '.[dev]'")
    with sync_playwright() as driver:
        yield driver


def executable() -> str:
    names = [os.environ.get("COFRAME_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        assert not REQUIRED, "COFRAME_BROWSER=required, but no Chromium is found"
        pytest.skip("no Chromium is found; install it, or set COFRAME_CHROMIUM to its executable")
    return found


@pytest.fixture(scope="module")
def browser(playwright: Any) -> Iterator[Any]:
    browser = playwright.chromium.launch(executable_path=executable(), args=[*QUIET, *SOFTWARE])
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def result() -> coframe.Registration:
    rng = np.random.default_rng(3)
    scene = simulate.scene(4, 1500, degrees=60.0, noise_db=50.0, outliers=0.1, rng=rng)
    return coframe.register(scene.clouds, options=coframe.Options(components=150, threads=2))


@dataclasses.dataclass
class Opened:
    """A page and all that it said and asked for."""

    page: Any
    messages: list[str]
    requests: list[str]
    dialogs: list[str]

    def look(self, canvas: str = "view") -> dict[str, Any]:
        return self.page.evaluate(LOOK, canvas)


Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def open_page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    contexts = []

    def opened(
        result: coframe.Registration | Path, *, context: dict[str, Any] = DESKTOP, **options: Any
    ) -> Opened:
        new = tmp_path_factory.mktemp("report") / "report.html"
        path = result if isinstance(result, Path) else report.write(result, new, **options)
        contexts.append(browser.new_context(**context))
        found = Opened(contexts[-1].new_page(), [], [], [])
        found.page.on(
            "console", lambda message: found.messages.append(f"{message.type}: {message.text}")
        )
        found.page.on("pageerror", lambda error: found.messages.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on(
            "dialog", lambda dialog: (found.dialogs.append(dialog.message), dialog.dismiss())
        )
        found.page.goto(path.as_uri())
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def opened(open_page: Open, result: coframe.Registration) -> Opened:
    rng = np.random.default_rng(0)
    colours = [rng.integers(0, 256, (len(cloud), 3)).astype(np.uint8) for cloud in result.clouds]
    columns = tuple(dict(zip(("red", "green", "blue"), each.T, strict=True)) for each in colours)
    coloured = dataclasses.replace(result, attributes=columns)
    command = "coframe register scans -o out"
    found = open_page(coloured, run=report.Run(command, start=geometry.identity(4, 3)))
    found.page.locator("#position").fill("0")
    return found


def test_it_draws_says_nothing_and_asks_for_nothing(opened: Opened) -> None:
    assert opened.look("view")["drawn"] > 0.05
    assert opened.look("section")["drawn"] > 0.002
    assert opened.messages == []
    assert len(opened.requests) == 1
    assert opened.requests[0].startswith("file://")
    assert opened.page.is_hidden("#no-webgl")


def check(selector: str, on: bool) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).set_checked(on)


def choose(selector: str, value: str) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).select_option(value)


def slide(selector: str, value: float) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).fill(str(value))


def click(selector: str) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).click()


def press(selector: str, key: str) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).press(key)


def drag(selector: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.locator(selector).scroll_into_view_if_needed()
        box = page.locator(selector).bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 160, box["y"] + 130, steps=3)
        page.mouse.up()
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)  # until the view stands still and all points are drawn

    return act


def chip(cloud: int, on: bool) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.locator(f'.chip[data-cloud="{cloud}"] input').set_checked(on, force=True)
        page.mouse.move(0, 0)

    return act


# What is done, what undoes it, and which canvases it changes.
CONTROLS: dict[str, tuple[Callable[[Any], None], Callable[[Any], None], tuple[str, ...]]] = {
    "before": (click("#before"), click("#after"), ("view", "section")),
    "iteration": (slide("#frame", 2), click("#after"), ("view", "section")),
    "one cloud": (chip(1, False), chip(1, True), ("view", "section")),
    "no cloud": (click("#none"), click("#all"), ("view", "section")),
    "outliers": (check("#outliers", True), check("#outliers", False), ("view", "section")),
    "points": (check("#points", False), check("#points", True), ("view",)),
    "model": (check("#model", True), check("#model", False), ("view",)),
    "plane": (check("#plane", True), check("#plane", False), ("view",)),
    "own colours": (choose("#colour", "own"), choose("#colour", "cloud"), ("view", "section")),
    "size": (slide("#size", 1), slide("#size", 0), ("view", "section")),
    "position": (slide("#position", 0.3), slide("#position", 0), ("section",)),
    "axis": (
        press("input[name=axis]:checked", "ArrowRight"),
        press("input[name=axis]:checked", "ArrowLeft"),
        ("section",),
    ),
    "turn by mouse": (drag("#view"), click("#reset"), ("view",)),
    "turn by key": (press("#view", "ArrowLeft"), click("#reset"), ("view",)),
    "zoom by key": (press("#view", "+"), click("#reset"), ("view",)),
    "move the section": (drag("#section"), click("#reset"), ("section",)),
    "zoom the section": (press("#section", "-"), click("#reset"), ("section",)),
    "link": (
        click("#links button[data-pair] >> nth=0"),
        click("#links button[data-pair] >> nth=0"),
        ("view", "section"),
    ),
    "cell of a matrix": (
        click('table.overlap td[data-pair="0 1"]'),
        click('table.overlap td[data-pair="0 1"]'),
        ("view", "section"),
    ),
    "chart": (
        lambda page: page.locator("#convergence .chart").first.click(),
        click("#after"),
        ("view", "section"),
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_each_control_changes_the_picture_and_back(opened: Opened, control: str) -> None:
    act, undo, canvases = CONTROLS[control]
    before = {canvas: opened.look(canvas)["sum"] for canvas in ("view", "section")}
    act(opened.page)
    during = {canvas: opened.look(canvas)["sum"] for canvas in before}
    undo(opened.page)
    after = {canvas: opened.look(canvas)["sum"] for canvas in before}
    assert {canvas for canvas in before if during[canvas] != before[canvas]} == set(canvases)
    assert after == before


def test_a_pair_is_shown_alone_and_marked_wherever_it_is(opened: Opened) -> None:
    page = opened.page
    shown = "() => [...document.querySelectorAll('.chip input')].map((box) => box.checked)"
    page.locator('table.gap td[data-pair="2 0"]').click()
    assert page.evaluate(shown) == [True, False, True, False]
    assert page.locator("td.chosen").count() == 4  # both ways, in both matrices
    page.locator('table.overlap td[data-pair="3 1"]').click()
    assert page.evaluate(shown) == [False, True, False, True]
    page.locator('table.overlap td[data-pair="3 1"]').click()
    assert page.evaluate(shown) == [True] * 4
    assert page.locator(".chosen").count() == 0
    links = page.locator("svg.plan line.link")
    assert links.count() == page.locator("#links tbody tr").count() > 0


def test_clouds_marked_as_wrong_give_the_command_without_them(opened: Opened) -> None:
    page = opened.page
    page.locator("#links summary").click()
    assert page.is_hidden("#again")
    boxes = page.locator("[data-exclude]")
    boxes.nth(1).check()
    boxes.nth(3).check()
    again = page.locator("#again").text_content()
    assert again == "coframe register scans -o out-2 --exclude 'cloud 1' --exclude 'cloud 3'"
    boxes.nth(1).uncheck()
    boxes.nth(3).uncheck()
    assert page.is_hidden("#again")
    page.locator("#links summary").click()


def test_a_pair_moves_the_section_to_where_it_shares_the_most(opened: Opened) -> None:
    page = opened.page
    page.locator("#position").fill("0.98")  # where hardly a point is
    before = opened.look("section")
    page.locator('table.gap td[data-pair="2 0"]').click()
    assert abs(float(page.locator("#position").input_value())) < 0.95
    assert opened.look("section")["drawn"] > 2 * before["drawn"]
    page.locator('table.gap td[data-pair="2 0"]').click()
    assert page.locator("#position").input_value() == "0.98"
    page.locator("#position").fill("0")


def test_the_table_and_the_poses_fit_where_axes_are_free(
    open_page: Open, result: coframe.Registration
) -> None:
    loose = dataclasses.replace(
        result,
        names=tuple(f"happyStandRight_{24 * j}" for j in range(4)),
        pose_covariance=np.tile(1e4 * np.eye(6), (4, 1, 1)),
    )
    run = report.Run(start=geometry.identity(4, 3))
    page = open_page(
        loose, context={"viewport": {"width": 1200, "height": 800}}, run=run, points=500
    ).page
    assert "x free, y free, z free" in page.text_content("#poses")
    page.locator("#poses .placed summary").click()
    for table in page.locator("#poses .scroll").all():
        assert table.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0
    seen = page.locator(".poses pre").first
    assert seen.evaluate("(e) => e.getBoundingClientRect().right") < 1200


def test_thickness_lets_more_points_in(opened: Opened) -> None:
    thin = opened.look("section")["drawn"]
    opened.page.locator("#thickness").fill("-0.7")
    assert opened.look("section")["drawn"] > 1.5 * thin


def test_the_model_emerges(opened: Opened) -> None:
    opened.page.locator("#points").uncheck()
    opened.page.locator("#model").check()
    end = opened.look()["sum"]
    opened.page.locator("#before").click()
    assert opened.look()["sum"] != end
    assert opened.page.locator("#frame-label").text_content() == "start"
    opened.page.locator("#model").uncheck()
    assert opened.look()["drawn"] == 0
    opened.page.locator("#points").check()
    opened.page.locator("#after").click()


def test_play_ends_at_the_result(opened: Opened) -> None:
    opened.page.locator("#play").click()
    opened.page.wait_for_selector("#play[aria-pressed=true]")
    assert opened.page.locator("#frame-label").text_content() != "result"
    opened.page.wait_for_selector("#play[aria-pressed=false]", timeout=30_000)
    assert opened.page.locator("#frame-label").text_content() == "result"


def test_every_control_has_a_name_and_is_reached_by_keys(opened: Opened) -> None:
    unnamed = """() => [...document.querySelectorAll("button, input, select, canvas")].filter((e) =>
      e.checkVisibility() && !(e.labels?.length && e.labels[0].textContent.trim()) &&
      !e.getAttribute("aria-label") && !e.textContent.trim()).length"""
    assert opened.page.evaluate(unnamed) == 0
    opened.page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.add(
            opened.page.evaluate("document.activeElement.id || document.activeElement.name")
        )
    wanted = {
        "before",
        "after",
        "play",
        "frame",
        "view",
        "reset",
        "points",
        "outliers",
        "model",
        "plane",
        "colour",
        "size",
    }
    assert reached >= wanted | {"section", "axis", "position", "thickness", "all", "none"}


def test_it_stayed_silent_through_all_that(opened: Opened) -> None:
    assert opened.messages == []
    assert len(opened.requests) == 1


def test_hostile_text_stays_text(open_page: Open, result: coframe.Registration) -> None:
    verdicts = tuple(
        dataclasses.replace(v, verdict="failed", reason=text)
        for v, text in zip(result.verdicts, HOSTILE, strict=False)
    )
    bad = dataclasses.replace(result, names=tuple(HOSTILE[:4]), verdicts=verdicts)
    everywhere = {text: text for text in HOSTILE}
    opened = open_page(bad, run=report.Run(" ".join(HOSTILE), everywhere, everywhere), points=500)
    assert opened.look()["drawn"] > 0
    assert (opened.messages, opened.dialogs, len(opened.requests)) == ([], [], 1)
    clean = [markup.clean(text) for text in HOSTILE]
    assert opened.page.locator(".chip bdi").all_text_contents() == clean[:4]
    assert opened.page.locator(".notice b").all_text_contents() == clean[:4]
    assert opened.page.locator(".command").text_content() == " ".join(clean)
    assert opened.page.locator("img, b[onmouseover], main script").count() == 0


def test_a_hostile_file_name_stays_text_from_the_command_line_to_the_page(
    open_page: Open, tmp_path: Path
) -> None:
    """A real file of that name, read, registered and reported by the real command."""
    hostile = "<img src=x onerror=alert(1)>"
    scene = simulate.scene(2, 200, degrees=20.0, noise_db=50.0, rng=np.random.default_rng(1))
    for name, cloud in zip((hostile, "plain"), scene.clouds, strict=True):
        ply.write(tmp_path / f"{name}.ply", cloud)
    command = [
        sys.executable,
        "-m",
        "coframe",
        "register",
        f"{hostile}.ply",
        "plain.ply",
        "-o",
        "out",
        "--components",
        "30",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert hostile in done.stdout
    opened = open_page(tmp_path / "out" / "report.html")
    assert opened.look()["drawn"] > 0
    assert (opened.messages, opened.dialogs, len(opened.requests)) == ([], [], 1)
    assert opened.page.locator(".chip bdi").first.text_content() == hostile
    assert hostile in opened.page.locator(".command").text_content()
    assert opened.page.locator("img").count() == 0


def test_the_policy_stops_scripts_and_requests(
    open_page: Open, result: coframe.Registration
) -> None:
    """Were a name ever to get through, it could still do nothing."""
    opened = open_page(result, points=500)
    blocked = []
    opened.page.on("requestfailed", lambda request: blocked.append((request.url, request.failure)))
    opened.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://example.org/x"
        " onerror=alert(1)>')"
    )
    opened.page.wait_for_timeout(200)
    assert opened.dialogs == []
    assert blocked == [("https://example.org/x", "csp")]


def test_a_phone_needs_no_sideways_scrolling(open_page: Open, result: coframe.Registration) -> None:
    long = dataclasses.replace(
        result,
        names=("a" * 90, "scan of the north-western corner of the old hall, evening", "c", "d"),
    )
    weak = tuple(dataclasses.replace(v, verdict="weak") for v in result.verdicts)
    opened = open_page(
        dataclasses.replace(long, verdicts=weak),
        context=PHONE,
        run=report.Run("coframe register " + "x" * 300),
    )
    assert opened.look()["drawn"] > 0.01
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    outside = """() => [...document.querySelectorAll(
      "main :is(canvas, svg.chart, button, input, label)")].filter(
      (e) => e.checkVisibility() && e.getBoundingClientRect().right > 360).length"""
    assert opened.page.evaluate(outside) == 0


def test_dark_is_dark_and_paper_is_white(open_page: Open, result: coframe.Registration) -> None:
    opened = open_page(result, context={**DESKTOP, "color_scheme": "dark"})
    assert max(opened.look()["corner"]) < 60
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.look()["corner"] == [255, 255, 255]
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert max(opened.look()["corner"]) < 60
    opened.page.emulate_media(color_scheme="light")
    assert min(opened.look()["corner"]) > 240


def test_paper_has_all_columns_and_nothing_to_click(
    open_page: Open, result: coframe.Registration
) -> None:
    opened = open_page(result, run=report.Run("coframe register scans", {"unit": "mm"}))
    opened.page.emulate_media(media="print")
    heads = opened.page.locator("#links th[scope=col]")
    assert heads.count() >= 3
    assert all(heads.nth(i).is_visible() for i in range(heads.count()))
    assert opened.page.locator("#poses summary").first.is_hidden()
    assert opened.page.locator(".poses tbody td").first.is_visible()  # positions, without a click
    assert opened.page.locator(".poses pre").first.is_hidden()
    text = opened.page.evaluate("document.body.innerText")
    assert "Click" not in text
    assert opened.page.locator("#links .plan").bounding_box()["height"] < 400
    opened.page.emulate_media(media="screen")
    assert "Click" in opened.page.evaluate("document.body.innerText")


def test_clouds_of_the_plane(open_page: Open) -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, (3, 300))
    clouds = [np.stack([np.cos(a) * (2 + np.cos(3 * a)), np.sin(a)], 1) for a in angle]
    flat = coframe.register(clouds, options=coframe.Options(components=30, threads=1))
    opened = open_page(flat)
    assert opened.look()["drawn"] > 0.001
    assert opened.page.is_hidden("#section")
    assert opened.messages == []


def test_many_clouds_make_a_picture_of_their_pairs(
    open_page: Open, result: coframe.Registration
) -> None:
    which = [j % 4 for j in range(60)]
    take = {
        field: tuple(getattr(result, field)[j] for j in which)
        for field in ("clouds", "labels", "outlier_probability", "verdicts")
    }
    moments = dataclasses.replace(
        result.moments,
        **{
            field: getattr(result.moments, field)[which]
            for field in ("mass", "first", "second", "points")
        },
    )
    many = dataclasses.replace(
        result,
        **take,
        names=tuple(f"scan {j}" for j in range(60)),
        poses=result.poses[which],
        moments=moments,
        pose_covariance=result.pose_covariance[which],
        history=(),
    )
    opened = open_page(many)
    assert (
        opened.page.evaluate("[...document.images].map((i) => [i.naturalWidth, i.naturalHeight])")
        == [[60, 60]] * 2
    )
    assert opened.page.locator(".chip").count() == 60
    assert opened.page.is_hidden("#frame")
    assert opened.messages == []


def test_without_webgl_or_scripts_the_figures_remain(
    playwright: Any, result: coframe.Registration, tmp_path: Path
) -> None:
    path = report.write(result, tmp_path / "report.html", points=500)
    browser = playwright.chromium.launch(
        executable_path=executable(), args=[*QUIET, "--disable-3d-apis"]
    )
    for options in ({}, {"java_script_enabled": False}):
        page = browser.new_context(**options).new_page()
        page.goto(path.as_uri())
        assert page.is_visible("#no-webgl") == (not options)
        assert page.locator("#poses .clouds tbody tr").count() == 4
        assert page.is_visible(".clouds")
        assert page.locator("#convergence polyline").first.is_visible()
    browser.close()


def test_a_track_page_draws_its_map_and_names_stay_text(browser: Any, tmp_path: Path) -> None:
    """Four frames, of which the third has a hostile name and is lost."""
    rng = np.random.default_rng(0)
    cloud = rng.uniform(-1, 1, (900, 3)) * [1, 1, 0.2]
    keyframes = tuple(
        Keyframe(i, Cloud.of(cloud), geometry.exp(np.array([0, 0.1 * i, 0, 0.2 * i, 0, 0])))
        for i in (0, 1, 3)
    )
    poses = np.stack([keyframe.pose for keyframe in keyframes])[[0, 1, 1, 2]]
    lost, explained = np.array([False, False, True, False]), np.array([1.0, 0.9, 0.0, 0.8])
    tracked = Track(
        np.arange(4) / 30,
        poses,
        lost=lost,
        explained=explained,
        keyframes=keyframes,
        mixture=None,
        names=("a", "b", HOSTILE[0], "d"),
    )
    path = report.track.write(tracked, tmp_path / "report.html", run=report.Run(HOSTILE[1]))
    page = browser.new_context(**DESKTOP).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    seen = page.evaluate(LOOK, "view")
    assert seen["drawn"] > 0.01
    page.locator(".chip").last.click()  # the path
    assert page.evaluate(LOOK, "view")["sum"] != seen["sum"]
    page.locator("#model").check()
    assert page.evaluate(LOOK, "view")["drawn"] > 0
    assert HOSTILE[0] in page.locator(".notices").inner_text()
    # two views, each with a gap where the frame is lost
    assert page.locator("#path svg polyline").count() == 4
    assert page.locator("#quality rect.band").count() == 1
    assert said == []
    assert asked == [path.as_uri()]
