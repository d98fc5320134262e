# SPDX-License-Identifier: MIT
"""The problems of the proving ground: which scene under which condition."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from proving import families, real, sequences
from proving.conditions import CONDITIONS
from proving.families import Scene, scanned, seed_of
from proving.problem import Problem

# Of each half of a family of simulated scenes. Conditions go round its scenes in this order.
OBJECT = (
    "nothing",
    "near",
    "far",
    "noise",
    "more_noise",
    "clutter",
    "moving",
    "overlap_10",
    "overlap_30",
    "overlap_60",
    "overlap_90",
    "densities",
    "foreign",
    "wrong_start",
    "shuffled",
    "true",
    "nothing",
    "near",
    "nothing",
    "nothing",
    "noise",
    "nothing",
)
PLACE = ("nothing", "nothing", "near", "moving")
OF_FAMILY: dict[str, tuple[str, ...]] = {
    "object": OBJECT,
    "room": (*PLACE, "far", "overlap_30", "foreign"),
    "corridor": (*PLACE, "true", "wrong_start", "overlap_60"),
    "stairs": (*PLACE, "densities", "noise", "overlap_30"),
    "facade": (*PLACE, "clutter", "far", "overlap_10"),
    "hall": (*PLACE, "true", "shuffled", "foreign"),
    "street": (*PLACE, "in_own_frame", "wrong_start", "densities"),
    "terrain": ("in_own_frame", "nothing", "near", "overlap_30", "far", "clutter", "foreign"),
    "floor": ("nothing", "nothing", "near", "noise", "nothing", "foreign", "true", "overlap_60"),
    "particles": ("nothing", "nothing", "near", "far", "densities", "clutter", "shuffled"),
}


@dataclass(frozen=True)
class Entry:
    """One problem of the plan.

    Attributes
    ----------
    scene : Scene
    condition : str
    other : Scene
        Of the same family and half, for conditions that need something foreign.
    """

    scene: Scene
    condition: str
    other: Scene

    @property
    def seed(self) -> int:
        """From the name alone: other entries of the plan do not change it."""
        scene = self.scene
        return seed_of(scene.family, scene.name, self.condition, scene.half) % 10_000

    @property
    def name(self) -> str:
        scene = self.scene
        return f"{scene.family}/{scene.name}/{self.condition}/{scene.half}/{self.seed}"

    def problem(self) -> Problem:
        """Scan the scene and put it under its condition."""
        scene = self.scene
        moves = self.condition == "moving" and scene.make_moving is not None
        scans = scanned(scene, moving=moves)
        rng = np.random.default_rng(self.seed)
        other = scanned(self.other) if self.condition in ("foreign", "moving") else scans
        condition = CONDITIONS["nothing" if moves else self.condition]
        given = condition(scans, rng, other)
        found = given.scans
        clouds = [np.ascontiguousarray(cloud, float) for cloud in found.clouds]
        if not scene.in_place or self.condition not in ("in_own_frame", "true"):
            clouds = [cloud.astype(np.float32).astype(float) for cloud in clouds]
        return Problem(
            family=scene.family,
            scene=scene.name,
            half=scene.half,
            condition=self.condition,
            seed=self.seed,
            kind=scene.kind,
            clouds=clouds,
            start=given.start,
            truth=found.poses,
            exact=found.exact,
            sigma=found.sigma,
            normals=found.normals,
            foreign=given.foreign,
            unit=found.unit,
            symmetry=scene.symmetry,
        )


def entries(scenes: Iterable[Scene]) -> list[Entry]:
    """Every scene under its own conditions, or in turn under those of its family."""
    by_half: dict[tuple[str, str], list[Scene]] = {}
    for scene in scenes:
        by_half.setdefault((scene.family, scene.half), []).append(scene)
    found: dict[str, Entry] = {}
    for (family, _), members in by_half.items():
        free = [scene for scene in members if not scene.conditions]
        pairs = [(scene, each) for scene in members for each in scene.conditions]
        if free:
            turns = enumerate(OF_FAMILY[family])
            pairs += [(free[i % len(free)], condition) for i, condition in turns]
        for scene, condition in pairs:
            at = members.index(scene)
            entry = Entry(scene, condition, members[(at + 1) % len(members)])
            found[entry.name] = entry
    return list(found.values())


@cache
def whole() -> dict[str, Entry]:
    """All problems by name. Real sets are among them where their data is there."""
    return {
        entry.name: entry
        for entry in entries([*families.simulated(), *real.scenes(), *sequences.scenes()])
    }


def chosen(
    *, family: str | None = None, half: str | None = None, condition: str | None = None
) -> list[Entry]:
    """The problems of a family, a half or a condition."""
    return [
        entry
        for entry in whole().values()
        if (family is None or entry.scene.family == family)
        and (half is None or entry.scene.half == half)
        and (condition is None or entry.condition == condition)
    ]


def slice() -> list[Entry]:
    """A problem or two of each family of simulated scenes, for the tests: about two minutes."""
    found = []
    for family in OF_FAMILY:
        members = chosen(family=family, half="tune")
        found += [next(each for each in members if each.condition == "nothing")]
        found += [each for each in members if each.condition == "near"][:1]
    return found
