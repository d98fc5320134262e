# SPDX-License-Identifier: MIT
"""`python -m proving.pictures [name ...]` draws scenes of the families into docs/images.

Scans at their true poses, one colour a cloud, sensors marked by numbers. Needs the extra
`experiments` (Matplotlib, Pillow).
"""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from coframe.data.simulate import places, sensors
from coframe.data.simulate.bodies import BODIES
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.records import Scans
from coframe.geometry import rotation, transform
from coframe.types import Array, Points

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
# Colours of clouds, distinct for most kinds of colour vision.
COLOURS = ("#3b6fb6", "#e08a2c", "#4a9e5c", "#c8453d", "#8a64b0", "#8c6d4f", "#d57ab3", "#6f7f86")
# [limit: for pages that load quickly] Of a picture [bytes].
LARGEST_FILE = 150_000


@dataclass(frozen=True)
class View:
    """From where to look at a scene, and how finely.

    Attributes
    ----------
    azimuth : float
        Direction to the eye, counter-clockwise from x [degrees].
    elevation : float
        Of the eye above the horizon [degrees].
    dot : float
        Width of a point [pixels].
    far : float
        Distance from the sensor up to which points are drawn.
    sensor_height : float, optional
        Height above the middle at which sensors are drawn instead, such as those of an aircraft.
    nearer : float
        Share of their true distance from the middle at which sensors are drawn.
    """

    azimuth: float
    elevation: float
    dot: float = 1.0
    far: float = np.inf
    sensor_height: float | None = None
    nearer: float = 1.0


def draw(scans: Scans, view: View, path: Path) -> None:
    """Draw scans at their true poses as somebody sees them from far away."""
    towards = _eye(view)
    right = np.cross([0.0, 0.0, 1.0], towards)
    right /= np.linalg.norm(right)
    screen = np.stack([right, np.cross(towards, right), towards])
    points, colours, sensors = _coloured(scans, view, towards)
    seen, marks = points @ screen.T, sensors @ screen.T
    everything = np.concatenate([seen, marks])[:, :2]
    low, high = everything.min(0), everything.max(0)
    wide, tall = (high - low) * 1.04
    pixels = 900
    figure = Figure(figsize=(pixels / 100, max(2.6, pixels / 100 * tall / wide)), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    order = np.argsort(seen[:, 2])
    size = (view.dot * 72 / 100) ** 2
    axes.scatter(*seen[order, :2].T, s=size, c=colours[order], linewidths=0, marker="s")
    for number, (x, y, _) in enumerate(marks):
        style = {"boxstyle": "circle,pad=0.25", "fc": COLOURS[number % len(COLOURS)], "ec": "white"}
        axes.text(x, y, str(number), color="white", size=9, ha="center", va="center", bbox=style)
    middle = (low + high) / 2
    axes.set_xlim(middle[0] - wide / 2, middle[0] + wide / 2)
    axes.set_ylim(middle[1] - tall / 2, middle[1] + tall / 2)
    axes.set_aspect("equal")
    axes.axis("off")
    _save(figure, path)


def _eye(view: View) -> Float[Array, " 3"]:
    a, e = np.radians([view.azimuth, view.elevation])
    return np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])


def _coloured(
    scans: Scans, view: View, towards: Float[Array, " 3"]
) -> tuple[Points, Float[Array, "N 3"], Points]:
    """Points that face the eye in the common frame, shaded, and the sensors."""
    assert scans.normals is not None
    assert scans.sensors is not None
    light = towards + np.array([0.3, -0.2, 0.9])
    light /= np.linalg.norm(light)
    points, colours, sensors = [], [], []
    for j, T in enumerate(scans.poses):
        cloud, normals = transform(T, scans.clouds[j]), scans.normals[j] @ rotation(T).T
        near = np.linalg.norm(scans.clouds[j] - scans.sensors[j], axis=1) < view.far
        # Walls and ceilings that turn their back to the eye would hide what is in the place.
        kept = near & (normals @ towards > 0.02)
        colour = np.array([int(COLOURS[j % len(COLOURS)][k : k + 2], 16) for k in (1, 3, 5)]) / 255
        shade = np.clip(0.35 + 0.75 * (normals[kept] @ light), 0.3, 1)[:, None]
        points.append(cloud[kept])
        colours.append(np.clip(colour * shade + 0.12 * shade, 0, 1))
        sensors.append(transform(T, scans.sensors[j : j + 1])[0])
    at, centre = np.array(sensors), np.concatenate(points).mean(0)
    if view.sensor_height is not None:
        at[:, 2] = centre[2] + view.sensor_height
    return np.concatenate(points) - centre, np.concatenate(colours), view.nearer * (at - centre)


def _save(figure: Figure, path: Path) -> None:
    """Save with as many colours as the largest size of a file allows."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    picture = Image.open(buffer).convert("RGB")
    for colours in (128, 64, 32, 16):
        small = picture.quantize(colours, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        if path.stat().st_size < LARGEST_FILE:
            return
    raise ValueError(f"{path.name} is larger than {LARGEST_FILE} bytes: draw fewer points")


def _place(make: Callable[..., places.Place], points: int, **options: bool) -> Scans:
    rng = np.random.default_rng(7)
    return places.scanned(make(rng, **options), rng, points=points)


def _object(name: str, points: int) -> Scans:
    rng = np.random.default_rng(3)
    caster = Caster.of(BODIES[name](rng))
    poses = sensors.around(6, distance=2.5, elevation=25.0, rng=rng)
    scans = [sensors.turntable(caster, pose, rng, width=300, height=300) for pose in poses]
    return sensors.gathered(name, scans, rng, points=points, unit="")


SCENES: dict[str, tuple[Callable[[], Scans], View]] = {
    "object": (lambda: _object("teapot", 12_000), View(-60, 30, 2.2, nearer=0.3)),
    "room": (lambda: _place(places.room, 16_000), View(120, 42, 1.9)),
    "corridor": (lambda: _place(places.corridor, 60_000, unique=True), View(-60, 34, 1.8)),
    "stairs": (lambda: _place(places.stairs, 60_000, unique=True), View(-30, 25, 1.6)),
    "facade": (lambda: _place(places.facade, 60_000, unique=True), View(-72, 20, 1.9)),
    "hall": (lambda: _place(places.hall, 90_000, unique=True), View(-60, 38, 1.8)),
    "street": (lambda: _place(places.street, 30_000), View(-48, 38, 1.7, 26.0)),
    "terrain": (lambda: _place(places.terrain, 40_000), View(-70, 52, 1.9, sensor_height=30.0)),
}


def main(names: list[str]) -> None:
    """Draw the named scenes, or all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or SCENES:
        make, view = SCENES[name]
        path = FOLDER / f"proving-{name}.png"
        draw(make(), view, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
