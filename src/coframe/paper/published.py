# SPDX-License-Identifier: MIT
"""JRMPC-B as published, on clouds or files, with the defaults of its authors."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from coframe.em import loop
from coframe.em.loop import Iteration
from coframe.input.given import open_clouds
from coframe.input.options import Options, check_callables
from coframe.paper import initial
from coframe.paper.batch import batch
from coframe.result.registration import Registration
from coframe.types import Poses

# [paper] EM iterations of a run.
ITERATIONS = 100
# [limit] Gaussians of the model at most, where their number is not given.
MAX_COMPONENTS = 1000


def batch_with_defaults(
    clouds: Iterable[Any] | str | PathLike[str],
    poses: Poses | None = None,
    components: int | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    names: Sequence[str] | None = None,
    exclude: Sequence[int] = (),
    on_file: Callable[[str], object] = lambda name: None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
) -> Registration:
    """Register clouds by `paper.batch`, with start means chosen as the authors do.

    Parameters
    ----------
    clouds
        As for `coframe.register`: arrays, or files, folders and patterns.
    poses
        Start poses (M, D+1, D+1); the start means are then points of the clouds. Default: clouds
        centred on each other, and start means on a sphere around them.
    components
        Gaussians of the model. Default: 60 % of the points of a cloud, at most 1000.
    seed
        Seed of the start means.
    threads
        Threads; default: all cores.
    names
        Names of the clouds. Default: those of their files.
    exclude
        Scans of the files that are left out, as for `coframe.register`.
    on_file
        Called with each file's name before it is read.
    on_iteration
        Called after each of the 100 iterations; returning True ends the run.

    Returns
    -------
    Registration
        Its `start` is "given" or "centred"; its `options` say what the run depended on.

    Examples
    --------
    >>> result = coframe.paper.batch_with_defaults("scans/*.ply")
    """
    Options(seed=seed, threads=threads, components=1 if components is None else components)
    check_callables(on_iteration=on_iteration)
    with open_clouds(
        clouds, None, names, threads=threads, on_file=on_file, exclude=exclude
    ) as given:
        points = [cloud.points for cloud in given.loaded]
    rng = np.random.default_rng(seed)
    if components is None:
        components = min(initial.component_count(points), MAX_COMPONENTS)
    if poses is None:
        means = initial.means_on_sphere(points, components, rng)
    else:
        means = initial.means_on_points(points, poses, components, rng)
    result = batch(
        points,
        means,
        poses=poses,
        iterations=ITERATIONS,
        threads=threads,
        on_iteration=on_iteration,
    )
    record = {"method": "paper", "components": components, "iterations": ITERATIONS, "seed": seed}
    return replace(
        result,
        names=tuple(given.names),
        start="centred" if poses is None else "given",
        options=record,
        attributes=tuple(cloud.columns for cloud in given.loaded) if given.files else (),
        files=tuple(str(file.absolute()) for file in given.files),
    )
