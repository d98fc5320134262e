# SPDX-License-Identifier: MIT
"""A registration problem with its truth, and what a method answered. Both are saved as .npz."""

import json
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from coframe.types import Array, Poses

Half = Literal["tune", "judge"]
Kind = Literal["register", "track"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Clouds, what a method is given about them, and the truth.

    Attributes
    ----------
    family, scene : str
        Such as "street" and "street 3".
    half : "tune" or "judge"
        Numbers of recipes are chosen on "tune" alone.
    condition : str
        Such as "nothing" or "clutter".
    seed : int
    kind : "register" or "track"
        In a track the clouds are successive frames.
    clouds : list of arrays (N_j, D)
        Each in its own frame.
    start : array (M, D+1, D+1), optional
        Poses that the method is given.
    truth : array (M, D+1, D+1)
        The true poses. Those of foreign clouds mean nothing.
    exact : bool
        Whether the truth is exact, or somebody's estimate.
    sigma : list of floats or arrays (N_j,), optional
        Noise of the points along the normals.
    normals : list of arrays (N_j, D), optional
        True normals in the clouds' own frames; zeros for points on no surface.
    foreign : tuple of int
        Clouds that belong to nothing: right if they are not called aligned.
    unit : str
        Of lengths.
    symmetry : int
        The structure looks the same after so many turns about the z axis of the frame of the truth
        (in the plane, about its origin). 1: it has no symmetry.
    """

    family: str
    scene: str
    half: Half
    condition: str
    seed: int
    kind: Kind
    clouds: list[Float[Array, "_ D"]]
    start: Poses | None
    truth: Poses
    exact: bool
    sigma: list[Any] | None = None
    normals: list[Float[Array, "_ D"]] | None = None
    foreign: tuple[int, ...] = ()
    unit: str = "m"
    symmetry: int = 1

    @property
    def name(self) -> str:
        return f"{self.family}/{self.scene}/{self.condition}/{self.half}/{self.seed}"

    def save(self, path: str | PathLike[str]) -> None:
        _save(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Problem":
        values = _load(path)
        return cls(**{**values, "foreign": tuple(values["foreign"])})


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method answered, and what it cost.

    Attributes
    ----------
    poses : array (M, D+1, D+1), optional
        None if the method failed as a whole.
    verdicts : list of str
        "aligned", "weak" or "failed" for each cloud.
    groups : list of lists of int
        Clouds that are connected; each group has a frame of its own.
    warnings : list of str
    covariance : array (M, 6, 6) or (M, 3, 3), optional
        As `Registration.pose_covariance`.
    seconds, cpu : float
        Elapsed, and of all processors together.
    memory : int
        [bytes] Largest resident size.
    error : str, optional
        Why there are no poses; begins with "timed out" if that is why.
    """

    poses: Poses | None
    verdicts: list[str] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    covariance: Float[Array, "M P P"] | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    error: str | None = None

    def save(self, path: str | PathLike[str]) -> None:
        _save(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Answer":
        return cls(**_load(path))


def _save(path: str | PathLike[str], record: Problem | Answer) -> None:
    """Arrays and lists of arrays are members of the .npz; the rest is one line of JSON in it."""
    members: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    lists: dict[str, int] = {}
    for name, value in vars(record).items():
        if isinstance(value, np.ndarray):
            members[name] = value
        elif name in ("clouds", "sigma", "normals") and value is not None:
            lists[name] = len(value)
            members |= {f"{name}.{j}": np.asarray(each, float) for j, each in enumerate(value)}
        else:
            rest[name] = value
    text = json.dumps({"rest": rest, "lists": lists}, default=_plain)
    with open(path, "wb") as file:  # a path without .npz stays as it is
        np.savez_compressed(file, json=np.array(text), **members)


def _load(path: str | PathLike[str]) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        described = json.loads(str(stored["json"]))
        lists = {
            name: [_scalar(stored[f"{name}.{j}"]) for j in range(count)]
            for name, count in described["lists"].items()
        }
        arrays = {
            name: stored[name]
            for name in stored.files
            if name != "json" and name.split(".")[0] not in lists
        }
    return described["rest"] | lists | arrays


def _scalar(value: Array) -> Any:
    return value if value.ndim else float(value)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be saved")
