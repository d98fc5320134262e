# SPDX-License-Identifier: MIT
"""All baselines by name, and `run`, which runs one of them: check, iterate, judge."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from numbers import Integral
from typing import Any

from jaxtyping import Float

from coframe.api.judge import judge
from coframe.baselines import averaged_icp, cpd, gmmreg, icp, iterate, simultaneous
from coframe.em import loop
from coframe.em.loop import Iteration, Status
from coframe.errors import InputError
from coframe.input.checks import as_clouds, as_names, as_poses
from coframe.input.given import gathered
from coframe.input.normalise import Normalisation
from coframe.input.options import Options
from coframe.io import clouds as cloud_files
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array, Poses

ITERATIONS = 100  # [paper] iterations at most, as many as the paper gives every method


@dataclass(frozen=True)
class Baseline:
    """A method of other people, as `run` calls it.

    Attributes
    ----------
    poses_after : callable
        Clouds and start poses in, the poses after each iteration out. Its keyword arguments are the
        settings of the method.
    iterations_in_all : callable, optional
        Of a method that ends by itself and counts its iterations in another way: the number at
        most, from `iterations` and the settings.
    """

    poses_after: Callable[..., Iterator[Poses]]
    iterations_in_all: Callable[..., int] | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its keyword arguments."""
        found = signature(self.poses_after).parameters.values()
        return tuple(each.name for each in found if each.kind is Parameter.KEYWORD_ONLY)


METHODS: dict[str, Baseline] = {
    "icp": Baseline(icp.icp),
    "icp sequential": Baseline(icp.sequential_icp),
    "trimmed icp": Baseline(icp.trimmed_icp),
    "cpd": Baseline(cpd.cpd),
    "gmmreg": Baseline(gmmreg.gmmreg, gmmreg.evaluations_in_all),
    "simreg": Baseline(simultaneous.simreg),
    "mv-icp": Baseline(simultaneous.mv_icp),
    "maicp": Baseline(averaged_icp.maicp),
    "matricp": Baseline(averaged_icp.matricp),
    "pose graph": Baseline(averaged_icp.pose_graph),
}


@quiet_blas()
def run(
    name: str,
    clouds: Iterable[Any],
    poses: Poses,
    *,
    threads: int | None = None,
    iterations: int | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
    **settings: Any,
) -> Registration:
    """Register clouds by a method of other people, and judge its poses as `judge` does.

    Parameters
    ----------
    name : str
        One of `METHODS`; docs/baselines.md says what each does.
    clouds : sequence of arrays (N_j, D), or of file paths
        As for `register`.
    poses : array (M, D+1, D+1)
        Start poses, x = R v + t. Every baseline needs some.
    threads : int, optional
        Threads at most; all cores by default. The result does not depend on it.
    iterations : int, optional
        Iterations at most; 100 by default. A run also ends when no cloud moves by more than a
        millionth of the scene's radius.
    pairs : sequence of (int, int), optional
        The clouds that are matched with each other, for the methods that match pairs; those that
        overlap at the start by default.
    on_iteration : callable, optional
        Called after each iteration; a true value ends the run.
    **settings
        Settings of the method: `overlap` of "trimmed icp", `outliers` of "cpd", `deviations` of
        "gmmreg", `pairwise_iterations` of "simreg".

    Returns
    -------
    Registration
        With the poses after each iteration in `history`, whose log-likelihoods are NaN.

    Raises
    ------
    InputError
        If an argument cannot be used, or the method has no such setting.

    Examples
    --------
    >>> result = coframe.baselines.run("trimmed icp", clouds, start_poses, overlap=0.7)
    >>> result.poses
    """
    method = named(name)
    options = Options(threads=threads)
    limit = ITERATIONS if iterations is None else iterations
    if not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 1:
        raise InputError(f"iterations: expected a whole number of at least 1, found {limit!r}")
    settings |= {} if pairs is None else {"pairs": pairs}
    for key in settings:
        if key not in method.settings or key in ("threads", "iterations"):
            known = [each for each in method.settings if each not in ("threads", "iterations")]
            raise InputError(
                f"{key}: expected a setting of {name} ({', '.join(known) or 'it has none'}), found"
                " another; leave it out"
            )
    most = method.iterations_in_all(limit, **settings) if method.iterations_in_all else limit
    common = {"threads": threads, "iterations": limit}
    settings |= {key: value for key, value in common.items() if key in method.settings}

    points, names = load(clouds, None)
    poses = as_poses(poses, len(points), points[0].shape[1])
    frames = Normalisation.of(points)
    origin = frames.middle(poses)
    last = frames.enter_poses(poses, origin)
    steps = method.poses_after(frames.enter(points), last, **settings)
    if method.iterations_in_all is None:
        steps = iterate.until_settled(steps, last)
    history: list[Iteration] = []
    status = Status.CONVERGED
    for new in steps:
        moved = iterate.largest_move(last, new)
        step = Iteration(len(history), float("nan"), moved, new, float(sum(map(len, points))))
        history.append(frames.leave_iteration(step, origin))
        last = new
        if on_iteration(history[-1]):
            status = Status.STOPPED
            break
        if len(history) == most:
            status = Status.ITERATION_LIMIT
            break
    found = history[-1].poses if history else poses
    return judge(
        points, found, options=options, release=False, names=names, history=history, status=status
    )


def named(name: str) -> Baseline:
    """The method of a name."""
    if name not in METHODS:
        raise InputError(f"name: expected one of {', '.join(METHODS)}, found {name!r}")
    return METHODS[name]


def load(
    clouds: Iterable[Any], names: Sequence[str] | None
) -> tuple[list[Float[Array, "_ D"]], Sequence[str] | None]:
    """The points of clouds in memory or in files, checked, and their names where they have any."""
    clouds, paths, names = gathered(clouds, names)
    if paths:
        scans, _ = cloud_files.open_all(clouds)
        names = [scan.name for scan in scans] if names is None else names
        clouds = [scan.points for scan in scans]
    names = names if names is None else as_names(names, len(clouds))
    return as_clouds(clouds, names=names), names
