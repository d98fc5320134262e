# SPDX-License-Identifier: MIT
"""Many methods on the same clouds from the same start, judged alike: `compare`."""

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
from coframe.baselines.methods import METHODS, load, run
from coframe.compute.per_cloud import Local
from coframe.errors import InputError, one_line
from coframe.evaluate import metrics
from coframe.evaluate.metrics import Surface
from coframe.geometry import extent
from coframe.input.checks import as_poses
from coframe.input.normalise import Summary
from coframe.input.options import Options
from coframe.input.source import InMemory
from coframe.io.files import as_json, atomic
from coframe.paper import initial
from coframe.result.registration import Registration
from coframe.start import search
from coframe.types import Array, Poses

# [format] Written into comparison.json.
FORMAT = "coframe-comparison/1"
OURS, PAPER, START = "coframe", "jrmpc-b", "start"
# [size] Points of a cloud that make its surface, on which results are judged.
SURFACE_POINTS = 100_000
# [0.1, unknown] Points of a cloud that a method sees.
POINTS = 3000
# [0.1, unknown] Share of the largest extent: standard deviation of the components that the paper's
# method starts with.
START_DEVIATION = 0.05
# [paper: epsilon^2] Share of the squared extent that the paper's method adds to every variance.
EPSILON = 1e-6
DEFAULTS = Options()

Contestant = Callable[[Sequence[Float[Array, "_ D"]], Poses], Registration]


