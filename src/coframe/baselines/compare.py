# SPDX-License-Identifier: MIT
"""Many methods on the same clouds from the same start, judged alike: `compare`."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import paper
from coframe.api.register import register
from coframe.baselines import METHODS
from coframe.compute.places import Local
from coframe.errors import InputError
from coframe.evaluate import metrics
from coframe.evaluate.metrics import Surface
from coframe.geometry import extent
from coframe.input.checks import as_clouds, as_poses
from coframe.input.normalise import Summary
from coframe.input.options import Options
from coframe.input.source import InMemory
from coframe.io.files import atomic
from coframe.paper import initial
from coframe.result.registration import Registration
from coframe.start import search
from coframe.types import Array

FORMAT = "coframe-comparison/1"
OURS, PAPER, START = "coframe", "jrmpc-b", "start"
JUDGED = 100_000  # points of a cloud that make its surface
DEFAULTS = Options()

Contestant = Callable[[Sequence[Float[Array, "_ D"]], Float[Array, "M D1 D1"]], Registration]


@dataclass(frozen=True)
class Row:
    """One method's figures; all but the first two are None where the method failed, the errors also
    without a truth.
    """

    method: str
    seconds: float  # wall clock
    # median distance of points to the surface of the other clouds [user units]
    residual: float | None = None
    overlap: float | None = None  # share of points with another cloud within the gate
    # mean error of the rotations [degrees], relative to the first cloud
    rotation: float | None = None
    worst_rotation: float | None = None  # largest
    translation: float | None = None  # mean error of the translations [user units]
    iterations: int | None = None
    failure: str | None = None  # what the method said when it gave up
    poses: Float[Array, "M D1 D1"] | None = None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. The first row is the start itself."""

    names: tuple[str, ...]  # of the clouds
    rows: tuple[Row, ...]
    start: str  # where it came from: "given", "identity" or "matched"
    points: int  # of each cloud that the methods saw, at most
    gate: float  # of residual and overlap [user units]
    seed: int
    left_out: tuple[str, ...] = ()  # clouds that could not be matched with the others

    @property
    def judged_by_truth(self) -> bool:
        """Whether there are errors."""
        return any(row.rotation is not None for row in self.rows)

    def content(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        rows = [
            asdict(row) | {"poses": None if row.poses is None else row.poses.tolist()}
            for row in self.rows
        ]
        return {
            "format": FORMAT,
            "version": version("coframe"),
            **asdict(replace(self, rows=())),
            "rows": rows,
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            temporary.write_text(
                json.dumps(self.content(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
        return path


def contestants(options: Options = DEFAULTS) -> dict[str, Contestant]:
    """All methods by name: `register`, the paper's batch algorithm, and the baselines."""

    def ours(clouds: Sequence[Float[Array, "_ D"]], start: Float[Array, "M D1 D1"]) -> Registration:
        return register(clouds, start, options=options)

    def papers(
        clouds: Sequence[Float[Array, "_ D"]], start: Float[Array, "M D1 D1"]
    ) -> Registration:
        drawn = initial.means_on_points(
            clouds, start, initial.component_count(clouds), np.random.default_rng(options.seed)
        )
        size = max(map(extent, clouds))
        return paper.batch(
            clouds, drawn, poses=start, variances=(0.05 * size) ** 2, epsilon=1e-6 * size**2
        )

    return {OURS: ours, PAPER: papers, **METHODS}


def compare(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"] | None = None,
    *,
    truth: Float[Array, "M D1 D1"] | None = None,
    methods: Iterable[str] | Mapping[str, Contestant] | None = None,
    points: int = 3000,
    gate: float | None = None,
    options: Options = DEFAULTS,
    names: Sequence[str] | None = None,
    on_method: Callable[[str, int, int], object] = lambda name, done, total: None,
) -> Comparison:
    """Run every method on the clouds from one start, and judge the results alike.

    clouds: M arrays (N_j, D). poses: the start (M, D+1, D+1); default: found as `register` finds
    it, since the other methods need one; clouds that cannot be matched with most others are left
    out. truth: the true poses, if known. methods: names (see `contestants`), or functions of clouds
    and start by name; default: all. points: of each cloud that a method sees, at most; results are
    judged on more. gate: what is farther apart is not the same surface [user units]; default: see
    `metrics.default_gate`. on_method: called with a name, the methods done so far and the number of
    all.

    >>> comparison = coframe.compare(clouds, truth=truth)
    >>> [(row.method, row.residual, row.rotation) for row in comparison.rows]
    """
    clouds = as_clouds(clouds, names=names)
    M, D = len(clouds), clouds[0].shape[1]
    names = tuple(f"cloud {j}" for j in range(M)) if names is None else tuple(names)
    truth = None if truth is None else as_poses(truth, M, D, name="truth")
    if points <= D:
        raise InputError(f"points: expected at least {D + 1} a cloud, found {points}")
    if gate is not None and not 0 < gate < np.inf:
        raise InputError(f"gate: expected a length above 0, found {gate!r}")
    chosen = methods if isinstance(methods, Mapping) else _chosen(methods, options)
    begun = time.perf_counter()
    start, kept, source = _start(clouds, poses, options)
    seconds = time.perf_counter() - begun
    left_out = tuple(names[j] for j in range(M) if j not in kept)
    clouds, truth = [clouds[j] for j in kept], None if truth is None else truth[kept]

    rng = np.random.default_rng(options.seed)
    seen = [cloud[_some(len(cloud), points, rng)] for cloud in clouds]
    surfaces = [Surface.of(cloud[_some(len(cloud), JUDGED, rng)]) for cloud in clouds]
    gate = metrics.default_gate(surfaces, max(map(extent, clouds))) if gate is None else gate
    judge = partial(_judged, surfaces, gate, truth)
    rows = [judge(Row(START, seconds, poses=start))]
    for done, (name, method) in enumerate(chosen.items()):
        on_method(name, done, len(chosen))
        rows.append(judge(_run(name, method, seen, start)))
    on_method("", len(chosen), len(chosen))
    return Comparison(
        tuple(names[j] for j in kept), tuple(rows), source, points, gate, options.seed, left_out
    )


def _chosen(methods: Iterable[str] | None, options: Options) -> dict[str, Contestant]:
    known = contestants(options)
    wanted = list(known) if methods is None else list(methods)
    for name in wanted:
        if name not in known:
            raise InputError(f"methods: expected some of {', '.join(known)}, found {name!r}")
    return {name: known[name] for name in wanted}


def _start(
    clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"] | None, options: Options
) -> tuple[Float[Array, "m D1 D1"], list[int], str]:
    """Start poses, of which clouds, and where they come from."""
    if poses is not None:
        return (
            as_poses(poses, len(clouds), clouds[0].shape[1]),
            list(range(len(clouds))),
            search.GIVEN,
        )
    place = Local(list(map(InMemory, clouds)), options.threads)
    found = search.find_start(place, place.map(Summary.of), rng=np.random.default_rng(options.seed))
    kept = sorted(found.groups[0])
    if len(kept) < 2:
        raise InputError(
            "clouds: expected clouds that can be matched with each other, found none; give start"
            " poses"
        )
    return found.poses[0][kept], kept, found.source


def _some(available: int, count: int, rng: np.random.Generator) -> Array:
    return (
        np.arange(available)
        if available <= count
        else np.sort(rng.choice(available, count, replace=False))
    )


def _run(
    name: str,
    method: Contestant,
    clouds: Sequence[Float[Array, "_ D"]],
    start: Float[Array, "M D1 D1"],
) -> Row:
    begun = time.perf_counter()
    try:
        result = method(clouds, start)
    except Exception as error:  # whatever a method dies of, the others go on
        said = " ".join(str(error).split()) or type(error).__name__
        return Row(name, time.perf_counter() - begun, failure=said)
    return Row(name, time.perf_counter() - begun, iterations=result.iterations, poses=result.poses)


def _judged(
    surfaces: Sequence[Surface], gate: float, truth: Float[Array, "M D1 D1"] | None, row: Row
) -> Row:
    if row.poses is None:
        return row
    poses, found = row.poses, metrics.agreement(surfaces, row.poses, gate)
    row = replace(row, residual=found.residual, overlap=found.overlap)
    if truth is None:
        return row
    angles, shifts = (
        metrics.rotation_errors(poses, truth)[1:],
        metrics.translation_errors(poses, truth)[1:],
    )
    return replace(
        row,
        rotation=float(angles.mean()),
        worst_rotation=float(angles.max()),
        translation=float(shifts.mean()),
    )
