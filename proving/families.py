# SPDX-License-Identifier: MIT
"""The scenes of the proving ground, by family and half.

No shape and no seed is in both halves: the random generator of a scene is seeded from its family,
name and half, and where the shapes have names these are divided between the halves.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from coframe.data import datasets
from coframe.data.simulate import Mesh, Scans, places, sensors
from coframe.data.simulate.bodies import BODIES, KINDS
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.floors import floor
from coframe.data.simulate.particles import SYMMETRY, particles
from proving.problem import Half, Kind

# [size] Points of a cloud of a body; of a room, corridor or strip; of a lidar.
POINTS = 2000
PLACE_POINTS = 3000
LIDAR_POINTS = 6000
# [size] Points of a cloud of the one large scene.
MANY_POINTS = 1_000_000
# [size] Views of a body, once around.
VIEWS = 6
# [size] Scans of a floor, and particles of a structure.
FLOOR_SCANS = 8
PARTICLES = 12
# Meshes of others, where they are under COFRAME_DATA, and the conditions that each is run under.
MESHES = {
    "armadillo": "models/armadillo.off",
    "lucy": "models/lucy_small.ply",
    "bunny": "stanford/bunny/reconstruction/bun_zipper.ply",
}
MESH_CONDITIONS = (("nothing",), ("near",), ("noise",))

HALVES: tuple[Half, ...] = ("tune", "judge")

Make = Callable[[np.random.Generator], Scans]


@dataclass(frozen=True)
class Scene:
    """A scene that problems are made of.

    Attributes
    ----------
    family, name : str
        Such as "street" and "street 3".
    half : "tune" or "judge"
    make : callable
        Scans the scene, given a random generator: `make(rng) -> Scans`.
    kind : "register" or "track"
        In a track the clouds are successive frames.
    make_moving : callable, optional
        As `make`, with bodies in the scene that move from scan to scan.
    symmetry : int
        As in `Problem`.
    in_place : bool
        Whether the own frames of the clouds mean something that a user would leave alone, such as
        the coordinates of a map: then clouds are stored with all digits.
    conditions : tuple of str
        The conditions under which it is run; none: as the plan has it for its family.
    """

    family: str
    name: str
    half: Half
    make: Make
    kind: Kind = "register"
    make_moving: Make | None = None
    symmetry: int = 1
    in_place: bool = False
    conditions: tuple[str, ...] = ()


def seed_of(*words: object) -> int:
    """A seed that depends on the words alone, the same on every machine and in every version."""
    text = "/".join(map(str, words))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def scanned(scene: Scene, *, moving: bool = False) -> Scans:
    """The scans of a scene: the same ones whenever they are asked for."""
    rng = np.random.default_rng(seed_of(scene.family, scene.name, scene.half))
    if moving and scene.make_moving is not None:
        return scene.make_moving(rng)
    return scene.make(rng)


def simulated() -> list[Scene]:
    """Bodies, meshes that were scanned once, places, floors and particles."""
    return [*objects(), *meshes(), *places_of_all_kinds(), *floors(), *structures()]


def scan_mesh(name: str, mesh: Mesh, rng: np.random.Generator, *, views: int) -> Scans:
    """A body on a turntable, seen once around from a random height."""
    caster = Caster.of(mesh)
    elevation = rng.uniform(5.0, 30.0)
    stations = sensors.around(views, distance=2.5, elevation=elevation, rng=rng)
    scans = [sensors.turntable(caster, pose, rng) for pose in stations]
    return sensors.gathered(name, scans, rng, points=POINTS, unit="")


def halves(names: Sequence[str]) -> list[tuple[str, Half]]:
    """Names in turn in tune and in judge."""
    return [(name, "judge" if i % 2 else "tune") for i, name in enumerate(names)]


def objects() -> list[Scene]:
    """Bodies; every kind of them is in both halves, no body is."""

    def make(body: str, rng: np.random.Generator) -> Scans:
        return scan_mesh(body, BODIES[body](rng), rng, views=VIEWS)

    return [
        Scene("object", body, half, partial(make, body))
        for names in KINDS.values()
        for body, half in halves(names)
    ]


def meshes() -> list[Scene]:
    """Meshes that numbers of release 0.1 were chosen on: all of them are in tune."""

    def make(name: str, path: Path, rng: np.random.Generator) -> Scans:
        mesh = trimesh.load(path, process=False)
        vertices = np.array(mesh.vertices, float)
        vertices -= (vertices.min(0) + vertices.max(0)) / 2
        unit = Mesh(vertices / np.ptp(vertices, axis=0).max(), np.array(mesh.faces))
        return scan_mesh(name, unit, rng, views=VIEWS)

    files = {name: datasets.root() / path for name, path in MESHES.items()}
    return [
        Scene("object", f"mesh of {name}", "tune", partial(make, name, path), conditions=few)
        for name, path, few in zip(files, files.values(), MESH_CONDITIONS, strict=True)
        if path.exists()
    ]


def place(
    family: str,
    name: str,
    half: Half,
    make: Callable[..., places.Place],
    *,
    points: int = PLACE_POINTS,
    bodies: int = 3,
    **options: Any,
) -> Scene:
    """A scene of a place, which can be scanned with moving bodies in it."""

    def scan(moving: int, rng: np.random.Generator) -> Scans:
        return places.scanned(make(rng, **options), rng, points=points, moving=moving)

    in_place = family == "terrain"
    return Scene(
        family, name, half, partial(scan, 0), "register", partial(scan, bodies), 1, in_place
    )


def places_of_all_kinds() -> list[Scene]:
    """Each in several variants, which are in both halves with other random shapes."""
    found = []
    for half in HALVES:
        add = partial(place, half=half)
        found += [
            add("room", "depth camera", make=places.room),
            add("room", "depth camera 2", make=places.room),
            add("room", "terrestrial", make=places.room, sensor="terrestrial"),
            add("corridor", "repeated doors", make=places.corridor),
            add("corridor", "something unique", make=places.corridor, unique=True),
            add("corridor", "bare walls", make=places.corridor, doors=False),
            add("stairs", "equal storeys", make=places.stairs),
            add("stairs", "something unique", make=places.stairs, unique=True),
            add("facade", "equal windows", make=places.facade),
            add("facade", "something unique", make=places.facade, unique=True),
            add("hall", "equal pillars", make=places.hall),
            add("hall", "something unique", make=places.hall, unique=True),
            add("street", "6 m apart", make=places.street, points=LIDAR_POINTS),
            add("street", "3 m apart", make=places.street, points=LIDAR_POINTS, step=3.0),
            add("terrain", "strips", make=places.terrain),
            add("terrain", "narrow overlap", make=places.terrain, overlap=0.2),
        ]
    large = place("hall", "a million points", "judge", places.hall, points=MANY_POINTS, unique=True)
    return [*found, replace(large, conditions=("nothing",))]


def floors() -> list[Scene]:
    """Kinds of floors, in both halves with other plans."""

    def make(kind: str, rng: np.random.Generator) -> Scans:
        return floor(rng, kind=kind, scans=FLOOR_SCANS)

    return [
        Scene("floor", kind, half, partial(make, kind))
        for half in HALVES
        for kind in ("office", "repeated", "hall", "flat")
    ]


def structures() -> list[Scene]:
    """Particles in the plane and in space; no structure is in both halves.

    They are no surfaces: without sigma no limit is computed for them.
    """

    def make(kind: str, rng: np.random.Generator) -> Scans:
        return replace(particles(rng, kind=kind, count=PARTICLES), sigma=None)

    kinds: dict[str, Half] = {
        "letters": "tune",
        "pore": "tune",
        "grid": "judge",
        "ring": "judge",
        "tetrapod": "judge",
    }
    return [
        Scene("particles", kind, half, partial(make, kind), symmetry=SYMMETRY[kind])
        for kind, half in kinds.items()
    ]