@dataclass(frozen=True)
class Row:
    """The figures of one method in a `Comparison`.

    Attributes
    ----------
    method : str
    seconds : float
        Wall clock.
    residual : float or None
        Median distance of points to the surface of the other clouds [user units].
    overlap : float or None
        Share of points with another cloud within the gate.
    rotation, worst_rotation : float or None
        Mean and largest error of the rotations [degrees], relative to the first cloud; None without
        a truth.
    translation : float or None
        Mean error of the translations [user units]; None without a truth.
    iterations : int or None
    failure : str or None
        The message with which the method failed; then the figures above are None.
    poses : array (M, D+1, D+1) or None
    """

    method: str
    seconds: float
    residual: float | None = None
    overlap: float | None = None
    rotation: float | None = None
    worst_rotation: float | None = None
    translation: float | None = None
    iterations: int | None = None
    failure: str | None = None
    poses: Poses | None = None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    names : tuple of str
        Of the clouds that were compared on.
    rows : tuple of Row
        The start itself, then each method.
    start : str
        Where the start comes from: "given", "identity" or "matched".
    points : int
        Points of each cloud that the methods saw, at most.
    gate : float
        Of residual and overlap [user units].
    seed : int
    left_out : tuple of str
        Clouds that could not be matched with the others.
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    start: str
    points: int
    gate: float
    seed: int
    left_out: tuple[str, ...] = ()

    @property
    def judged_by_truth(self) -> bool:
        """Whether there are errors."""
        return any(row.rotation is not None for row in self.rows)

    def content(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
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
        """Write it as JSON, and return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            temporary.write_text(as_json(self.content()) + "\n", encoding="utf-8")
        return path


def contestants(options: Options = DEFAULTS) -> dict[str, Contestant]:
    """All methods by name: `register`, the paper's batch algorithm, and the baselines.

    Parameters
    ----------
    options : Options, optional
        Of `register`; its seed and its threads also of the others.

    Returns
    -------
    dict of str to callable
        Functions of clouds and start poses that return a `Registration`.

    Examples
    --------
    >>> contestants()["matricp"](clouds, start_poses).poses
    """

    def ours(clouds: Sequence[Float[Array, "_ D"]], start: Poses) -> Registration:
        return register(clouds, start, options=options)

    def papers(clouds: Sequence[Float[Array, "_ D"]], start: Poses) -> Registration:
        drawn = initial.means_on_points(
            clouds, start, initial.component_count(clouds), np.random.default_rng(options.seed)
        )
        size = max(map(extent, clouds))
        return paper.batch(
            clouds,
            drawn,
            poses=start,
            variances=(START_DEVIATION * size) ** 2,
            epsilon=EPSILON * size**2,
            threads=options.threads,
        )

    others = {name: partial(run, name, threads=options.threads) for name in METHODS}
    return {OURS: ours, PAPER: papers, **others}


def compare(
    clouds: Iterable[Any],
    poses: Poses | None = None,
    *,
    truth: Poses | None = None,
    methods: Iterable[str] | Mapping[str, Contestant] | None = None,
    points: int = POINTS,
    gate: float | None = None,
    options: Options = DEFAULTS,
    names: Sequence[str] | None = None,
    on_method: Callable[[str, int, int], object] = lambda name, done, total: None,
) -> Comparison:
    """Run every method on the clouds from one start, and judge the results alike.

    Parameters
    ----------
    clouds : sequence of arrays (N_j, D), or of file paths
        As for `register`.
    poses : array (M, D+1, D+1), optional
        The start. By default it is found as `register` finds it, since the other methods need one;
        clouds that cannot be matched with most others are left out.
    truth : array (M, D+1, D+1), optional
        The true poses; with them, the errors of each method are known.
    methods : names, or mapping of names to functions of clouds and start, optional
        All of `contestants` by default.
    points : int, optional
        Points of each cloud that a method sees, at most. Results are judged on more.
    gate : float, optional
        Distance beyond which two points are not of the same surface [user units]; see
        `metrics.default_gate`.
    options : Options, optional
        Of `register`; its seed and its threads also of the others.
    names : sequence of str, optional
        Of the clouds; those of the files by default.
    on_method : callable, optional
        Called before each method with its name, the number of methods done and the number of all.

    Returns
    -------
    Comparison
        With a row for the start and one for each method. A method that fails has a row that says
        why, and the others go on.

    Raises
    ------
    InputError
        If an argument cannot be used, or no clouds can be matched where no start is given.

    Examples
    --------
    >>> comparison = coframe.compare(clouds, truth=truth)
    >>> [(row.method, row.residual, row.rotation) for row in comparison.rows]
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    clouds, names = load(clouds, names)
    M, D = len(clouds), clouds[0].shape[1]
    names = tuple(f"cloud {j}" for j in range(M)) if names is None else tuple(names)
    truth = None if truth is None else as_poses(truth, M, D, name="truth")
    if points <= D:
        raise InputError(f"points: expected at least {D + 1} a cloud, found {points}; give more")
    if gate is not None and not 0 < gate < np.inf:
        raise InputError(
            f"gate: expected a length above 0, found {gate!r}; leave it out to have it chosen"
        )
    chosen = methods if isinstance(methods, Mapping) else _chosen(methods, options)
    began = time.perf_counter()
    start, kept, source = _start(clouds, poses, options)
    seconds = time.perf_counter() - began
    left_out = tuple(names[j] for j in range(M) if j not in kept)
    clouds = [clouds[j] for j in kept]
    truth = None if truth is None else truth[kept]

    rng = np.random.default_rng(options.seed)
    seen = [cloud[_some(len(cloud), points, rng)] for cloud in clouds]
    surfaces = [Surface.of(cloud[_some(len(cloud), SURFACE_POINTS, rng)]) for cloud in clouds]
    gate = metrics.default_gate(surfaces, max(map(extent, clouds))) if gate is None else gate
    rows = [_with_figures(Row(START, seconds, poses=start), surfaces, gate, truth)]
    for done, (name, method) in enumerate(chosen.items()):
        on_method(name, done, len(chosen))
        rows.append(_with_figures(_row(name, method, seen, start), surfaces, gate, truth))
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
    clouds: Sequence[Float[Array, "_ D"]], poses: Poses | None, options: Options
) -> tuple[Float[Array, "m D1 D1"], list[int], str]:
    """Start poses, the clouds that have one, and where the start comes from."""
    if poses is not None:
        return (
            as_poses(poses, len(clouds), clouds[0].shape[1]),
            list(range(len(clouds))),
            search.GIVEN,
        )
    local = Local(list(map(InMemory, clouds)), options.threads)
    found = search.find_start(local, local.map(Summary.of), rng=np.random.default_rng(options.seed))
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


def _row(name: str, method: Contestant, clouds: Sequence[Float[Array, "_ D"]], start: Poses) -> Row:
    began = time.perf_counter()
    try:
        result = method(clouds, start)
    except Exception as error:  # whatever a method fails with, the others go on
        return Row(name, time.perf_counter() - began, failure=one_line(error))
    return Row(name, time.perf_counter() - began, iterations=result.iterations, poses=result.poses)


def _with_figures(row: Row, surfaces: Sequence[Surface], gate: float, truth: Poses | None) -> Row:
    poses = row.poses
    if poses is None:
        return row
    found = metrics.agreement(surfaces, poses, gate)
    row = replace(row, residual=found.residual, overlap=found.overlap)
    if truth is None:
        return row
    angles = metrics.rotation_errors(poses, truth)[1:]
    shifts = metrics.translation_errors(poses, truth)[1:]
    return replace(
        row,
        rotation=float(angles.mean()),
        worst_rotation=float(angles.max()),
        translation=float(shifts.mean()),
    )
