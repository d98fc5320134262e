# SPDX-License-Identifier: MIT
"""The scenes of the proving ground, by family and half.

No shape and no seed is in both halves: the random generator of a scene is seeded from its family,
name and half, and where the shapes have names these are divided between the halves.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coframe.data.simulate import Scans
from proving.problem import Half, Kind

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
